// --- The page: what is selected, what is computed, and what is drawn again. ------------------------------------

const byId = (id) => document.getElementById(id);
const DATA = JSON.parse(byId("data").textContent),
  WORDS = JSON.parse(byId("words").textContent);
const MOST_PRODUCTS = 1.2e9; // of an image, that a browser computes at once
const PRESETS = {
  textbook: {
    image_size: [32, 32],
    channels: 3,
    patch_size: [16, 16],
    width: 3,
    heads: 3,
    head_dim: 4,
    depth: 1,
    mlp_dim: 12,
  },
  cifar: {
    image_size: [32, 32],
    channels: 3,
    patch_size: [4, 4],
    width: 192,
    heads: 3,
    head_dim: null,
    depth: 12,
    mlp_dim: 768,
  },
  base: {
    image_size: [224, 224],
    channels: 3,
    patch_size: [16, 16],
    width: 768,
    heads: 12,
    head_dim: null,
    depth: 12,
    mlp_dim: 3072,
  },
};
const CHOICES = {
  patch: [1, 2, 4, 8, 14, 16, 32],
  width: [3, 16, 32, 48, 64, 96, 128, 192, 384, 768],
  heads: [1, 2, 3, 4, 6, 8, 12],
  depth: [1, 2, 3, 4, 6, 8, 12],
};

const trainedModel = modelOf(DATA);
const recorded = DATA.recorded?.map(({ index, numbers }) => {
  const tensors = unpacked(index, decoded(numbers, true)),
    count = tensors.lens.shape[0];
  return { ...tensors, lens: Array.from({ length: count }, (_, l) => row(tensors.lens, l)) };
});
const samples = DATA.samples.map((each) => sampleCanvas(each, DATA.config.image_size, DATA.config.channels));
// What people look at has more pixels than what the model sees.
function loadFineSamples() {
  for (const [i, { fine }] of DATA.samples.entries()) {
    if (!fine) continue;
    const image = new Image();
    image.onload = () => {
      samples[i].fine = image;
      if (state.source === samples[i]) update({});
    };
    image.src = `data:image/jpeg;base64,${fine}`;
  }
}

const state = {
  language: document.documentElement.lang,
  theme: "auto",
  preset: "trained",
  own: null,
  source: samples[0],
  sample: 0,
  layer: 0,
  head: 0,
  token: 0,
  other: 1,
  channel: 0,
  batchSize: 1e9,
  withoutPositions: false,
  shuffled: false,
  without: new Set(), // heads that are switched off, "layer.head"
  covered: new Set(), // places of patches that are hidden from the model
  covering: false, // whether touching a patch covers it
  kept: {},
  hidden: -1,
  depth: DATA.config.depth, // layers after which the answer is shown, from 0
  how: false, // whether the map of the model is shown
  place: "", // of the map, that is open over the screen
  step: 0, // of the story, from 1; 0: it is closed
  practice: false,
  chosenLanguage: false,
  scroll: null,
};
let model = trainedModel,
  trace = null,
  unchanged = null,
  millis = Infinity;
// A model of the sizes of the page's own: as it came, or in training here.
const trained = () => state.preset === "trained" || state.preset === "training";
// Whether that has learned anything, so that what it predicts is an answer.
const answers = () => (state.preset === "trained" && DATA.trained) || state.preset === "training";

function words() {
  return WORDS[state.language].words;
}

// A class in the language of the page: of a model that comes with the package, whose labels are English.
function named(label) {
  return (DATA.bundled && WORDS[state.language].labels?.[label]) || label;
}

