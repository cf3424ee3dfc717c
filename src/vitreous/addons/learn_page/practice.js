// --- Training in the page: from random weights to a model that reads digits, in a worker. ----------------------

const practice = { links: null, steps: 0, losses: [], heldOut: [], running: false, millis: 0, own: [], onlyOwn: false, tensors: null };

// A worker that trains; where there are none (some browsers, for files), the page trains between its frames.
function startTraining() {
  const { config } = DATA,
    plain = { ...config, position: { kind: "learned", where: "stem" }, stem: { kind: "patch" } };
  const settings = {
    config: plain,
    tensors: freshTensors(plain, 1 + Math.floor(Math.random() * 1e6)),
    ...DATA.practice,
    factor: DATA.factor[0],
    shift: DATA.shift[0],
    total: Number(byId("practice-total")?.value ?? 600),
  };
  const hear = (news) => practice.links === links && hearTraining(news);
  let links = null;
  try {
    const listen = "let practice; onmessage = ({ data }) => data.settings ? (practice = new Practice(data.settings, (news) => postMessage(news))) : practice.hear(data);";
    const file = new Blob([byId("engine").textContent, listen], { type: "text/javascript" }),
      worker = new Worker(URL.createObjectURL(file));
    worker.onmessage = ({ data }) => hear(data);
    worker.postMessage({ settings });
    links = { send: (message) => worker.postMessage(message), stop: () => worker.terminate() };
  } catch {
    const here = new Practice(settings, (news) => hear(news));
    links = { send: (message) => here.hear(message), stop: () => here.run(false) };
  }
  practice.links?.stop();
  Object.assign(practice, { links, steps: 0, losses: [], heldOut: [], millis: 0, running: false, tensors: settings.tensors });
  links.send({ own: practice.own, onlyOwn: practice.onlyOwn });
  showTraining();
}

// The model in training is the one that the whole page shows.
function showTraining() {
  Object.assign(state, { preset: "training", own: null });
  chooseModel();
  compute();
  update({});
}

function hearTraining({ steps, found, millis, heldOut, tensors, done }) {
  practice.steps = steps;
  practice.millis = practice.millis ? 0.7 * practice.millis + 0.3 * millis : millis;
  practice.tensors = tensors;
  practice.losses.push(...found.map((each) => each.loss));
  if (heldOut !== undefined) practice.heldOut.push([steps, heldOut]);
  if (done) practice.running = false;
  if (state.preset === "training") showTraining();
  else drawTraining(context());
}

function runTraining(running) {
  if (!practice.links || practice.steps >= Number(byId("practice-total").value)) startTraining();
  practice.running = running;
  practice.links.send({ running });
  if (state.preset !== "training") showTraining();
  else drawTraining(context());
}

// Add what is on the pad, with the label that the reader gives it.
function addOwn(label) {
  const letters = lettersOf(state.source);
  if (!letters) return;
  practice.own.push([letters, label]);
  practice.links?.send({ own: practice.own });
  drawTraining(context());
}

function buildTraining() {
  const w = words(),
    host = byId("training");
  if (host.dataset.spoken === state.language) return;
  host.dataset.spoken = state.language;
  const button = (id, text, onclick, kind = null) => element("button", { type: "button", id, class: kind, onclick }, text);
  const total = practice.total ?? 600;
  host.replaceChildren(
    element("h2", { id: "training-title" }, w.training_title),
    element("p", { class: "lead" }, filled(w.training_lead, { parameters: DATA.parameters.toLocaleString("en"), count: DATA.practice.train.labels.length.toLocaleString("en") })),
    div(
      "training-row",
      div(
        "training-controls",
        div(
          "row",
          button("practice-run", w.training_start, () => runTraining(!practice.running), "call"),
          button("practice-reset", w.training_reset, startTraining),
          element(
            "label",
            { class: "field" },
            element("span", {}, w.training_steps),
            element(
              "select",
              { id: "practice-total", onchange: (event) => (practice.total = Number(event.target.value)) },
              [150, 300, 600, 1500].map((each) => element("option", { value: each, selected: each === total }, String(each))),
            ),
          ),
        ),
        element("dl", { class: "readout", id: "practice-readout" }),
        div("own", element("span", { id: "own-label" }, w.training_own), div("own-labels", DATA.labels.map((label, k) => button(`own-${k}`, label, () => addOwn(k))))),
        element(
          "label",
          { class: "switch" },
          element("input", {
            type: "checkbox",
            id: "practice-only",
            checked: practice.onlyOwn,
            onchange: (event) => {
              practice.onlyOwn = event.target.checked;
              practice.links?.send({ onlyOwn: practice.onlyOwn });
            },
          }),
          element("span", {}, w.training_only_own),
        ),
      ),
      element("figure", { class: "tensor" }, element("figcaption", {}, element("b", {}, w.training_curves)), div("curves", element("div", { id: "practice-curves" }))),
      element("figure", { class: "tensor" }, element("figcaption", {}, element("b", {}, w.training_positions)), element("canvas", { id: "practice-positions", role: "img", "aria-label": w.training_positions })),
      element("figure", { class: "tensor" }, element("figcaption", {}, element("b", {}, w.training_attention)), element("canvas", { id: "practice-attention", role: "img", "aria-label": w.training_attention })),
    ),
  );
}

