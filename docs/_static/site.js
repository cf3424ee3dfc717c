// For readers with a keyboard or a screen reader: what scrolls can be reached, and the two side columns have names.
document.addEventListener("DOMContentLoaded", () => {
  const korean = document.documentElement.lang === "ko";
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", korean ? "모든 페이지" : "all pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", korean ? "이 페이지의 목차" : "on this page");
  const words = {
    "Toggle site navigation sidebar": "페이지 목록 여닫기",
    "Toggle table of contents sidebar": "이 페이지의 목차 여닫기",
    "Toggle Light / Dark / Auto color theme": "밝은 테마, 어두운 테마, 자동 전환",
  };
  for (const named of korean ? document.querySelectorAll("[aria-label]") : []) {
    named.setAttribute("aria-label", words[named.getAttribute("aria-label")] ?? named.getAttribute("aria-label"));
  }
  for (const box of document.querySelectorAll("pre, .table-wrapper, .katex-display, .math")) box.tabIndex = 0;
});