function filled(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

// --- the model ---

// Configuration of a model of one's own: the parts that are not chosen are those of the paper.
function plainConfig(fields) {
  return {
    ...DATA.config,
    stem: { kind: "patch" },
    position: { kind: "learned", where: "stem" },
    class_token: true,
    registers: 0,
    edge: "refuse",
    extra_norms: [],
    pooling: { kind: "class" },
    final_norm: "tokens",
    qk_norm: "none",
    mlp: "gelu",
    layer_scale: null,
    representation_size: null,
    num_classes: DATA.labels.length,
    norm_eps: 1e-6,
    ...fields,
  };
}

// [stage, equation, shape, parameters, multiplications] of an EfficientNet-Lite, and of the projection of its cells.
function stagesOfNetwork(config, N) {
  const { stem, width } = config,
    half = (side, stride) => side.map((each) => Math.ceil(each / stride)),
    stages = [];
  let size = half(config.image_size, 2),
    wide = 32,
    parameters = 9 * config.channels * wide + wide,
    products = 9 * config.channels * wide * size[0] * size[1];
  stem.shapes.forEach(([kernel, stride, expansion, out], i) => {
    const hidden = wide * expansion,
      before = size[0] * size[1];
    size = half(size, stride);
    const after = size[0] * size[1],
      expanded = expansion > 1 ? wide * hidden : 0;
    parameters += expanded + (expansion > 1 ? hidden : 0) + (kernel ** 2 + 1) * hidden + hidden * out + out;
    products += before * expanded + after * hidden * (kernel ** 2 + out);
    wide = out;
    if (stem.shapes[i + 1]?.[1] === 1) return;
    stages.push([filled(words().map_of_stem, { high: size[0], wide: size[1] }), `h_${stages.length + 1}`, `${size.join(" × ")} × ${out}`, parameters, products]);
    parameters = products = 0;
  });
  const last = trainedModel.network.last,
    source = trainedModel.projection?.shape[1] ?? width;
  if (last) stages.push(["1 × 1", "h", `${size.join(" × ")} × ${last.outputs}`, (wide + 1) * last.outputs, size[0] * size[1] * wide * last.outputs]);
  if (trainedModel.projection) stages.push([words().embedded, "h E", `${N} × ${width}`, source * width + width, N * source * width]);
  return stages;
}

// [stage, equation, shape, parameters, multiplications] of a model.
function stagesOf(config) {
  const [p, q] = config.patch_size,
    w = words(),
    [rows, columns] = gridOf(config);
  const N = rows * columns,
    D = config.width,
    T = N + Number(config.class_token) + config.registers,
    inner = config.heads * (config.head_dim ?? D / config.heads),
    M = config.mlp_dim,
    L = config.depth;
  const flat = p * q * config.channels,
    stages = [[w.image, "x", [...config.image_size, config.channels].join(" × "), 0, 0]];
  if (config.stem.kind === "convolution") {
    let wide = config.channels,
      [h, v] = config.image_size;
    config.stem.widths.forEach((out, i) => {
      [h, v] = [h, v].map((side) => Math.ceil(side / config.stem.strides[i]));
      stages.push([
        filled(w.convolution, { number: i + 1 }),
        `h_${i + 1}`,
        `${h} × ${v} × ${out}`,
        9 * wide * out + 2 * out,
        9 * wide * out * h * v,
      ]);
      wide = out;
    });
    stages.push([w.embedded, "h E", `${N} × ${D}`, wide * D + D, N * wide * D]);
  } else if (config.stem.kind === "efficientnet-lite") {
    stages.push(...stagesOfNetwork(config, N));
  } else {
    stages.push(
      [w.all_patches, "x_p", `${N} × ${flat}`, 0, 0],
      [w.embedded, "x_p E", `${N} × ${D}`, flat * D + D, N * flat * D],
    );
  }
  const rowsOfTable = T - config.registers,
    table = config.position.kind.startsWith("learned") ? rowsOfTable * D : 0;
  stages.push([w.stage_tokens, "z_0", `${T} × ${D}`, (T - N) * D + table, 0]);
  stages.push(
    [`${L} × LayerNorm`, "LN(z)", `${T} × ${D}`, L * 2 * D, 0],
    [
      `${L} × q, k, v`,
      "[ q , k , v ]",
      `${T} × ${3 * inner}`,
      L * (D * 3 * inner + 3 * inner),
      L * T * D * 3 * inner,
    ],
  );
  stages.push(
    [`${L} × ${w.attention}`, "A", `${config.heads} × ${T} × ${T}`, 0, L * 2 * T * T * inner],
    [`${L} × MSA`, "MSA(z)", `${T} × ${D}`, L * (inner * D + D), L * T * inner * D],
  );
  stages.push(
    [`${L} × LayerNorm`, "LN(z'_ℓ)", `${T} × ${D}`, L * 2 * D, 0],
    [`${L} × MLP`, "MLP", `${T} × ${M} → ${T} × ${D}`, L * (2 * D * M + M + D), L * 2 * T * D * M],
  );
  stages.push(
    ["LayerNorm", "y", `${D}`, config.final_norm === "none" ? 0 : 2 * D, 0],
    [
      w.head_layer,
      "",
      `${config.num_classes}`,
      (config.representation_size ?? D) * config.num_classes + config.num_classes,
      D * config.num_classes,
    ],
  );
  return stages;
}

function productsOf(config) {
  return stagesOf(config).reduce((sum, stage) => sum + stage[4], 0);
}

const modelOfPage = () =>
  state.preset === "training" ? new ViT(DATA.config, practice.tensors) : trainedModel;

function chooseModel() {
  const config = trained() ? DATA.config : plainConfig(state.own);
  const shapesOnly = !trained() && productsOf(config) > MOST_PRODUCTS;
  model = trained() ? modelOfPage() : new ViT(config, shapesOnly ? null : freshTensors(config));
  model.shapesOnly = shapesOnly;
  millis = Infinity;
  if (state.preset !== "training") state.without = new Set();
  state.depth = Math.min(state.depth, config.depth);
  for (const [name, most] of [
    ["layer", config.depth],
    ["head", config.heads],
    ["token", model.length],
    ["other", model.length],
    ["channel", config.width],
  ])
    state[name] = Math.min(state[name], most - 1);
}

// Normalized as the model's preprocessing says.
function normalized(image) {
  const plane = image.data.length / image.shape[0],
    [factor, shift] = trained() ? [DATA.factor, DATA.shift] : [[2 / 255], [-1]],
    out = zeros(...image.shape);
  for (let c = 0; c < image.shape[0]; c++) {
    const by = factor[c] ?? factor[0],
      plus = shift[c] ?? shift[0];
    for (let i = c * plane; i < (c + 1) * plane; i++) out.data[i] = Math.round(255 * image.data[i]) * by + plus;
  }
  return out;
}

// A permutation of the patches, always the same.
function orderOf(count) {
  const uniform = generator(7),
    order = [...Array(count).keys()];
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(uniform() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

function changesNow() {
  return {
    withoutPositions: state.withoutPositions,
    order: state.shuffled ? orderOf(model.count) : null,
    covered: state.covered,
    without: state.without,
  };
}

function run(canvas, changes, sample = state.sample) {
  const record = trained() && recorded ? recorded[sample] : null,
    before = performance.now(),
    found = model.run(normalized(pixelsOf(canvas, model.config)), changes, record);
  millis = Math.min(millis, performance.now() - before);
  return found;
}

// The largest change of a probability that shuffling makes to the model without positions.
function changeByShuffling() {
  const ordered = probabilities(run(state.source, { ...changesNow(), order: null }).logits);
  return probabilities(trace.logits).reduce((most, p, k) => Math.max(most, Math.abs(p - ordered[k])), 0);
}

// known: what is already computed of the shown image, if nothing is changed in it and in the model.
function compute(known = null) {
  if (model.shapesOnly) {
    trace = unchanged = null;
    return;
  }
  const changed = state.withoutPositions || state.shuffled || state.without.size || state.covered.size;
  trace = (!changed && known) || run(state.source, changesNow());
  unchanged = changed ? run(state.source, {}) : null;
}

// --- what panels draw from ---

function context() {
  const { config } = model,
    w = words(),
    [p, q] = config.patch_size,
    image = trace && pixelsOf(state.source, config);
  const order = state.shuffled ? orderOf(model.count) : null;
  const shuffled = image && shuffledPatches(wholePatches(image, config), config.patch_size, order),
    whole = image && coveredPatches(shuffled, config.patch_size, state.covered, DATA.resize.mean);
  const detailed = trace ? [...trace.layers.keys()].filter((l) => trace.layers[l].heads) : [];
  if (trace && !detailed.includes(state.layer))
    state.layer = detailed.reduce(
      (best, l) => (Math.abs(l - state.layer) < Math.abs(best - state.layer) ? l : best),
      detailed[0],
    );
  const c = {
    ...state,
    words: w,
    config,
    model,
    trace,
    prefix: model.prefix,
    grid: [model.rows, model.columns],
    image: whole,
    order,
    // The image as it came, where it has more pixels than the model sees.
    fine: trained() ? state.source.fine : undefined,
    N: model.count,
    T: model.length,
    D: config.width,
    K: config.heads,
    Dh: model.headDim,
    L: config.depth,
    M: config.mlp_dim,
    P: p,
    Q: q,
    C: config.channels,
    H: config.image_size[0],
    W: config.image_size[1],
    flatWidth: p * q * config.channels,
    changes: changesNow(),
    detailed,
    multilabel: DATA.multilabel,
    stemWidth: model.projection?.shape[1] ?? (config.stem.kind === "patch" ? p * q * config.channels : config.width),
    labels: DATA.labels.map(named),
    featureWidth: config.representation_size ?? (config.pooling.kind === "class+mean" ? 2 : 1) * config.width,
    addedPositions: config.position.kind.startsWith("learned") || config.position.kind === "sincos-2d",
    layerTrace: trace?.layers[state.layer],
    headTrace: trace?.layers[state.layer].heads?.[state.head],
    select: update,
    stages: () => stagesOf(config),
    probabilities,
    best,
    mapSize: (i) =>
      config.image_size.map((side) =>
        config.stem.strides.slice(0, i + 1).reduce((size, stride) => Math.ceil(size / stride), side),
      ),
  };
  c.values = {
    ...c,
    layer: state.layer + 1,
    head: state.head + 1,
    classes: DATA.labels.length,
    channels: filled(config.channels === 1 ? w.gray_values : w.color_values, { C: config.channels }),
    function: DATA.multilabel ? w.sigmoid : w.softmax,
    patches: `${model.rows} × ${model.columns}`,
  };
  c.t = (key, values = {}) => filled(w[key] ?? key, { ...c.values, ...values });
  c.tokenName = (t) => {
    if (t < model.prefix)
      return t === 0 && config.class_token
        ? "[class]"
        : c.t("register", { number: t + 1 - Number(config.class_token) });
    return c.t("patch", { number: t - model.prefix + 1 });
  };
  c.patchPixels = (n) => {
    const top = Math.floor(n / model.columns) * p,
      left = (n % model.columns) * q,
      out = zeros(config.channels, p, q),
      [, height, width] = whole.shape;
    for (let i = 0; i < out.data.length; i++) {
      const channel = Math.floor(i / (p * q)),
        y = top + (Math.floor(i / q) % p),
        x = left + (i % q);
      out.data[i] = whole.data[(channel * height + y) * width + x];
    }
    return out;
  };
  c.zeroedHeads = () => {
    const heads = [...state.without]
      .filter((each) => each.startsWith(`${state.layer}.`))
      .map((each) => Number(each.split(".")[1]) + 1);
    return heads.length ? c.t("zeroed", { heads: heads.join(", ") }) : null;
  };
  c.batch = () => {
    const most = Math.max(2, Math.min(samples.length, Math.floor(800 / millis)));
    const others = [...samples.keys()].filter((i) => i !== state.sample).slice(0, most - 1);
    const settings = JSON.stringify([
      state.preset,
      state.own,
      state.withoutPositions,
      state.shuffled,
      [...state.without],
      [...state.covered],
    ]);
    if (state.kept.model !== settings) state.kept = { model: settings };
    for (const i of others) {
      state.kept[i] ??= run(samples[i], changesNow(), i).layers.map((layer) => layer.input);
    }
    return [c.layerTrace.input, ...others.map((i) => state.kept[i][state.layer])];
  };
  return c;
}

function probabilities(logits) {
  return DATA.multilabel ? Float32Array.from(logits, (value) => 1 / (1 + Math.exp(-value))) : softmax(logits);
}

function best(logits) {
  return [...logits.keys()].sort((a, b) => logits[b] - logits[a]);
}

// --- drawing ---

function draw() {
  const c = context();
  drawStage(c);
  drawStory(c);
  drawTraining(c);
  drawWords(c.words);
  byId("how").hidden = !state.how;
  if (state.how) drawMap(c);
  drawPlace(c);
  if (state.scroll === "story") {
    byId("story-on").focus({ preventScroll: true });
    byId("story").scrollIntoView({ block: "nearest" }); // where it is seen whole, nothing moves
  } else if (state.scroll) byId(state.scroll).scrollIntoView();
  state.scroll = null;
  writeAddress();
}

// What stands on the page in every state.
function drawWords(w) {
  for (const each of document.querySelectorAll("[data-t]")) each.textContent = w[each.dataset.t];
  document.title = w[recorded ? "page_title_recorded" : pad.enabled ? "page_title" : "page_title_image"];
  byId("theme").textContent = w[`theme_${state.theme}`];
  byId("theme").setAttribute("aria-label", `${w.theme}: ${w[`theme_${state.theme}`]}`);
  byId("languages").setAttribute("role", "group");
  byId("languages").setAttribute("aria-label", w.languages);
  for (const button of document.querySelectorAll("[data-language]"))
    button.setAttribute("aria-pressed", String(button.dataset.language === state.language));
}

function parametersOf(c) {
  return trained() ? DATA.parameters : c.stages().reduce((sum, stage) => sum + stage[3], 0);
}

// The answer in a word.
function headline(c, p, top) {
  if (!answers()) return c.words.untrained;
  return `${c.labels[top]} · ${percent(p[top])}`;
}

function drawModels(c) {
  const w = c.words,
    focus = document.activeElement?.id,
    own = state.own,
    select = byId("model");
  const options = {
    trained: DATA.trained ? w.model_trained : DATA.name,
    ...(practice.tensors ? { training: w.model_training } : {}),
    textbook: w.model_textbook,
    cifar: w.model_cifar,
    base: w.model_base,
    ...(state.preset === "own" ? { own: w.model_own } : {}),
  };
  select.replaceChildren(
    ...Object.entries(options).map(([value, text]) =>
      element("option", { value, selected: value === state.preset }, text),
    ),
  );
  const current = own ?? { ...DATA.config, patch_size: DATA.config.patch_size };
  const field = (name, label, value) => {
    const values = [...new Set([...CHOICES[name], value])]
      .sort((a, b) => a - b)
      .filter((each) => fits(current, name, each));
    return element(
      "label",
      { class: "field" },
      element("span", {}, label),
      element(
        "select",
        { id: `own-${name}`, onchange: (event) => chooseField(name, Number(event.target.value)) },
        values.map((each) => element("option", { value: each, selected: each === value }, String(each))),
      ),
    );
  };
  byId("fields").replaceChildren(
    field("patch", "P", current.patch_size[0]),
    field("width", "D", current.width),
    field("heads", w.heads_field, current.heads),
    field("depth", w.depth_field, current.depth),
  );
  byId("about").textContent = c.t(trained() ? "about_trained" : "about_own", {
    parameters: parametersOf(c).toLocaleString("en"),
  });
  if (state.preset === "trained" && DATA.temperature !== 1)
    byId("about").textContent += ` ${c.t("calibrated", { temperature: DATA.temperature.toPrecision(2) })}`;
  if (focus) byId(focus)?.focus({ preventScroll: true });
}

// Whether a model with another value of a field is one that can be made.
function fits(fields, name, value) {
  const [side, wide] = fields.image_size;
  if (name === "patch")
    return side % value === 0 && wide % value === 0 && (side / value) * (wide / value) <= 1024;
  if (name === "heads")
    return fields.head_dim && fields !== DATA.config && state.preset === "textbook"
      ? true
      : fields.width % value === 0;
  if (name === "width")
    return value % fields.heads === 0 || Boolean(fields.head_dim && state.preset === "textbook");
  return true;
}

function chooseField(name, value) {
  const { image_size, channels, patch_size, width, heads, head_dim, depth, mlp_dim } = state.own ?? {
    ...DATA.config,
    head_dim: null,
  };
  const own = { image_size, channels, patch_size, width, heads, head_dim, depth, mlp_dim };
  if (name === "patch") own.patch_size = [value, value];
  else own[name] = value;
  if (name === "width") own.mlp_dim = Math.round((value * mlp_dim) / width);
  if (own.head_dim === null && own.width % own.heads) own.heads = 1;
  choosePreset("own", own);
}

function choosePreset(preset, own = PRESETS[preset] ?? null) {
  Object.assign(state, { preset, own });
  chooseModel();
  chooseImage();
  compute();
  draw();
}

// A gray sample becomes a color image for a model of one's own that takes colors, and comes back after it.
function chooseImage() {
  const wanted = !trained() && model.config.channels === 3 && DATA.config.channels === 1;
  if (wanted && state.sample >= 0)
    Object.assign(state, { source: landscape(), hidden: state.sample, sample: -1 });
  else if (!wanted && state.hidden >= 0)
    Object.assign(state, { source: samples[state.hidden], sample: state.hidden, hidden: -1 });
  else return;
  pad.show(state.source);
}

// --- what the reader does ---

let waiting = false;

// Change what is selected, and draw again at the next frame.
function update(changes) {
  Object.assign(state, changes);
  if (waiting) return;
  waiting = true;
  drawSoon();
}

// Buttons are drawn again with the rest, and one that is replaced while it is pressed loses its click.
function drawSoon() {
  requestAnimationFrame(() => {
    if (pressed) return drawSoon();
    waiting = false;
    draw();
  });
}

// Whether the pointer, or the space bar, is down on what is clicked when it comes up. A finger that covers patches or
// draws a digit sees what it does.
let pressed = false;
const CLICKED = "button, a, label.switch, canvas.pick:not(.covering)";
const press = (event) => {
  const clicks = event.type === "keydown" ? event.key === " " : event.button === 0; // others open a menu
  pressed = clicks && event.target.closest?.(CLICKED) != null;
};
const release = () => {
  pressed = false;
};
for (const name of ["pointerdown", "keydown"]) addEventListener(name, press, true);
for (const name of ["pointerup", "pointercancel", "keyup"]) addEventListener(name, release, true);
addEventListener("blur", release); // of the window alone: a press takes the focus from what had it

// Change what is computed.
function change(changes) {
  Object.assign(state, changes);
  compute();
  update({});
}

function padEnabled() {
  return DATA.config.channels === 1 && !recorded;
}

function useCanvas(canvas, sample = -1) {
  change({ source: canvas, sample, hidden: -1 });
}

function useSample(i) {
  if (camera.stream) stopCamera();
  state.covered = new Set();
  pad.show(samples[i]);
  useCanvas(samples[i], i);
}

async function useFile(file) {
  if (!file?.type.startsWith("image/") || (trained() && recorded)) return;
  if (camera.stream) stopCamera();
  const means = samples
    .map((each) => pixelsOf(each, DATA.config).data)
    .map((data) => data.reduce((sum, value) => sum + value, 0) / data.length);
  const dark =
    DATA.config.channels === 1 && means.reduce((sum, value) => sum + value, 0) / means.length < 0.4;
  const bitmap = await createImageBitmap(file),
    canvas = fittedCanvas(bitmap, DATA.config.image_size, DATA.resize, dark);
  if (DATA.config.channels === 3) canvas.fine = fittedCanvas(bitmap, fineSize(), DATA.resize, false);
  pad.show(canvas);
  useCanvas(canvas);
}

const pad = new Pad(byId("stage-pad"), (canvas) => useCanvas(canvas));
pad.size = DATA.config.image_size;
pad.enabled = padEnabled();
byId("stage-pad").classList.toggle("still", !pad.enabled);

function sampleButtons() {
  return samples.map((canvas, i) => {
    const copy = canvasOf(canvas.width, canvas.height, (pen) => pen.drawImage(canvas, 0, 0));
    if (DATA.samples[i].fine) copy.style.imageRendering = "auto";
    return element("button", { type: "button", onclick: () => useSample(i) }, copy);
  });
}

byId("stage-clear").hidden = !pad.enabled;
byId("stage-open").hidden = Boolean(recorded);
byId("stage-clear").onclick = () => {
  pad.clear();
  useCanvas(pad.reduced());
};
byId("stage-file").onchange = (event) => useFile(event.target.files[0]);
byId("stage-samples").append(...sampleButtons());
byId("depth").oninput = (event) => {
  const depth = Number(event.target.value);
  update({ depth, layer: Math.max(0, depth - 1) });
};
byId("sight-class").onclick = () => update({ token: 0 });
byId("search").onclick = search;
listenToStory();
listenToPlaces();
byId("camera").onclick = () => (camera.stream ? stopCamera() : startCamera());
byId("how-open").onclick = () => update({ how: !state.how, scroll: state.how ? null : "how" });
byId("train-open").onclick = () => update({ practice: !state.practice, scroll: state.practice ? null : "training" });
byId("share").onclick = share;
addEventListener("resize", () => draw());
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  useFile(event.dataTransfer.files[0]);
});
byId("model").onchange = (event) => choosePreset(event.target.value);
for (const button of document.querySelectorAll("[data-language]")) {
  button.onclick = () => {
    Object.assign(state, { language: button.dataset.language, chosenLanguage: true });
    document.documentElement.lang = state.language;
    draw();
  };
}
byId("theme").onclick = () => {
  state.theme = { auto: "light", light: "dark", dark: "auto" }[state.theme];
  document.documentElement.dataset.theme = state.theme;
  draw();
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
// What belongs together is lit together: in the equation, the shapes, the code and the drawing of a panel.
function light(event) {
  const at = event.target.closest?.("[data-k]"),
    panel = at?.closest(".panel");
  for (const each of document.querySelectorAll(".lit")) each.classList.remove("lit");
  if (panel)
    for (const each of panel.querySelectorAll(`[data-k="${at.dataset.k}"]`)) each.classList.add("lit");
}
document.addEventListener("pointerover", light);
document.addEventListener("focusin", light);

// The language of the browser, where the page has it and its maker chose none.
function languageOfBrowser() {
  const asked = navigator.languages ?? [navigator.language ?? ""];
  return asked.map((each) => each.slice(0, 2)).find((each) => WORDS[each]) ?? state.language;
}

// The fourth digit or the first image, or the first whose label the model answers; and what is computed of it.
function firstSample() {
  const fourth = DATA.config.channels === 1 ? Math.min(3, samples.length - 1) : 0;
  if (!trained() || model.shapesOnly) return [fourth, null];
  let first = null;
  for (const i of new Set([fourth, ...samples.keys()])) {
    const found = run(samples[i], {}, i);
    if (DATA.labels[best(found.logits)[0]] === DATA.samples[i].label) return [i, found];
    first ??= found;
  }
  return [fourth, first];
}

// Show what the address asks for; without that, a sample.
function open() {
  if ("ask" in document.documentElement.dataset && !state.chosenLanguage) state.language = languageOfBrowser();
  const [sample, known] = firstSample();
  state.sample = sample;
  readAddress();
  document.documentElement.lang = state.language;
  pad.show(state.source);
  compute(state.source === samples[sample] ? known : null);
  if (!/\bt=/.test(location.hash)) state.token = tokenThatCounts();
  // Lines and bars grow once, when the page opens (style.css).
  document.body.classList.add("opening");
  setTimeout(() => document.body.classList.remove("opening"), 2000);
  draw();
}

// The class token, or the patch that adds most to the answer where the mean of the patches is read.
function tokenThatCounts() {
  if (recorded && trained()) return DATA.recorded[state.sample].counts;
  const weights = model.tensors?.["head.weight"];
  if (model.prefix || !trace?.normed || weights.shape[1] !== model.config.width) return 0;
  const wanted = row(weights, best(trace.logits)[0]),
    given = Array.from({ length: model.length }, (_, t) =>
      row(trace.normed, t).reduce((sum, value, d) => sum + value * wanted[d], 0),
    );
  return given.indexOf(Math.max(...given));
}

// The answer forms before the reader's eyes, layer by layer, until anything is touched.
function playLayers() {
  if (!DATA.bundled || still()) return;
  let depth = 0;
  const timer = setInterval(() => {
    if (depth > model.config.depth) return stop();
    update({ depth, layer: Math.max(0, depth - 1) });
    depth += 1;
  }, 420);
  const stop = () => {
    clearInterval(timer);
    for (const name of ["pointerdown", "keydown"]) removeEventListener(name, stopped, true);
  };
  const stopped = () => {
    stop();
    update({ depth: model.config.depth, layer: model.config.depth - 1 });
  };
  for (const name of ["pointerdown", "keydown"]) addEventListener(name, stopped, true);
}

chooseModel();
const asked = location.hash.length > 1;
open();
if (!asked) playLayers();
// After the first drawing.
requestAnimationFrame(() => setTimeout(loadFineSamples));
addEventListener("hashchange", () => location.hash !== addressNow() && open());
addEventListener("load", () => requestAnimationFrame(() => drawLines(context())));
