const settings = JSON.parse(document.getElementById("settings").textContent);
const byId = (id) => document.getElementById(id);
const say = (name, values = {}) => settings.words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
// Shares in percent with one decimal, rounded so that they add up.
function rounded(shares) {
  const all = shares.reduce((sum, each) => sum + each, 0), exact = shares.map((share) => 1000 * share / all);
  const tenths = exact.map(Math.floor), missing = 1000 - tenths.reduce((sum, each) => sum + each, 0);
  const order = exact.map((share, i) => [share - tenths[i], i]).sort((one, other) => other[0] - one[0]);
  for (const [, i] of order.slice(0, missing)) tenths[i] += 1;
  return tenths.map((each) => say("percent", { number: (each / 10).toFixed(1) }));
}
// The entropy of shares: 0 for a single one, 1 for equal ones.
const entropyOf = (shares) => shares.reduce((all, each) => all - (each > 0 ? each * Math.log(each) : 0), 0) / Math.log(Math.max(shares.length, 2));
const percent = (share) => say("percent", { number: (100 * share).toFixed(1) });

function make(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value; else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// A server that needs a token gets the one after # in the page's address, which browsers send to no server.
const token = new URLSearchParams(location.hash.slice(1)).get("token");

// What the server says; an error carries its sentence.
const asked = new Map();  // of the last question to each endpoint: how it was asked, and the milliseconds to the answer
async function ask(endpoint, parameters, body, headers) {
  const began = performance.now();
  let response;
  if (token) headers = { ...headers, Authorization: "Bearer " + token };
  try {
    response = await fetch("v1/" + endpoint + "?" + new URLSearchParams(parameters), { method: "POST", body, headers });
  } catch {
    throw new Error(say("unreachable"));
  }
  const reply = await response.json().catch(() => ({ error: say("unreadable") }));
  if (!response.ok) throw new Error(reply.error ?? say("status", { status: response.status }));
  asked.delete(endpoint);  // the latest last
  asked.set(endpoint, { parameters, body, took: Math.round(performance.now() - began) });
  return reply;
}

// How long the answers took, and the commands that ask the same.
function tellHow() {
  byId("took").textContent = [...asked].map(([endpoint, { took }]) => say("took", { endpoint, took })).join(" · ");
  byId("curl").textContent = [...asked].map(([endpoint, { parameters, body }]) => curlOf(endpoint, parameters, body)).join("\n");
}
function curlOf(endpoint, parameters, body) {
  const quote = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
  const query = new URLSearchParams(Object.entries(parameters).filter(([name]) => name !== "seen")).toString();
  const given = typeof body === "string" ? "--json " + quote(body) : "-F " + quote("files=@" + body.get("files").name);
  const address = new URL("v1/" + endpoint + (query && "?" + query), location.href);
  address.hash = "";
  return ["curl", ...(token ? ['-H "Authorization: Bearer $TOKEN"'] : []), given, quote(String(address))].join(" ");
}

// Only the last of several questions may draw its answer.
let turn = 0;
async function show(work) {
  const mine = ++turn;
  byId("get").setAttribute("aria-busy", "true");
  try {
    const draw = await work();
    if (mine !== turn) return;
    byId("problem").hidden = true;
    draw();
    tellHow();
    byId("empty").hidden = true;
    byId("result").hidden = false;
  } catch (error) {
    if (mine !== turn) return;
    byId("problem").textContent = error.message;
    byId("problem").hidden = false;
    byId("empty").hidden = true;
    byId("result").hidden = true;
  }
  byId("get").setAttribute("aria-busy", "false");
  byId("bench").dataset.drawn = String(mine);
}

// A slider says its value beside its name, and calls when it moves.
function slider(id, words, moved) {
  const input = byId(id), now = byId(id + "-now");
  if (!input) return;
  const tell = () => { now.textContent = words(Number(input.value)); input.setAttribute("aria-valuetext", now.textContent); };
  input.addEventListener("input", () => { tell(); moved(); });
  tell();
}
const valueOf = (id) => byId(id).value;
const ofAll = (value) => (value === 0 ? say("mean-of-all") : String(value));
const layerOf = (value) => say("of", { number: value, count: settings.layers });
const wholePercent = (value) => say("percent", { number: value });

byId("api").textContent = byId("api").textContent.replaceAll("ADDRESS/v1", new URL("v1", location.href.split("#")[0]));
