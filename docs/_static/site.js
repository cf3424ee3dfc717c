// For readers with a keyboard or a screen reader: what scrolls can be reached, and the two side columns have names.
document.addEventListener("DOMContentLoaded", () => {
  const korean = document.documentElement.lang === "ko";
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", korean ? "모든 페이지" : "all pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", korean ? "이 페이지의 목차" : "on this page");
  for (const box of document.querySelectorAll("pre, .table-wrapper, .katex-display, .math")) box.tabIndex = 0;
});
