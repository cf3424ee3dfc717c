// --- a translation, and the source's tokens that each of its tokens looked at -------------------------------

let source = "";

async function work() {
  const json = { "Content-Type": "application/json" }, body = JSON.stringify({ texts: [source] });
  const ways = { layer: valueOf("layer"), head: valueOf("head") };
  const [reply, looked] = await Promise.all([ask("translate", {}, body, json), ask("attention", ways, body, json)]);
  return () => {
    byId("translation").textContent = reply.translations[0].text || say("no-translation");
    drawMatrix(looked.attention[0]);
  };
}

const bare = (text) => text.replaceAll("▁", " ").trim() || "␣";  // tokens carry the space before a word as ▁

function drawMatrix({ read: heard, tokens: said, values }) {
  const read = heard.map(bare), tokens = said.map(bare);
  const matrix = byId("matrix"), caption = matrix.caption;
  const columns = read.map((text) => make("th", { scope: "col" }, make("span", {}, text)));
  const rows = tokens.map((text, i) => make("tr", {}, make("th", { scope: "row" }, text), ...values[i].map((weight, j) => {
    const words = `${text} → ${read[j]}: ${percent(weight)}`;
    const cell = make("td", { title: words, "aria-label": percent(weight) });
    cell.style.setProperty("--weight", weight.toFixed(3));
    return cell;
  })));
  matrix.replaceChildren(caption, make("thead", {}, make("tr", {}, make("td", {}), ...columns)), make("tbody", {}, ...rows));
}

function translate(text) {
  source = text.trim();
  if (source) show(work);
}

byId("form").addEventListener("submit", (event) => { event.preventDefault(); translate(valueOf("text")); });
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); translate(valueOf("text")); }
});
for (const button of document.querySelectorAll(".texts .example")) {
  button.addEventListener("click", () => { byId("text").value = button.dataset.text; translate(button.dataset.text); });
}
const again = () => { if (source) show(work); };
slider("layer", layerOf, again);
slider("head", ofAll, again);
