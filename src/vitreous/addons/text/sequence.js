const examples = JSON.parse(document.getElementById("examples").textContent);
const phrases = JSON.parse(document.getElementById("phrases").textContent);
const state = { example: 0, kind: "cross", layer: 0, head: -1, row: -1 };
state.layer = examples[0].maps.cross.length - 1;
Object.assign(state, sharpest(examples[0].maps.cross[state.layer]));
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, key) => values[key]);
const SVG = "http://www.w3.org/2000/svg";

// The head of a layer whose rows have the largest weights, and its row with the largest: what the page opens with.
function sharpest(layer) {
  const peaks = layer.map((rows) => rows.map((row) => Math.max(...row)));
  const means = peaks.map((each) => each.reduce((sum, peak) => sum + peak, 0) / each.length);
  const head = means.indexOf(Math.max(...means));
  return { head, row: peaks[head].indexOf(Math.max(...peaks[head])) };
}

function make(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function current() {
  const example = examples[state.example], layers = example.maps[state.kind];
  const layer = layers[Math.min(state.layer, layers.length - 1)];
  const rows = state.kind === "encoder" ? example.read : example.written.slice(1);
  const columns = state.kind === "decoder" ? example.written.slice(0, -1) : example.read;
  const mean = (i, j) => layer.reduce((sum, head) => sum + head[i][j], 0) / layer.length;
  const weight = (i, j) => (state.head < 0 ? mean(i, j) : layer[state.head][i][j]);
  return { example, layers, layer, rows, columns, weight };
}

function choices(name, labels, chosen, choose) {
  const group = document.createElement("fieldset"), legend = document.createElement("legend");
  legend.textContent = name;
  group.appendChild(legend);
  labels.forEach(([value, label]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.setAttribute("aria-pressed", value === chosen);
    button.onclick = () => { choose(value); steps.stop(); state.row = -1; draw(); };
    group.appendChild(button);
  });
  return group;
}

function drawControls({ layers, layer }) {
  const numbered = (count) => [...Array(count).keys()].map((i) => [i, String(i + 1)]);
  const controls = document.getElementById("controls");
  controls.replaceChildren();
  if (examples.length > 1)
    controls.append(choices(phrases.text, numbered(examples.length), state.example, (v) => { state.example = v; }));
  const kinds = ["encoder", "decoder", "cross"].map((kind) => [kind, phrases[kind]]);
  controls.append(
    choices(phrases.attention, kinds, state.kind, (v) => { state.kind = v; }),
    choices(phrases.layer, numbered(layers.length), Math.min(state.layer, layers.length - 1), (v) => { state.layer = v; }),
    choices(phrases.head, [[-1, phrases.mean], ...numbered(layer.length)], state.head, (v) => { state.head = v; }),
  );
}

function word(parent, x, y, text, anchor, row) {
  const node = make("text", { x, y, "text-anchor": anchor, class: "word" }, parent, text);
  if (row >= 0) {
    node.onmouseenter = () => { state.row = row; drawViews(current()); };
    if (state.row >= 0 && state.row !== row) node.classList.add("dim");
  }
  return node;
}

function drawLines({ rows, columns, weight }) {
  const step = 24, left = 130, right = 300, height = Math.max(rows.length, columns.length) * step + 8;
  const svg = make("svg", { width: 430, height, role: "img", "aria-label": phrases["as-lines"] }, fresh("lines"));
  rows.forEach((_, i) => {
    if (state.row >= 0 && state.row !== i) return;
    columns.forEach((_, j) => {
      const w = weight(i, j);
      if (w < 0.02) return;
      const at = { x1: left + 8, y1: i * step + 14, x2: right - 8, y2: j * step + 14 };
      make("line", { ...at, "stroke-width": 0.5 + 4 * w, "stroke-opacity": 0.15 + 0.85 * w }, svg);
    });
  });
  rows.forEach((text, i) => word(svg, left, i * step + 18, text, "end", i));
  columns.forEach((text, j) => word(svg, right, j * step + 18, text, "start", -1));
  svg.onmouseleave = () => { state.row = -1; drawViews(current()); };
}

function drawMatrix({ rows, columns, weight }) {
  const left = 130, top = 100, room = document.getElementById("matrix").clientWidth - left - 70;
  const cell = Math.max(12, Math.min(22, Math.floor(room / columns.length)));
  const size = { width: left + columns.length * cell + 70, height: top + rows.length * cell + 8 };
  const svg = make("svg", { ...size, role: "img", "aria-label": phrases["as-matrix"] }, fresh("matrix"));
  columns.forEach((text, j) => {
    const x = left + j * cell + 0.7 * cell;
    make("text", { x, y: top - 8, transform: `rotate(-50 ${x} ${top - 8})` }, svg, text);
  });
  rows.forEach((text, i) => {
    word(svg, left - 8, top + i * cell + 0.7 * cell, text, "end", i);
    columns.forEach((_, j) => {
      const at = { x: left + j * cell, y: top + i * cell, width: cell - 1, height: cell - 1 };
      const box = make("rect", { ...at, class: "cell", "fill-opacity": weight(i, j) }, svg);
      make("title", {}, box, `${rows[i]} → ${columns[j]}: ${(100 * weight(i, j)).toFixed(1)}%`);
    });
  });
  const frame = { x: left, y: top, width: columns.length * cell, height: rows.length * cell };
  make("rect", { ...frame, class: "frame", "pointer-events": "none" }, svg);
}

function fresh(id) {
  const box = document.getElementById(id);
  box.replaceChildren();
  return box;
}

function drawViews(now) {
  drawLines(now);
  drawMatrix(now);
  const values = { number: state.row + 1, count: now.rows.length, token: now.rows[state.row] };
  document.getElementById("step").textContent = state.row < 0 ? "" : fill(phrases.step, values);
}

function draw() {
  const now = current();
  drawControls(now);
  const pair = document.getElementById("pair"), arrow = document.createElement("span");
  arrow.textContent = " → ";
  pair.replaceChildren(now.example.source, arrow, now.example.text);
  drawViews(now);
}

for (const id of ["lines", "matrix"]) {  // the rows by keyboard, as by the pointer
  document.getElementById(id).addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") { steps.stop(); state.row = -1; drawViews(current()); }
    if (!by) return;
    event.preventDefault();
    steps.move(by);
  });
}
const steps = stepper(document.getElementById("steps"), {
  count: () => current().rows.length, place: () => state.row, words: phrases,
  go: (row) => { state.row = row; drawViews(current()); },
});
draw();
