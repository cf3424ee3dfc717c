// --- A story in ten steps over the same screen: from the photograph to the answer. -----------------------------
//
// Each step has one sentence, a drawing that moves for a moment, the lesson that explains it, and the place that shows
// its tensors. All that is drawn is of the image on the screen and of the model in the page.

const STORY = [
  { id: "photograph", lesson: "00-what-a-network-learns", panel: "patches", ofStem: "network", spot: "stage-samples" },
  { id: "cut", lesson: "01-patches", lessonOfStem: "08-inductive-bias", panel: "patches", ofStem: "network" },
  { id: "rows", lesson: "02-patch-embedding", lessonOfStem: "08-inductive-bias", panel: "flatten", ofStem: "projection" },
  { id: "tokens", lesson: "03-class-token-and-positions", panel: "positions" },
  { id: "qkv", lesson: "05-self-attention", panel: "qkv" },
  { id: "lines", lesson: "05-self-attention", panel: "softmax" },
  { id: "heads", lesson: "05-self-attention", panel: "heads" },
  { id: "layers", lesson: "06-encoder-block", panel: "stream", spot: "guess-bars" },
  { id: "class", lesson: "11-reading-attention", panel: "lens" },
  { id: "bars", lesson: "07-whole-model", panel: "answer", spot: "guess-bars" },
];
const LOWEST = 230; // pixels of a drawing's height, at least
const FOLD = 8; // pixels between the last button and the fold
const MOVES = 2200; // milliseconds of a step's drawing
const STAYS = 3200; // that it is shown after that, where the story plays by itself
const story = { shown: "", frame: 0, playing: 0, parts: null, image: null, c: null };

// The story is that of the paper's models: a linear map of patches, or of the cells of a convolutional network, and a
// class token that the answer is read from. Of random weights its sentences are not true.
function canTell() {
  const { stem, class_token, pooling } = DATA.config;
  return (
    ["patch", "efficientnet-lite"].includes(stem.kind) && class_token && pooling.kind === "class" && !recorded && (DATA.trained || state.preset === "training")
  );
}

// The words of a step: where a network makes the tokens, some are others.
const spokenOf = (id) => (model.network && WORDS[state.language].story[`${id}_stem`]) || WORDS[state.language].story[id];

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function drawStory(c) {
  const on = state.step > 0 && trace && trained();
  byId("stage").classList.toggle("telling", Boolean(on));
  byId("story").hidden = !on;
  for (const each of document.querySelectorAll(".spot")) each.classList.remove("spot");
  if (!on) {
    cancelAnimationFrame(story.frame);
    Object.assign(story, { shown: "", frame: 0 });
    return play(false);
  }
  const { id, lesson, lessonOfStem, panel, ofStem, spot } = STORY[state.step - 1],
    w = c.words,
    spoken = spokenOf(id);
  byId("story-title").textContent = `${state.step} / ${STORY.length} · ${spoken.title}`;
  const text = c.t(spoken.text);
  if (byId("story-text").textContent !== text) byId("story-text").textContent = text;
  byId("story-canvas").setAttribute("aria-label", spoken.title);
  byId("story-back").textContent = "‹";
  byId("story-back").setAttribute("aria-label", w.story_back);
  byId("story-back").disabled = state.step === 1;
  byId("story-on").textContent = state.step === STORY.length ? w.story_end : w.story_on;
  byId("story-play").hidden = still();
  byId("story-play").textContent = w[story.playing ? "story_pause" : "story_play"];
  byId("story-play").setAttribute("aria-pressed", String(Boolean(story.playing)));
  const link = byId("story-lesson");
  link.textContent = w.story_lesson;
  link.href = `${DATA.site}/${state.language}/learn/${(model.network && lessonOfStem) || lesson}.html`;
  byId("story-panel").onclick = () => openPlace((model.network && ofStem) || panel, byId("story-canvas"), selectionOf(id));
  byId("story-dots").replaceChildren(
    ...STORY.map((each, i) =>
      element(
        "li",
        {},
        element("a", {
          href: `#step-${i + 1}`,
          "aria-label": `${i + 1}: ${spokenOf(each.id).title}`,
          "aria-current": i + 1 === state.step ? "step" : null,
        }),
      ),
    ),
  );
  if (spot) byId(spot).classList.add("spot");
  // The same step of the same image is drawn once; what else changes draws its last moment again.
  const fresh = story.shown !== id || (story.image !== state.source && !camera.stream);
  Object.assign(story, { c, shown: id, image: state.source, parts: null });
  if (!fresh || still()) return story.frame || moment(c, 1);
  cancelAnimationFrame(story.frame);
  const began = performance.now();
  const next = (now) => {
    const at = Math.min(1, Math.max(0, (now - began) / MOVES));
    moment(story.c, at);
    story.frame = at < 1 ? requestAnimationFrame(next) : 0;
  };
  moment(c, 0); // its height is known before the story is brought into view
  story.frame = requestAnimationFrame(next);
}

