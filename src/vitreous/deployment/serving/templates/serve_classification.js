// --- labels with bars or a number, and where the model looked ----------------------------------------------

const looks = Boolean(byId("sight"));
let sight = null;  // what is shown: { image, reply }
let patch = null;  // [row, column] whose attention is asked for, from 0; null: what the head reads
const [rows, columns] = settings.grid ?? [];
const nameOf = (label) => (settings.named ? label : say("class", { label }));
const brief = (answer) => (answer.label === undefined ? null : nameOf(answer.label)) ?? Number(answer.value.toPrecision(4)).toString();  // a regression's value

function wanted() {
  const kind = valueOf("kind"), of = patch && kind !== "evidence" ? { patch: `${patch[0] + 1}x${patch[1] + 1}` } : {};
  return kind === "attention" ? { kind, layer: valueOf("layer"), head: valueOf("head"), ...of } : { kind, ...of };
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
  if (settings.exclusive && settings.labels.length > top.length && top.length) top.push({ label: say("other-classes"), other: true, probability: Math.max(rest, 0) });
  const shares = top.map(({ probability }) => probability), values = settings.exclusive ? rounded(shares) : shares.map(percent);
  byId("bars").replaceChildren(...top.map(({ label, probability }, i) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = 100 * probability + "%";
    return make("li", {}, make("span", { class: "name" }, open || top[i].other ? label : nameOf(label)), make("span", { class: "track" }, bar),
      make("span", { class: "value" }, values[i]));
  }));
}

function drawSight() {
  const { image, reply } = sight;
  overlay(byId("sight"), image, reply.values, valueOf("opacity") / 100);
  const about = settings.trained ? [] : [say("untrained")], queried = patch && reply.kind !== "evidence";
  if (queried) frame(byId("sight"));
  const of = reply.kind === "evidence" ? nameOf(reply.of) : queried ? say("patch", { row: patch[0] + 1, column: patch[1] + 1 }) : settings.readout;
  about.push(say(reply.kind, { of }), scaleOf(reply.values));
  byId("reset").hidden = !patch;
  byId("sight-words").textContent = about.join(" ");
}

// The patch that is asked, in a white frame with a black edge.
function frame(canvas) {
  const context = canvas.getContext("2d"), wide = canvas.width / columns, tall = canvas.height / rows;
  for (const [width, color] of [[6, "#000"], [3, "#fff"]]) {
    context.lineWidth = width; context.strokeStyle = color;
    context.strokeRect(patch[1] * wide + 2, patch[0] * tall + 2, wide - 4, tall - 4);
  }
}

if (looks) {
  const query = (place) => {
    patch = place;
    if (patch && valueOf("kind") === "evidence") { byId("kind").value = "rollout"; byId("kind").dispatchEvent(new Event("change")); } else again();
  };
  const within = (value, most) => Math.min(Math.max(Math.floor(value), 0), most - 1);
  byId("sight").addEventListener("click", (event) => {
    const box = byId("sight").getBoundingClientRect();
    query([within((event.clientY - box.top) / box.height * rows, rows), within((event.clientX - box.left) / box.width * columns, columns)]);
  });
  byId("sight").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") query(null);
    if (!step) return;
    event.preventDefault();
    const [row, column] = patch ?? [rows >> 1, columns >> 1];
    query([within(row + step[0], rows), within(column + step[1], columns)]);
  });
  byId("reset").addEventListener("click", () => query(null));
  const again = () => { if (selected) show(() => work(selected)); };
  slider("opacity", wholePercent, () => { if (sight) drawSight(); });
  slider("layer", layerOf, again);
  slider("head", ofAll, again);
  byId("kind").addEventListener("change", () => {
    for (const each of document.querySelectorAll(".of-layer")) each.hidden = valueOf("kind") !== "attention";
    again();
  });
}
