// --- text, and where each character was read ---------------------------------------------------------------

let sight = null, token = 0;
const brief = (answer) => answer.text || "(nothing)";

async function work(item) {
  const [, told] = await Promise.all([item.predict(), item.look({ layer: valueOf("layer"), head: valueOf("head") })]);
  const image = await decoded(told.seen);
  return () => {
    if (sight?.told.text !== told.text) token = told.tokens.findIndex((each) => each.replace("▁", "") !== "");
    token = Math.max(token, 0);
    sight = { image, told };
    drawLetters();
    drawSight();
  };
}

function drawLetters() {
  byId("letters").replaceChildren(...sight.told.tokens.map((text, index) => {
    const bare = text.replace(/^▁/, ""), mark = /^⟨.*⟩$/.test(text) || bare === "";
    const button = make("button", { type: "button", class: mark ? "mark" : "", "aria-pressed": String(index === token) },
      bare === "" ? "space" : mark ? bare.slice(1, -1) : bare);
    for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => point(index));
    return button;
  }));
}

function point(index) {
  token = index;
  [...byId("letters").children].forEach((each, i) => each.setAttribute("aria-pressed", String(i === index)));
  drawSight();
}

function drawSight() {
  overlay(byId("sight"), sight.image, sight.told.values[token], valueOf("opacity") / 100);
  byId("sight-words").textContent = `Where the decoder looked when it wrote “${sight.told.tokens[token]}”, as the model sees the image.`;
}

const again = () => { if (selected) show(() => work(selected)); };
slider("opacity", (value) => value + " %", () => { if (sight) drawSight(); });
slider("layer", (value) => `${value} of ${settings.layers}`, again);
slider("head", ofAll, again);
