// --- labels with bars or a number, and where the model looked ----------------------------------------------

const looks = Boolean(byId("sight"));
let sight = null;  // what is shown: { image, reply }
const brief = (answer) => answer.label ?? Number(answer.value.toPrecision(4)).toString();  // a regression's value

function wanted() {
  const kind = valueOf("kind");
  return kind === "attention" ? { kind, layer: valueOf("layer"), head: valueOf("head") } : { kind };
}

async function work(item) {
  const asked = [settings.predict ? item.predict() : null, looks ? item.look(wanted()) : null];
  const [answer, reply] = await Promise.all(asked);
  const image = reply && await decoded(reply.seen);
  return () => {
    if (answer) drawBars(answer);
    if (reply) { sight = { image, reply }; drawSight(); }
  };
}

function drawBars(answer) {
  byId("answer").textContent = brief(answer);
  byId("bars").replaceChildren(...(answer.top ?? []).map(({ label, probability }) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = 100 * probability + "%";
    return make("li", {}, make("span", { class: "name" }, label), make("span", { class: "track" }, bar),
      make("span", { class: "value" }, percent(probability)));
  }));
}

function drawSight() {
  const { image, reply } = sight;
  overlay(byId("sight"), image, reply.values, valueOf("opacity") / 100);
  byId("sight-words").textContent = say(reply.kind, { of: reply.kind === "evidence" ? reply.of : settings.readout });
}

if (looks) {
  const again = () => { if (selected) show(() => work(selected)); };
  slider("opacity", wholePercent, () => { if (sight) drawSight(); });
  slider("layer", layerOf, again);
  slider("head", ofAll, again);
  byId("kind").addEventListener("change", () => {
    for (const each of document.querySelectorAll(".of-layer")) each.hidden = valueOf("kind") !== "attention";
    again();
  });
}
