// --- text, and where each character was read ---------------------------------------------------------------

let sight = null, chosen = 0;
const brief = (answer) => answer.text || say("nothing");

async function work(item) {
  const [, reply] = await Promise.all([item.predict(), item.look({ layer: valueOf("layer"), head: valueOf("head") })]);
  const image = await decoded(reply.seen);
  return () => {
    if (sight?.reply.text !== reply.text) chosen = reply.tokens.findIndex((each) => each.replace("▁", "") !== "");
    chosen = Math.max(chosen, 0);
    sight = { image, reply };
    drawLetters();
    drawSight();
  };
}

function drawLetters() {
  byId("letters").replaceChildren(...sight.reply.tokens.map((text, index) => {
    const bare = text.replace(/^▁/, ""), mark = /^⟨.*⟩$/.test(text) || bare === "";
    const button = make("button", { type: "button", class: mark ? "mark" : "", "aria-pressed": String(index === chosen) },
      bare === "" ? say("space") : mark ? bare.slice(1, -1) : bare);
    for (const event of ["mouseenter", "focus", "click"]) button.addEventListener(event, () => point(index));
    return button;
  }));
}

function point(index) {
  chosen = index;
  [...byId("letters").children].forEach((each, i) => each.setAttribute("aria-pressed", String(i === index)));
  drawSight();
}

function drawSight() {
  overlay(byId("sight"), sight.image, sight.reply.values[chosen], valueOf("opacity") / 100);
  byId("sight-words").textContent = [say("letter", { token: sight.reply.tokens[chosen] }), scaleOf(sight.reply.values[chosen])].join(" ");
}

const again = () => { if (selected) show(() => work(selected)); };
slider("opacity", wholePercent, () => { if (sight) drawSight(); });
slider("layer", layerOf, again);
slider("head", ofAll, again);