function drawTraining(c) {
  const host = byId("training");
  host.hidden = !state.practice;
  if (!state.practice) return;
  buildTraining();
  const w = c.words,
    loss = practice.losses.slice(-10).reduce((sum, each, _, all) => sum + each / all.length, 0),
    heldOut = practice.heldOut.at(-1)?.[1];
  const begun = practice.steps && practice.steps < Number(byId("practice-total").value);
  byId("practice-run").textContent = practice.running
    ? w.training_pause
    : begun
      ? w.training_continue
      : w.training_start;
  const rows = [
    [w.training_step, String(practice.steps)],
    [w.training_loss, practice.losses.length ? loss.toFixed(3) : "–"],
    [w.training_held_out, heldOut === undefined ? "–" : percent(heldOut)],
    [w.training_speed, practice.millis ? (1000 / practice.millis).toFixed(1) : "–"],
    [w.training_own_count, String(practice.own.length)],
  ];
  byId("practice-readout").replaceChildren(...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  byId("practice-curves").replaceChildren(curves(w));
  const tensors = practice.tensors ?? trainedModel.tensors;
  drawPositionTiles(byId("practice-positions"), tensors["position.rows"], c);
  if (trace?.layers[0]?.heads) drawAttentionTiles(byId("practice-attention"), c);
}

// The loss of each step, and the share of held-out digits that are right.
function curves(w) {
  const { losses, heldOut } = practice,
    total = Number(byId("practice-total").value),
    x = (step) => 30 + (260 * step) / total,
    y = (share) => 128 - 116 * share,
    space = "http://www.w3.org/2000/svg",
    svg = document.createElementNS(space, "svg");
  const most = Math.max(2.5, ...losses.slice(0, 5)),
    every = Math.max(1, Math.floor(losses.length / 200));
  const smooth = losses.map((_, i) => {
    const near = losses.slice(Math.max(0, i - 4), i + 1);
    return near.reduce((sum, each) => sum + each, 0) / near.length;
  });
  const path = (points) => (points.length ? `M${points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}` : "");
  const lossPath = path(smooth.map((each, i) => [x(i + 1), y(Math.min(1, each / most))]).filter((_, i) => i % every === 0 || i === smooth.length - 1)),
    rightPath = path([[x(0), y(0.1)], ...heldOut.map(([step, share]) => [x(step), y(share)])]);
  svg.setAttribute("viewBox", "0 0 300 160");
  svg.setAttribute("class", "plot-svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", w.training_curves);
  svg.innerHTML = `<path class="axis" d="M30 12V128H292"/><path class="line" d="${lossPath}"/><path class="line second" d="${heldOut.length ? rightPath : ""}"/>`;
  const label = (px, py, text, kind) => {
    const each = document.createElementNS(space, "text");
    each.setAttribute("x", px);
    each.setAttribute("y", py);
    each.setAttribute("class", `tick ${kind}`);
    each.textContent = text;
    svg.append(each);
  };
  label(34, 152, `— ${w.training_loss}`, "first");
  label(120, 152, `— ${w.training_held_out}`, "second");
  label(2, 20, "100%", "second");
  label(10, 132, "0", "");
  return svg;
}

// How similar the position of each patch is to every other: a small map for each, in the places of the patches.
function drawPositionTiles(canvas, table, c) {
  const [rows, columns] = c.grid,
    width = table.shape[1],
    colors = shadesOf("signed"),
    gap = 1,
    each = [rows + gap, columns + gap];
  Object.assign(canvas, { width: columns * each[1] - gap, height: rows * each[0] - gap });
  const pen = canvas.getContext("2d"),
    vectors = Array.from({ length: c.N }, (_, n) => table.data.subarray((n + 1) * width, (n + 2) * width)),
    sizes = vectors.map(normOf);
  for (let a = 0; a < c.N; a++) {
    for (let b = 0; b < c.N; b++) {
      const similar = vectors[a].reduce((sum, value, d) => sum + value * vectors[b][d], 0) / (sizes[a] * sizes[b] || 1);
      pen.fillStyle = `rgb(${colors[Math.round(100 + 100 * Math.max(-1, Math.min(1, similar)))]})`;
      pen.fillRect((a % columns) * each[1] + (b % columns), Math.floor(a / columns) * each[0] + Math.floor(b / columns), 1, 1);
    }
  }
}

// The attention of the class token: layers from top to bottom, heads from left to right; the darkest is three times even.
function drawAttentionTiles(canvas, c) {
  const [rows, columns] = c.grid,
    colors = shadesOf("weight");
  Object.assign(canvas, { width: c.K * (columns + 1) - 1, height: c.L * (rows + 1) - 1 });
  const pen = canvas.getContext("2d");
  trace.layers.forEach((layer, l) =>
    layer.heads.forEach((head, k) => {
      for (let n = 0; n < c.N; n++) {
        const share = Math.min(1, (row(head.weights, 0)[n + c.prefix] * c.T) / 3);
        pen.fillStyle = `rgb(${colors[Math.round(100 + 100 * share)]})`;
        pen.fillRect(k * (columns + 1) + (n % columns), l * (rows + 1) + Math.floor(n / columns), 1, 1);
      }
    }),
  );
}