// What a step shows: the token that it follows, and the layer and the head where it has them.
function selectionOf(id) {
  story.parts ??= storyParts(story.c);
  const { followed, shown } = story.parts,
    token = ["class", "bars"].includes(id) ? 0 : followed + story.c.prefix;
  if (id === "qkv") return { token, layer: 0, head: 0 };
  return ["lines", "heads"].includes(id) ? { token, layer: shown.l, head: shown.k } : { token };
}

const goTo = (step) => update({ step: Math.max(1, Math.min(STORY.length, step)) });
const endStory = () => update({ step: 0 });
const goOn = () => (state.step === STORY.length ? endStory() : goTo(state.step + 1));

function play(on) {
  clearTimeout(story.playing);
  story.playing = on ? setTimeout(() => (state.step === STORY.length ? (play(false), update({})) : (goTo(state.step + 1), play(true))), MOVES + STAYS) : 0;
}

// --- drawing ---

const ease = (t) => t * t * (3 - 2 * t);
// How far a part has come that begins and ends within the step.
const part = (t, from, to) => ease(Math.max(0, Math.min(1, (t - from) / (to - from))));
const between = (a, b, t) => a + (b - a) * t;

// What a step draws from: the image, the matrices as images, the head and the token that lines are drawn of.
function storyParts(c) {
  const { layers, flat, tokens, z0 } = trace,
    first = layers[0],
    last = layers.at(-1);
  // The patch that the class token attends to most is the one that is followed.
  const fromClass = attentionOf(last, c.L - 1, 0).slice(c.prefix),
    followed = fromClass.indexOf(Math.max(...fromClass));
  // Of all heads the one whose strongest line from that patch is the strongest.
  let shown = { l: 0, k: 0, most: 0 };
  layers.forEach((layer, l) =>
    layer.heads.forEach((head, k) => {
      const weights = row(head.weights, followed + c.prefix).map((weight, t) => (t === followed + c.prefix ? 0 : weight)),
        most = Math.max(...weights);
      if (most > shown.most) shown = { l, k, most };
    }),
  );
  const pixels = pixelCanvas(c.image),
    positions = model.positions("position");
  return {
    pixels,
    fine: c.order || c.covered.size ? pixels : (c.fine ?? pixels),
    followed,
    shown,
    fromClass,
    flat: numbersImage(trace.cells ?? flat),
    maps: trace.maps?.map(colorsOf),
    tokens: numbersImage(tokens, scaleOf(z0)),
    z0: numbersImage(z0),
    positions: positions && numbersImage(positions),
    normed: numbersImage(first.normed),
    qkv: ["query", "key", "value"].map((name) => numbersImage(first.heads[0][name])),
    features: numbersImage(trace.features),
  };
}

// How high a drawing can be so that the words and the buttons under it end above the fold. A story that begins too low
// for that is scrolled to, so that it begins under the header.
function roomForDrawing(canvas) {
  const host = byId("story"),
    others = host.offsetHeight - canvas.offsetHeight + FOLD,
    start = host.getBoundingClientRect().top + scrollY,
    room = innerHeight - start - others;
  return room < LOWEST ? Math.max(LOWEST, innerHeight - parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) - others) : room;
}

