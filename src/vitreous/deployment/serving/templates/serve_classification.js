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

// Whether all classes are about equally probable; those that are not listed share what is left evenly.
function undecided(top) {
  const listed = top.map(({ probability }) => probability), others = settings.labels.length - top.length;
  const rest = Math.max(1 - listed.reduce((sum, each) => sum + each, 0), 0);
  return settings.exclusive && settings.labels.length > 1 && entropyOf([...listed, ...Array(others).fill(rest / others)]) > 0.95;
}

function drawBars(answer) {
  const top = [...(answer.top ?? [])], rest = 1 - top.reduce((sum, { probability }) => sum + probability, 0);
  const open = top.length > 0 && undecided(top);
  byId("answer").textContent = open ? say("undecided") : brief(answer);
  byId("answer").classList.toggle("undecided", open);
  if (settings.exclusive && settings.labels.length > top.length && top.length) top.push({ label: say("other-classes"), probability: Math.max(rest, 0) });
  const shares = top.map(({ probability }) => probability), values = settings.exclusive ? rounded(shares) : shares.map(percent);
  byId("bars").replaceChildren(...top.map(({ label, probability }, i) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = 100 * probability + "%";
    return make("li", {}, make("span", { class: "name" }, label), make("span", { class: "track" }, bar),
      make("span", { class: "value" }, values[i]));
  }));
}

function drawSight() {
  const { image, reply } = sight;
  overlay(byId("sight"), image, reply.values, valueOf("opacity") / 100);
  const about = settings.trained ? [] : [say("untrained")];
  about.push(say(reply.kind, { of: reply.kind === "evidence" ? reply.of : settings.readout }), scaleOf(reply.values));
  byId("sight-words").textContent = about.join(" ");
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
