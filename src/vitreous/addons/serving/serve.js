"use strict";
const settings = JSON.parse(document.getElementById("settings").textContent);
const byId = (id) => document.getElementById(id);
const say = (name, values = {}) => settings.words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const nameOf = (label) => (settings.named ? label : say("class", { label }));
const looks = Boolean(byId("sight"));  // whether the model has attention
let given = null;  // the image that is asked about
let patch = null;  // [row, column] whose attention is shown, from 1; null: what the head reads

// A server that needs a token gets the one after # in the page's address, which browsers send to no server.
const token = new URLSearchParams(location.hash.slice(1)).get("token");

// What the server answers; an error carries its sentence.
async function ask(endpoint, parameters = {}) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const body = new FormData();
  body.append("files", given, given.name);
  let response;
  try {
    response = await fetch("v1/" + endpoint + "?" + new URLSearchParams(parameters), { method: "POST", body, headers });
  } catch {
    throw new Error(say("unreachable"));
  }
  if (response.ok) return response;
  const reply = await response.json().catch(() => ({ error: say("status", { status: response.status }) }));
  throw new Error(reply.error);
}

// Only the last of several questions may draw its answer.
let turn = 0;
async function show() {
  const mine = ++turn;
  let problem = "";
  byId("get").setAttribute("aria-busy", "true");
  try {
    const [response, heat] = await Promise.all([ask(settings.main), looks ? ask("attention", view()) : null]);
    const answer = (await response.json())[settings.key][0], blob = heat && await heat.blob();
    if (mine !== turn) return;
    drawAnswer(answer);
    if (blob) drawHeat(blob, answer.label);
  } catch (error) {
    problem = error.message;
  }
  if (mine !== turn) return;
  byId("empty").hidden = true;
  byId("result").hidden = problem !== "";
  byId("problem").hidden = problem === "";
  byId("problem").textContent = problem;
  byId("get").setAttribute("aria-busy", "false");
  byId("bench").dataset.drawn = String(mine);
}

// The most probable labels, each with a bar; a number; or how many features there are, and the first of them.
function drawAnswer({ label, top = [], value, features }) {
  if (features) byId("answer").textContent = say("features", { count: features.length, first: features.slice(0, 4).map((each) => each.toFixed(2)).join(", ") });
  else byId("answer").textContent = label === undefined ? Number(value.toPrecision(4)) : nameOf(label);
  const bars = top.map((each) => [nameOf(each.label), each.probability]);
  if (settings.exclusive && settings.classes > bars.length && bars.length) {
    bars.push([say("other-classes"), Math.max(1 - bars.reduce((sum, [, share]) => sum + share, 0), 0)]);
  }
  byId("bars").replaceChildren(...bars.map(([name, share]) => {
    const row = document.createElement("li"), track = element("span", "track"), bar = element("span", "bar");
    bar.style.width = 100 * share + "%";
    track.append(bar);
    row.append(element("span", "name", name), track, element("span", "value", percent(share)));
    return row;
  }));
}

function element(name, style, text = "") {
  const made = document.createElement(name);
  made.className = style;
  made.textContent = text;
  return made;
}

// --- attention: the server draws it as heat over the image ----------------------------------------------------

// How to look, as the server takes it.
function view() {
  const kind = byId("kind").value, of = patch ? { patch: patch.join("x") } : {};
  const layer = kind === "attention" ? { layer: byId("layer").value, head: byId("head").value } : {};
  return { kind, format: "png", ...layer, ...of };
}

function drawHeat(blob, label) {
  URL.revokeObjectURL(byId("sight").src);
  byId("sight").src = URL.createObjectURL(blob);
  const kind = byId("kind").value, asking = patch ? say("patch", { row: patch[0], column: patch[1] }) : settings.readout;
  const words = say(kind, { of: kind === "evidence" ? nameOf(label) : asking });
  byId("sight-words").textContent = settings.trained ? words : say("untrained") + " " + words;
}

function change() {
  const kind = byId("kind").value, head = Number(byId("head").value);
  if (kind === "evidence") patch = null;
  for (const each of document.querySelectorAll(".of-layer")) each.hidden = kind !== "attention";
  byId("layer-now").textContent = say("of", { number: byId("layer").value, count: byId("layer").max });
  byId("head-now").textContent = head ? String(head) : say("mean-of-all");
  if (given) show();
}

// The attention of a patch; null: of what the head reads.
function lookFrom(place) {
  const within = (value, most) => Math.min(Math.max(Math.ceil(value), 1), most);
  patch = place && place.map((value, axis) => within(value, settings.grid[axis]));
  if (patch && byId("kind").value === "evidence") byId("kind").value = "rollout";
  change();
}

if (looks) {
  byId("sight").addEventListener("click", (event) => {
    const box = byId("sight").getBoundingClientRect(), [rows, columns] = settings.grid;
    lookFrom([(event.clientY - box.top) / box.height * rows, (event.clientX - box.left) / box.width * columns]);
  });
  byId("sight").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") lookFrom(null);
    if (!step) return;
    event.preventDefault();
    lookFrom((patch ?? settings.grid.map((count) => count / 2)).map((value, axis) => value + step[axis]));
  });
  for (const id of ["kind", "layer", "head"]) byId(id).addEventListener("input", change);
}

// --- the image: chosen, dropped or pasted -----------------------------------------------------------------------

function give(file) {
  if (!file) return;
  given = file;
  byId("given").src = URL.createObjectURL(file);
  byId("given").hidden = false;
  show();
}

byId("given").addEventListener("error", () => { byId("given").hidden = true; });  // a TIFF, which browsers do not show
byId("file").addEventListener("change", (event) => { give(event.target.files[0]); event.target.value = ""; });
addEventListener("paste", (event) => give(event.clipboardData?.files[0]));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => { event.preventDefault(); give(event.dataTransfer.files[0]); });

byId("api").textContent = byId("api").textContent.replaceAll("ADDRESS/v1", new URL("v1", location.href.split("#")[0]));