// One moment of the step, from 0 to 1.
function moment(c, t) {
  const canvas = byId("story-canvas"),
    wide = Math.min(460, canvas.parentElement.clientWidth),
    high = Math.round(Math.min(wide * 0.86, roomForDrawing(canvas))),
    style = getComputedStyle(document.documentElement);
  story.parts ??= storyParts(c);
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${high}px`;
  canvas.width = 2 * wide;
  canvas.height = 2 * high;
  const pen = canvas.getContext("2d");
  pen.setTransform(2, 0, 0, 2, 0, 0);
  pen.font = `600 ${wide < 400 ? 12 : 13}px ${style.getPropertyValue("--sans")}`;
  pen.textAlign = "center";
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  STEPS[STORY[state.step - 1].id]({ c, pen, t, wide, high, color, ...story.parts });
}

function label(pen, text, x, y, fill) {
  pen.fillStyle = fill;
  pen.fillText(text, x, y);
}

// The patches of the image in a square, with a gap between them. light: how bright each is, from 0 to 1.
function grid(pen, c, image, [x, y, side], gap, light) {
  const [rows, columns] = c.grid,
    [w, h] = [(side - gap * (columns - 1)) / columns, (side - gap * (rows - 1)) / rows],
    [p, q] = [image.height / rows, image.width / columns];
  pen.imageSmoothingEnabled = image.width > 64;
  for (let n = 0; n < c.N; n++) {
    const [r, k] = [Math.floor(n / columns), n % columns];
    pen.globalAlpha = light ? light(n) : 1;
    pen.drawImage(image, k * q, r * p, q, p, x + k * (w + gap), y + r * (h + gap), w, h);
  }
  pen.globalAlpha = 1;
  const at = (n) => [x + (n % columns) * (w + gap), y + Math.floor(n / columns) * (h + gap), w, h];
  return Object.assign(at, { middle: (n) => [at(n)[0] + w / 2, at(n)[1] + h / 2] });
}

function frameOf(pen, [x, y, w, h], stroke, width = 2.5) {
  pen.lineWidth = width;
  pen.strokeStyle = stroke;
  pen.strokeRect(x - 1, y - 1, w + 2, h + 2);
}

// Of each head of a layer, how much a patch attends to each patch.
const weightsFrom = (l, patch) => trace.layers[l].heads.map((head) => [...row(head.weights, patch + model.prefix).slice(model.prefix)]);

// Lines from a place to patches, as wide as their part of the largest weight; grown: how far they have come.
function lines(pen, from, weights, middle, stroke, grown, most = 6, largest = Math.max(...weights)) {
  const top = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, most);
  pen.strokeStyle = pen.fillStyle = stroke;
  pen.lineCap = "round";
  pen.shadowColor = "rgb(0 0 0 / .5)";
  pen.shadowBlur = 4;
  for (const n of top) {
    const to = middle(n),
      share = weights[n] / largest;
    if (weights[n] < 0.01 || !to) continue;
    pen.globalAlpha = opacityOf(share);
    pen.lineWidth = widthOf(share);
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(between(from[0], to[0], grown), between(from[1], to[1], grown));
    pen.stroke();
    if (grown === 1) {
      pen.beginPath();
      pen.arc(...to, 2.5 + 3 * share, 0, 7);
      pen.fill();
    }
  }
  pen.globalAlpha = 1;
  pen.shadowBlur = 0;
  return top;
}

// A matrix with its name above and its sides below; wiped: how much of it is there, from the left.
function matrix(pen, image, [x, y, w, h], name, sides, color, wiped = 1) {
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, Math.max(1, image.width * wiped), image.height, x, y, w * wiped, h);
  if (wiped < 0.2) return;
  label(pen, name, x + w / 2, y - 7, color("ink"));
  label(pen, sides, x + w / 2, y + h + 17, color("muted"));
}

const STEPS = {
  // A photograph gives way to the few pixels that the model sees.
  photograph({ c, pen, t, wide, high, color, pixels, fine }) {
    const side = Math.min(wide, high - 26),
      x = (wide - side) / 2,
      gone = part(t, 0.3, 0.9);
    pen.imageSmoothingEnabled = true;
    pen.drawImage(fine, x, 0, side, side);
    // From the top down, row by row of pixels.
    pen.imageSmoothingEnabled = false;
    const rows = Math.round(gone * pixels.height);
    if (rows) pen.drawImage(pixels, 0, 0, pixels.width, rows, x, 0, side, (side * rows) / pixels.height);
    label(pen, `${c.H} × ${c.W} × ${c.C}`, wide / 2, high - 6, color("muted"));
  },
  cut({ c, pen, t, wide, high, color, pixels, fine, maps }) {
    const side = Math.min(wide, high - 26);
    if (maps) {
      // The maps of the network, each coarser than the one before, until a cell is a token.
      const at = Math.min(maps.length, Math.floor(t * (maps.length + 1))),
        image = at ? maps[at - 1] : fine,
        shape = at ? trace.maps[at - 1].shape : [c.C, c.H, c.W],
        last = at === maps.length && image.width === c.grid[1],
        x = (wide - side) / 2;
      pen.imageSmoothingEnabled = !at;
      if (last) grid(pen, c, image, [x, 0, side], 5 * part(t, 0.9, 1));
      else pen.drawImage(image, x, 0, side, side);
      return label(pen, `${shape[1]} × ${shape[2]} × ${shape[0]}`, wide / 2, high - 6, color("muted"));
    }
    const gap = (c.grid[0] > 8 ? 3 : 7) * part(t, 0.1, 0.8);
    grid(pen, c, pixels, [(wide - side) / 2, 0, side], gap);
    label(pen, `${c.grid[0]} × ${c.grid[1]} = ${c.N}`, wide / 2, high - 6, color("muted"));
  },
  // Each patch flies to the head of its row, whose numbers come out of it.
  rows({ c, pen, t, wide, high, color, pixels, flat, followed }) {
    const side = wide * 0.34,
      top = 24,
      tall = high - top - 26,
      h = tall / c.N,
      left = side + 34,
      w = wide - left,
      at = grid(pen, c, pixels, [0, top, side], 2, () => 0.45);
    pen.imageSmoothingEnabled = false;
    for (let n = 0; n < c.N; n++) {
      const come = part(t, (0.55 * n) / c.N, (0.55 * n) / c.N + 0.25),
        out = part(t, 0.2 + (0.55 * n) / c.N, 0.45 + (0.55 * n) / c.N),
        [x, y, a, b] = at(n),
        [p, q] = [pixels.height / c.grid[0], pixels.width / c.grid[1]];
      const box = [between(x, left - h - 6, come), between(y, top + n * h, come), between(a, h, come), between(b, h, come)];
      pen.drawImage(pixels, (n % c.grid[1]) * q, Math.floor(n / c.grid[1]) * p, q, p, ...box);
      if (out) pen.drawImage(flat, 0, n, Math.max(1, flat.width * out), 1, left, top + n * h, w * out, h);
    }
    frameOf(pen, at(followed), color("second"));
    if (t > 0.95) frameOf(pen, [left - h - 6, top + followed * h, w + h + 6, h], color("second"), 2);
    label(pen, c.model.network ? String(c.stemWidth) : `${c.P} × ${c.Q} × ${c.C} = ${c.flatWidth}`, left + w / 2, top - 8, color("ink"));
    label(pen, `${c.N} × ${c.stemWidth}`, left + w / 2, high - 6, color("muted"));
  },
  // A matrix makes the rows shorter; the class token comes on top; positions come over them.
  tokens({ c, pen, t, wide, high, color, flat, tokens, z0, positions, followed }) {
    const top = 24,
      tall = high - top - 26,
      h = tall / c.T,
      w = wide * 0.27,
      x = [0, (wide - w) / 2, wide - w],
      down = c.prefix * h,
      merged = part(t, 0.7, 1);
    matrix(pen, flat, [x[0], top + down, w, tall - down], c.words[c.model.network ? "cells" : "all_patches"], `${c.N} × ${c.stemWidth}`, color);
    const made = part(t, 0, 0.35);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(tokens, 0, c.prefix, Math.max(1, c.D * made), c.N, x[1], top + down, w * made, tall - down);
    const drop = part(t, 0.3, 0.5);
    pen.globalAlpha = drop;
    pen.drawImage(tokens, 0, 0, c.D, c.prefix, x[1], between(-20, top, drop), w, down);
    pen.globalAlpha = 1;
    if (drop === 1) {
      label(pen, c.words.tokens, x[1] + w / 2, top - 8, color("ink"));
      if (t < 0.8) frameOf(pen, [x[1], top, w, down], color("second"), 2);
    }
    label(pen, `${c.T} × ${c.D}`, x[1] + w / 2, high - 9, color("muted"));
    if (positions) {
      pen.globalAlpha = part(t, 0.45, 0.6) * (1 - 0.85 * merged);
      pen.drawImage(positions, between(x[2], x[1], merged), top, w, tall);
      pen.globalAlpha = 1;
      if (merged < 0.5 && t > 0.5) label(pen, WORDS[state.language].panels.positions.title, x[2] + w / 2, top - 8, color("ink"));
      pen.globalAlpha = merged;
      pen.drawImage(z0, x[1], top, w, tall);
      pen.globalAlpha = 1;
    }
    label(pen, "→", (x[0] + w + x[1]) / 2, top + tall / 2, color("muted"));
    if (merged < 0.5) label(pen, "+", (x[1] + w + x[2]) / 2, top + tall / 2, color("muted"));
    if (t === 1) frameOf(pen, [x[1], top + (followed + c.prefix) * h, w, h], color("second"), 2);
  },
  // Every token gives three vectors: its row moves to the right three times.
  qkv({ c, pen, t, wide, high, color, normed, qkv, followed }) {
    const top = 24,
      tall = high - top - 26,
      h = tall / c.T,
      w = wide * 0.3,
      narrow = wide * 0.145,
      names = [c.words.query, c.words.key, c.words.value];
    matrix(pen, normed, [0, top, w, tall], c.words.tokens, `${c.T} × ${c.D}`, color);
    names.forEach((name, i) => {
      const come = part(t, 0.15 * i, 0.4 + 0.15 * i),
        x = between(w - narrow, wide - (3 - i) * narrow - (2 - i) * 16, come);
      pen.globalAlpha = come;
      matrix(pen, qkv[i], [x, top, narrow, tall], name, `${c.T} × ${c.Dh}`, color);
      pen.globalAlpha = 1;
      if (t === 1) frameOf(pen, [x, top + (followed + c.prefix) * h, narrow, h], headColor(0), 2);
    });
    if (t === 1) frameOf(pen, [0, top + (followed + c.prefix) * h, w, h], color("second"), 2);
  },
  // The followed patch asks, and the lines grow to what it takes from.
  lines({ c, pen, t, wide, high, color, fine, followed, shown }) {
    const side = Math.min(wide, high - 26),
      weights = weightsFrom(shown.l, followed)[shown.k],
      at = grid(pen, c, fine, [(wide - side) / 2, 0, side], c.grid[0] > 8 ? 1 : 4, () => 0.55);
    const grown = part(t, 0.15, 0.85),
      top = lines(pen, at.middle(followed), weights, at.middle, headColor(shown.k), grown, 5);
    frameOf(pen, at(followed), color("second"), 3);
    if (grown === 1) {
      for (const n of top.filter((each) => each !== followed).slice(0, 3)) {
        const [x, y] = at.middle(n);
        pen.lineWidth = 4;
        pen.strokeStyle = color("paper");
        pen.strokeText(percent(weights[n]), x, y - 10);
        label(pen, percent(weights[n]), x, y - 10, color("ink"));
      }
    }
    label(pen, c.t("story_head", { layer: shown.l + 1, head: shown.k + 1 }), wide / 2, high - 6, color("muted"));
  },
  // The same patch, and every head of that layer.
  heads({ c, pen, t, wide, high, color, fine, followed, shown }) {
    const count = Math.min(c.K, 4),
      across = count > 1 ? 2 : 1,
      gap = 14,
      side = Math.min((wide - gap) / across, (high - 26 - gap) / Math.ceil(count / across)),
      left = (wide - across * side - (across - 1) * gap) / 2,
      weights = weightsFrom(shown.l, followed),
      largest = Math.max(...weights.slice(0, count).flat());
    for (let k = 0; k < count; k++) {
      const come = part(t, 0.2 * k, 0.4 + 0.2 * k),
        x = left + (k % across) * (side + gap),
        y = Math.floor(k / across) * (side + gap);
      pen.globalAlpha = 0.25 + 0.75 * come;
      const at = grid(pen, c, fine, [x, y, side], 1, () => 0.15 + 0.35 * come);
      lines(pen, at.middle(followed), weights[k], at.middle, headColor(k), come, 5, largest);
      frameOf(pen, at(followed), color("second"), 2);
      frameOf(pen, [x, y, side, side], headColor(k), 2);
    }
    label(pen, c.t("layer_number", { number: shown.l + 1 }), wide / 2, high - 6, color("muted"));
  },
  // Layer after layer: other lines, and the answer that would be read so far.
  layers({ c, pen, t, wide, high, color, fine, followed }) {
    const l = Math.min(c.L - 1, Math.floor(t * c.L)),
      within = t === 1 ? 1 : part(t * c.L - l, 0, 0.7),
      side = Math.min(wide, high - 26),
      at = grid(pen, c, fine, [(wide - side) / 2, 0, side], c.grid[0] > 8 ? 1 : 3, () => 0.55),
      weights = weightsFrom(l, followed),
      largest = Math.max(...weights.flat());
    weights.forEach((each, k) => lines(pen, at.middle(followed), each, at.middle, headColor(k), within, 3, largest));
    frameOf(pen, at(followed), color("second"), 3);
    label(pen, c.t("after_layer", { number: l + 1, layers: c.L }), wide / 2, high - 6, color("muted"));
    if (state.depth !== l + 1) {
      Object.assign(state, { depth: l + 1, layer: l });
      drawGuess(context());
    }
  },
  // The class token reads from the patches.
  class({ c, pen, t, wide, high, color, fine, fromClass }) {
    const chip = 30,
      side = Math.min(wide, high - chip - 36),
      most = Math.max(...fromClass),
      come = part(t, 0.1, 0.8),
      from = [wide / 2, chip];
    const at = grid(pen, c, fine, [(wide - side) / 2, chip + 30, side], c.grid[0] > 8 ? 1 : 3, (n) =>
      between(1, 0.25 + 0.75 * (fromClass[n] / most), come),
    );
    lines(pen, from, fromClass, at.middle, color("first"), come, 8);
    pen.fillStyle = color("first");
    pen.beginPath();
    pen.roundRect(wide / 2 - 38, 2, 76, chip - 2, 14);
    pen.fill();
    label(pen, "[class]", wide / 2, 21, color("on-first"));
  },
  // From one vector, a number for each class; softmax makes them bars.
  bars({ c, pen, t, wide, high, color, features }) {
    const p = probabilities(trace.logits),
      rows = best(trace.logits).slice(0, 8),
      named = 0.36 * wide,
      top = 66,
      step = Math.min(36, (high - top - 6) / rows.length),
      come = part(t, 0.1, 0.45);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(features, 0, 0, Math.max(1, features.width * come), 1, 0, 20, wide * come, 22);
    frameOf(pen, [0, 20, wide, 22], color("first"), 1.5);
    label(pen, `[class] · ${features.width}`, wide / 2, 13, color("ink"));
    rows.forEach((k, i) => {
      const grown = part(t, 0.4 + 0.04 * i, 0.9 + 0.01 * i),
        y = top + i * step;
      pen.textAlign = "right";
      label(pen, c.labels[k], named - 10, y + step / 2 + 2, i ? color("muted") : color("ink"));
      pen.fillStyle = color("sunk");
      pen.fillRect(named, y, wide - named - 50, step - 10);
      pen.fillStyle = color(i ? "weight" : "first");
      pen.fillRect(named, y, (wide - named - 50) * p[k] * grown, step - 10);
      pen.textAlign = "left";
      if (grown > 0.5) label(pen, percent(p[k] * grown), wide - 44, y + step / 2 + 2, color("ink"));
    });
    pen.textAlign = "center";
    if (state.depth !== c.L) {
      Object.assign(state, { depth: c.L, layer: c.L - 1 });
      drawGuess(context());
    }
  },
};

function listenToStory() {
  byId("story-open").onclick = () => update({ step: 1, scroll: "story" });
  byId("story-on").onclick = goOn;
  byId("story-back").onclick = () => goTo(state.step - 1);
  byId("story-close").onclick = endStory;
  byId("story-canvas").onclick = goOn;
  byId("story-play").onclick = () => {
    play(!story.playing);
    update({});
  };
  // The arrow keys go on and back, but not where they already mean something.
  document.addEventListener("keydown", (event) => {
    const at = document.activeElement;
    if (!state.step || state.place || event.altKey || event.ctrlKey || event.metaKey || at.matches("input, select, canvas[tabindex]")) return;
    if (event.key === "Escape") endStory();
    else if (event.key === "ArrowRight") goOn();
    else if (event.key === "ArrowLeft") goTo(state.step - 1);
    else return;
    event.preventDefault();
  });
}
