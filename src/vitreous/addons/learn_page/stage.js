// --- One screen: the image, what each patch looks at, the answer layer by layer, and switches. -----------------

const HEAD_COLORS = ["#e4572e", "#2a7fba", "#4f9d45", "#9a55c4", "#c98a00", "#0f9b8e", "#d64292", "#6b7a1f"];
const headColor = (k) => HEAD_COLORS[k % HEAD_COLORS.length];
const hover = { token: null };
const LONGEST_IMAGE = 3072; // values of an image in an address: 32 x 32 pixels in color
const BELOW = 14; // pixels between the class token and where its lines begin, so that they do not cover its name

// The token whose attention is shown: the one under the pointer, or the one that is chosen.
const watched = () => hover.token ?? state.token;

// The layer whose attention is shown, from 0; -1 before the first.
const shownLayer = () => Math.min(state.depth, model.config.depth) - 1;

function drawStage(c) {
  const w = c.words,
    range = byId("depth");
  // What the first screen promises is what this page does: a large model is not run, a fresh one has no answers.
  const hybrid = c.config.stem.kind === "efficientnet-lite",
    says = [c.t(hybrid ? "stage_lead_stem" : "stage_lead"), w[recorded ? "stage_recorded" : "stage_live"]];
  if (DATA.alone) says.push(w.stage_alone);
  if (!DATA.trained) says.push(w.fresh);
  else if (DATA.untrainedLayers) says.push(w.untrained_layers);
  byId("stage-lead").textContent = says.join(" ");
  const facts = w[`stage_${DATA.bundled}`] ? c.t(`stage_${DATA.bundled}`, DATA.facts) : "";
  byId("stage-facts").textContent = facts;
  byId("stage-facts").hidden = !facts;
  byId("sight-note").textContent = trace ? c.t("sight_note") + (c.config.class_token ? ` ${w.sight_note_class}` : "") : "";
  byId("stage-hint").textContent = pad.enabled ? w.hint_draw : recorded ? w.hint_recorded : w.hint_drop;
  drawOthers(w);
  byId("camera").hidden = pad.enabled || Boolean(recorded) || !navigator.mediaDevices?.getUserMedia;
  byId("camera").textContent = w[camera.stream ? "camera_stop" : "camera"];
  byId("camera").setAttribute("aria-pressed", String(Boolean(camera.stream)));
  byId("stage-pad").setAttribute("aria-label", pad.enabled ? w.pad : w.image);
  for (const [i, button] of [...byId("stage-samples").children].entries()) {
    button.setAttribute("aria-pressed", String(i === state.sample));
    button.setAttribute("aria-label", filled(w.sample, { label: named(DATA.samples[i].label) }));
  }
  range.max = c.L;
  range.value = state.depth;
  range.setAttribute("aria-valuetext", depthName(c));
  byId("depth-now").textContent = depthName(c);
  drawTouch(c);
  drawSight(c);
  drawGuess(c);
  drawStageSwitches(c);
  byId("search").hidden = switchesFixed() || !answers();
  drawFound(c);
  byId("story-open").hidden = !canTell() || state.step > 0;
  byId("how-open").textContent = w[state.how ? "how_close" : "how"];
  byId("how-open").setAttribute("aria-expanded", String(state.how));
  byId("train-open").hidden = !canTrain();
  byId("train-open").textContent = w[state.practice ? "train_close" : "train"];
  byId("train-open").setAttribute("aria-expanded", String(state.practice));
}

// The other pages of this kind, where the site that holds this one names them: "digits=a.html emoji=b.html". A page
// that is a file of its own has a link to the site.
function drawOthers(w) {
  const pages = document.querySelector("meta[name=vitreous-pages]")?.content.split(" "),
    host = byId("others");
  host.setAttribute("aria-label", w.others);
  if (!pages) return host.replaceChildren(element("a", { href: `${DATA.site}/${state.language}/learn/index.html` }, w.site));
  host.replaceChildren(
    ...pages.map((each) => {
      const [name, href] = each.split("=");
      return element("a", { href, "aria-current": name === DATA.bundled ? "page" : null }, w[`page_of_${name}`]);
    }),
  );
}

// What a finger on a patch does: show its lines, or cover it.
function drawTouch(c) {
  const focus = document.activeElement?.id,
    choice = (id, text, pressed, onclick) =>
      element("button", { type: "button", id, "aria-pressed": pressed === null ? null : String(pressed), onclick }, text);
  byId("touch").hidden = switchesFixed();
  byId("touch").setAttribute("aria-label", c.words.touch);
  byId("touch").replaceChildren(
    choice("touch-look", c.words.touch_look, !state.covering, () => update({ covering: false })),
    choice("touch-cover", c.words.touch_cover, state.covering, () => update({ covering: true })),
    ...(state.covered.size
      ? [choice("uncover", c.t("uncover", { count: state.covered.size }), null, () => change({ covered: new Set() }))]
      : []),
  );
  if (focus) byId(focus)?.focus({ preventScroll: true });
}

function cover(n, on = true) {
  if (state.covered.has(n) === on) return;
  const covered = new Set(state.covered);
  on ? covered.add(n) : covered.delete(n);
  change({ covered });
}

// How much of a layer's attention a token gives to each, on average over the heads that are on.
function attentionOf(layer, l, token) {
  const on = layer.heads.filter((_, k) => !state.without.has(`${l}.${k}`)),
    mean = new Float32Array(layer.heads[0].weights.shape[1]);
  for (const head of on)
    row(head.weights, token).forEach((weight, t) => {
      mean[t] += weight / on.length;
    });
  return mean;
}

// "patch 6: patch 9 31%, patch 2 12%, [class] 9%".
function attentionWords(c, token) {
  const l = shownLayer(),
    layer = trace?.layers[l];
  if (!layer?.heads) return c.tokenName(token);
  const mean = attentionOf(layer, l, token),
    top = [...mean.keys()].sort((a, b) => mean[b] - mean[a]).slice(0, 3);
  return `${c.tokenName(token)}: ${top.map((t) => `${c.tokenName(t)} ${percent(mean[t])}`).join(", ")}`;
}

function depthName(c) {
  return state.depth ? c.t("after_layer", { number: Math.min(state.depth, c.L), layers: c.L }) : c.words.embedding;
}

// The image in its patches, with lines from the watched token to what it attends to.
function drawSight(c) {
  const host = byId("sight-patches"),
    chip = byId("sight-class");
  chip.hidden = !c.config.class_token;
  chip.textContent = "[class]";
  chip.setAttribute("aria-label", c.words.class_token_chip);
  chip.setAttribute("aria-pressed", String(state.token === 0 && c.prefix > 0));
  if (!trace) return host.replaceChildren(element("p", { class: "note" }, c.words.shapes_only));
  const focused = host.contains(document.activeElement);
  const canvas = patchImage(c.image, c.grid, {
    id: "sight-canvas",
    label: c.words.sight,
    side: innerWidth > 960 ? Math.max(272, Math.min(420, innerHeight - 580)) : 272,
    gap: c.grid[1] > 8 ? 1 : 3,
    marked: state.token - c.prefix,
    at: (n) => attentionWords(c, n + c.prefix),
    pick: (n) => (state.covering || update({ token: n + c.prefix })),
    fine: c.fine,
    order: c.order,
    covered: state.covered,
  });
  canvas.classList.toggle("covering", state.covering);
  host.canvas = canvas;
  const over = (event) => {
    const box = canvas.getBoundingClientRect(),
      y = Math.floor(((event.clientY - box.top) / box.height) * c.grid[0]),
      x = Math.floor(((event.clientX - box.left) / box.width) * c.grid[1]);
    return Math.max(0, Math.min(c.N - 1, y * c.grid[1] + x)) + c.prefix;
  };
  // A finger that is down covers what it touches; the canvas may be drawn again meanwhile.
  canvas.addEventListener("pointerdown", (event) => {
    if (!state.covering) return;
    event.preventDefault();
    const first = over(event) - c.prefix,
      on = !state.covered.has(first);
    const rub = (moved) => {
      const box = host.canvas.getBoundingClientRect();
      if (moved.clientX < box.left || moved.clientX > box.right || moved.clientY < box.top || moved.clientY > box.bottom)
        return;
      const y = Math.floor(((moved.clientY - box.top) / box.height) * c.grid[0]),
        x = Math.floor(((moved.clientX - box.left) / box.width) * c.grid[1]);
      cover(Math.max(0, Math.min(c.N - 1, y * c.grid[1] + x)), on);
    };
    const stop = () => {
      removeEventListener("pointermove", rub);
      removeEventListener("pointerup", stop);
      removeEventListener("pointercancel", stop);
    };
    addEventListener("pointermove", rub);
    addEventListener("pointerup", stop);
    addEventListener("pointercancel", stop);
    cover(first, on);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch" || hover.token === over(event)) return;
    hover.token = over(event);
    drawLines(context());
  });
  const leave = () => {
    hover.token = null;
    drawLines(context());
  };
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  // The arrow keys look around as a pointer does; Enter chooses.
  canvas.addEventListener("keydown", (event) => {
    if (state.covering && (event.key === "Enter" || event.key === " ")) {
      const [r, column] = canvas.cursor,
        n = r * c.grid[1] + column;
      cover(n, !state.covered.has(n));
    }
    if (!event.key.startsWith("Arrow")) return;
    const [r, column] = canvas.cursor;
    hover.token = r * c.grid[1] + column + c.prefix;
    drawLines(context());
  });
  host.replaceChildren(canvas);
  if (focused) canvas.focus({ preventScroll: true });
  drawLines(c);
}

// A line is as wide as its part of the largest weight that is drawn: of 50 tokens even that is a small part of all.
const widthOf = (share) => 1 + 5 * share;
const opacityOf = (share) => 0.6 + 0.4 * share;

// Curves from the watched token, one color for each head: the wider, the more attention.
function drawLines(c) {
  const svg = byId("sight-lines"),
    canvas = byId("sight-canvas"),
    layer = trace?.layers[shownLayer()];
  const token = watched(),
    name = c.tokenName(token);
  byId("sight-caption").textContent = layer?.heads
    ? c.t("looks_in_layer", { token: name, number: shownLayer() + 1 })
    : c.words.no_attention_yet;
  byId("sight-words").textContent = layer?.heads ? attentionWords(c, token) : "";
  svg.replaceChildren();
  if (!canvas || !layer?.heads) return;
  // Where everything is, asked before a line is drawn: each line would make the browser lay the page out again.
  const [box, chip, from] = [svg, byId("sight-class"), canvas].map((each) => each.getBoundingClientRect());
  if (!box.width) return;
  const place = (t) => {
    if (t < c.prefix) return t ? null : [chip.left + chip.width / 2 - box.left, chip.bottom - box.top + BELOW];
    const n = t - c.prefix;
    return [
      from.left - box.left + ((n % c.grid[1]) + 0.5) * (from.width / c.grid[1]),
      from.top - box.top + (Math.floor(n / c.grid[1]) + 0.5) * (from.height / c.grid[0]),
    ];
  };
  const start = place(token),
    made = (tag, attributes) => {
      const each = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) each.setAttribute(key, value);
      svg.append(each);
    };
  if (!start) return;
  const drawn = layer.heads.flatMap((head, k) => {
    if (state.without.has(`${shownLayer()}.${k}`)) return [];
    const weights = row(head.weights, token);
    return [...weights.keys()]
      .filter((t) => weights[t] > 1.25 / c.T && place(t))
      .sort((a, b) => weights[b] - weights[a])
      .slice(0, 4)
      .map((t) => ({ k, t, weight: weights[t] }));
  });
  const most = Math.max(...drawn.map(({ weight }) => weight));
  for (const { k, t, weight } of drawn) {
    const end = place(t),
      share = weight / most,
      look = { stroke: headColor(k), "stroke-width": widthOf(share), opacity: opacityOf(share) };
    if (t === token) {
      made("circle", { cx: end[0], cy: end[1], r: (t < c.prefix ? 7 : 13) + 2.5 * (k % 4), fill: "none", ...look });
      continue;
    }
    // Heads bend to different sides, so that their lines do not cover each other.
    const bend = (k - (c.K - 1) / 2) * 14,
      [dx, dy] = [end[0] - start[0], end[1] - start[1]],
      length = Math.hypot(dx, dy) || 1;
    const mid = [(start[0] + end[0]) / 2 - (dy / length) * bend, (start[1] + end[1]) / 2 + (dx / length) * bend];
    made("path", { d: `M${start}Q${mid} ${end}`, pathLength: 1, fill: "none", "stroke-linecap": "round", ...look });
    made("circle", { cx: end[0], cy: end[1], r: 2.5 + 3 * share, fill: headColor(k), opacity: look.opacity });
  }
  made("circle", { cx: start[0], cy: start[1], r: 5, class: "source" });
}

// Letters of Hangul are nearly twice as wide.
const widthOfName = (name) => [...name].reduce((sum, letter) => sum + (letter >= "\u1100" ? 1.8 : 1), 0);

// What the answer would be after the layer that the slider is at (the logit lens).
function drawGuess(c) {
  const host = byId("guess-bars");
  if (!trace) {
    byId("guess-now").textContent = "";
    return host.replaceChildren();
  }
  const depth = Math.min(state.depth, c.L),
    logits = trace.lens[depth],
    p = probabilities(logits),
    [top] = best(logits),
    before = unchanged && probabilities(unchanged.lens[depth]);
  byId("guess-now").textContent = headline(c, p, top);
  const rows = DATA.labels.length <= 10 ? [...DATA.labels.keys()] : best(trace.logits).slice(0, 8);
  const names = rows.map((k) => c.labels[k]).join();
  if (host.dataset.names !== names) {
    host.dataset.names = names;
    host.style.setProperty("--name", `${Math.min(8.6, 0.6 + 0.5 * Math.max(...rows.map((k) => widthOfName(c.labels[k]))))}rem`);
    host.replaceChildren(...bars(rows.map((k) => ({ name: c.labels[k], share: 0, text: "", ghost: 0 }))).children);
  }
  [...host.children].forEach((each, i) => {
    const k = rows[i],
      ghost = each.querySelector("u");
    each.className = answers() && k === top ? "strong" : "";
    each.querySelector("i").style.width = `${100 * p[k]}%`;
    each.querySelector(".value").textContent = percent(p[k]);
    ghost.hidden = !before;
    if (before) ghost.style.left = `${100 * before[k]}%`;
  });
}

function drawStageSwitches(c) {
  const w = c.words,
    fixed = switchesFixed(),
    layer = Math.max(0, shownLayer()),
    focus = document.activeElement?.id;
  byId("stage-switches").replaceChildren(
    switchOf("stage-positions", w.without_positions, state.withoutPositions, fixed || model.config.position.kind === "none", (on) =>
      change({ withoutPositions: on }),
    ),
    switchOf("stage-shuffled", w.shuffle, state.shuffled, fixed, (on) => change({ shuffled: on })),
  );
  byId("heads-label").parentElement.hidden = fixed; // switches that nothing can be done with
  byId("heads-label").textContent = c.t("heads_of_layer", { number: layer + 1 });
  byId("stage-heads").replaceChildren(
    ...Array.from({ length: Math.min(c.K, 16) }, (_, k) => {
      const key = `${layer}.${k}`;
      return element(
        "button",
        {
          type: "button",
          id: `stage-head-${k}`,
          class: "head-switch",
          style: `--head: ${headColor(k)}`,
          disabled: fixed,
          "aria-pressed": String(!state.without.has(key)),
          "aria-label": `${w.head} ${k + 1}`,
          onclick: () => switchHeads([key], !state.without.has(key)),
        },
        String(k + 1),
      );
    }),
    ...headGroups(c, layer).map(([id, text, keys]) => {
      const off = keys.every((key) => state.without.has(key)) && allHeads(c, layer).filter((key) => state.without.has(key)).length === keys.length;
      return element(
        "button",
        {
          type: "button",
          id,
          disabled: fixed,
          "aria-pressed": String(off),
          onclick: () => change({ without: new Set([...state.without].filter((key) => !key.startsWith(`${layer}.`)).concat(off ? [] : keys)) }),
        },
        text,
      );
    }),
  );
  byId("stage-note").textContent = noteOfSwitches(c);
  if (focus) byId(focus)?.focus({ preventScroll: true });
}

const allHeads = (c, layer) => Array.from({ length: c.K }, (_, k) => `${layer}.${k}`);

// Heads that are switched off together: those of the layer, and all of it but one.
function headGroups(c, layer) {
  const all = allHeads(c, layer),
    shown = `${layer}.${Math.min(state.head, c.K - 1)}`;
  return [
    ["stage-layer-off", c.words.layer_off, all],
    ["stage-only-head", c.t("only_head", { number: Math.min(state.head, c.K - 1) + 1 }), all.filter((key) => key !== shown)],
  ];
}

function switchHeads(keys, off) {
  const without = new Set(state.without);
  for (const key of keys) off ? without.add(key) : without.delete(key);
  change({ without, head: Number(keys[0].split(".")[1]) });
}

// What was found to change the answer, and for what: an image with its changes.
const finding = { of: "", source: null, winner: 0, tries: [], border: null, drawn: "" };
const WORTH = 5; // points that a switch changes, at least, so that it is offered
const BORDER = 25; // points between the first two classes of an image at the border, at most
const FEW = 24; // heads of which each is tried again after one more is off

// What is searched for is asked of one image with its changes, of one model.
const searched = () => JSON.stringify([state.preset, state.withoutPositions, state.shuffled, [...state.covered]]);

// The distance between the logits of a class and of the best other: below 0 where another is the answer. Unlike a
// probability it still falls where the answer is sure.
function leadOf(logits, winner) {
  return logits.reduce((lead, each, k) => (k === winner ? lead : Math.min(lead, logits[winner] - each)), Infinity);
}

// What of all that can be switched off changes this answer: the heads and the layers that change it most; where none
// gives another answer, a set of heads that does; and an image at the border between two classes, if there is one. A
// reader who presses any one head sees little, for models keep more than one way to an answer.
async function search() {
  const c = context(),
    source = state.source,
    settings = searched(),
    base = { ...changesNow(), without: new Set() },
    { logits } = run(source, base),
    [winner] = best(logits),
    before = probabilities(logits)[winner],
    same = () => state.source === source && searched() === settings;
  const tries = [];
  for (let l = 0; l < c.L; l++) {
    const all = allHeads(c, l);
    tries.push({ word: "found_layer", values: { layer: l + 1 }, without: all });
    for (const [k, key] of all.entries()) {
      tries.push({ word: "found_head", values: { layer: l + 1, head: k + 1 }, without: [key] });
      if (c.K > 2) tries.push({ word: "found_only", values: { layer: l + 1, head: k + 1 }, without: all.filter((each) => each !== key) });
    }
  }
  const attempt = async (each) => {
    await new Promise((next) => setTimeout(next)); // the page stays alive
    const changed = run(source, { ...base, without: new Set(each.without) }).logits,
      [top] = best(changed);
    return Object.assign(each, { top, lead: leadOf(changed, winner), points: Math.round(100 * (probabilities(changed)[winner] - before)) });
  };
  byId("search").disabled = true;
  Object.assign(finding, { source: null, drawn: "" });
  byId("found").replaceChildren();
  for (const [i, each] of tries.entries()) {
    if (!same()) break;
    byId("search").textContent = c.t("searching", { number: i + 1, count: tries.length });
    await attempt(each);
  }
  const other = (each) => Number(each.top !== winner);
  if (same() && !tries.some(other)) {
    byId("search").textContent = c.t("searching_together");
    const found = await headsTogether(tries.filter(({ word }) => word === "found_head"), attempt, winner, same);
    if (found) tries.push(found);
  }
  const border = same() ? imageAtTheBorder() : null;
  byId("search").disabled = false;
  byId("search").textContent = words().search;
  if (!same()) return;
  const found = tries
    .filter((each) => other(each) || each.points <= -WORTH)
    .sort((a, b) => other(b) - other(a) || a.points - b.points)
    .slice(0, 3);
  Object.assign(finding, { of: settings, source, winner, tries: found, border });
  update({});
}

// A set of heads without which another class is the answer: the one that leaves the smallest lead goes off first, until
// the class changes; then each that is not needed for that comes back. null: not even all of them change it.
async function headsTogether(singles, attempt, winner, same) {
  const byLead = (a, b) => a.lead - b.lead,
    left = singles.sort(byLead).map(({ without }) => without[0]);
  let found = { without: [] };
  while (left.length && same()) {
    let next = left[0];
    if (found.without.length && singles.length <= FEW) {
      const tries = [];
      for (const key of left) tries.push(await attempt({ key, without: [...found.without, key] }));
      next = tries.sort(byLead)[0].key;
    }
    left.splice(left.indexOf(next), 1);
    found = await attempt({ without: [...found.without, next] });
    if (found.top !== winner) break;
  }
  if (found.top === winner) return null;
  for (const key of found.without) {
    const fewer = await attempt({ without: found.without.filter((each) => each !== key) });
    if (fewer.top !== winner) found = fewer;
  }
  return { ...found, word: "found_heads", without: found.without.sort((a, b) => a.localeCompare(b, "en", { numeric: true })) };
}

// Of the images of the page, and of a digit that comes with it, the one whose first two classes are closest; null where
// none is at the border.
function imageAtTheBorder() {
  const { border: letters } = DATA,
    all = samples.map((canvas, i) => ({ canvas, i })).filter(({ i }) => i !== state.sample);
  if (letters && !recorded && lettersOf(state.source) !== letters) all.push({ canvas: canvasOfLetters(letters), i: -1 });
  return all
    .map(({ canvas, i }) => {
      const p = probabilities(run(canvas, {}, i).logits),
        names = best(p).slice(0, 2);
      return { canvas, i, names, gap: 100 * (p[names[0]] - p[names[1]]) };
    })
    .filter(({ gap }) => gap <= BORDER)
    .sort((a, b) => a.gap - b.gap)[0];
}

function useBorder({ i, canvas }) {
  if (i >= 0) return useSample(i);
  state.covered = new Set();
  pad.show(canvas);
  useCanvas(canvas);
}

// "layer 1: 2, 4; layer 3: 1".
function namesOfHeads(c, keys) {
  const layers = new Map();
  for (const key of keys) {
    const [layer, head] = key.split(".").map(Number);
    layers.set(layer, [...(layers.get(layer) ?? []), head + 1]);
  }
  return [...layers].map(([layer, heads]) => c.t("heads_of", { layer: layer + 1, heads: heads.join(", ") })).join("; ");
}

// What the search found for the image that is shown, and a sentence where nothing gives another answer.
function drawFound(c) {
  const { source, of, winner, tries, border } = finding,
    fits = source && source === state.source && of === searched(),
    shown = fits ? state.language : "";
  if (finding.drawn === shown) return;
  finding.drawn = shown;
  if (!fits) return byId("found").replaceChildren();
  const button = (text, onclick) => element("button", { type: "button", onclick }, text);
  byId("found").replaceChildren(
    ...(tries.some(({ top }) => top !== winner) ? [] : [element("p", {}, c.t("found_nothing", { label: c.labels[winner] }))]),
    ...tries.map(({ word, values, without, top, points }) => {
      const layer = Number(without.at(-1).split(".")[0]),
        text = c.t(word, values ?? { count: without.length, heads: namesOfHeads(c, without) }),
        by = `${points > 0 ? "+" : "−"}${c.t("points", { number: Math.abs(points) })}`;
      return button(`${text}: ${c.labels[winner]} ${by}${top === winner ? "" : ` → ${c.labels[top]}`}`, () =>
        change({ without: new Set(without), depth: state.depth && c.L, layer }),
      );
    }),
    ...(border
      ? [
          button(
            c.t(border.i < 0 ? "found_border_digit" : "found_border", {
              first: c.labels[border.names[0]],
              second: c.labels[border.names[1]],
              points: Math.round(border.gap),
            }),
            () => useBorder(border),
          ),
        ]
      : []),
  );
}

const canTrain = () => Boolean(DATA.practice) && !untrainable(DATA.config);
const switchesFixed = () => !trace || (trained() && Boolean(recorded));

function switchOf(id, text, checked, disabled, set) {
  return element(
    "label",
    { class: "switch" },
    element("input", { type: "checkbox", id, checked, disabled, onchange: (event) => set(event.target.checked) }),
    element("span", {}, text),
  );
}

// A number that may be very small: 2.5e−7, or 0.
const smallNumber = (value) => (value ? value.toExponential(1).replace("-", "−") : "0");

// What the switches have done.
function noteOfSwitches(c) {
  if (switchesFixed()) return trace ? c.words.switches_recorded : "";
  if (state.withoutPositions && state.shuffled)
    return c.t(model.config.stem.kind === "patch" ? "equivariance" : "no_equivariance", {
      change: smallNumber(changeByShuffling()),
    });
  if (!unchanged || !answers()) return c.words.switch_note;
  const [was] = best(unchanged.logits);
  return c.t("unchanged", { label: c.labels[was], share: percent(probabilities(unchanged.logits)[was]) });
}

// --- The address: what is after # says what is shown, so that a link shows it again. ---------------------------

// An image as letters, as long as an address can hold it: gray values as a (0) to q (16), colors as base64.
function lettersOf(canvas) {
  const image = pixelsOf(canvas, DATA.config);
  if (image.data.length > LONGEST_IMAGE) return null;
  if (DATA.config.channels === 1)
    return Array.from(image.data, (value) => String.fromCharCode(97 + Math.round(16 * value))).join("");
  const bytes = Array.from(image.data, (value) => String.fromCharCode(Math.round(255 * value)));
  return btoa(bytes.join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// The image that letters say; null where they are not those of an image of the model.
function canvasOfLetters(letters) {
  const { channels, image_size } = DATA.config,
    [height, width] = image_size,
    plane = height * width;
  let valueAt; // of a channel and a pixel, 0 to 255
  if (channels === 1) {
    if (letters.length !== plane || !/^[a-q]*$/.test(letters)) return null;
    valueAt = (_, i) => Math.round((255 * (letters.charCodeAt(i) - 97)) / 16);
  } else {
    if (letters.length !== Math.ceil((4 * channels * plane) / 3) || !/^[\w-]*$/.test(letters)) return null;
    const bytes = atob(letters.replaceAll("-", "+").replaceAll("_", "/"));
    valueAt = (channel, i) => bytes.charCodeAt(channel * plane + i);
  }
  return canvasOf(width, height, (pen) => {
    const image = pen.createImageData(width, height);
    for (let i = 0; i < plane; i++) {
      const color = [0, 1, 2].map((channel) => valueAt(channel, i));
      image.data.set([...color, 255], 4 * i);
    }
    pen.putImageData(image, 0, 0);
  });
}

function addressNow() {
  const found = new URLSearchParams();
  if (state.sample >= 0) found.set("s", state.sample);
  else if (state.hidden < 0 && lettersOf(state.source)) found.set("i", lettersOf(state.source));
  if (state.depth !== model.config.depth) found.set("d", state.depth);
  if (state.token || !model.prefix) found.set("t", state.token);
  if (state.withoutPositions) found.set("x", 1);
  if (state.shuffled) found.set("r", 1);
  if (state.covered.size) found.set("c", [...state.covered].join("_"));
  if (state.without.size) found.set("o", [...state.without].join("_"));
  if (state.how) found.set("how", 1);
  if (state.practice) found.set("train", 1);
  if (state.chosenLanguage) found.set("lang", state.language);
  const parts = [state.step ? `step-${state.step}` : "", state.place, String(found)];
  return `#${parts.filter(Boolean).join("&")}`;
}

function writeAddress() {
  const address = addressNow();
  try {
    if (location.hash !== address) history.replaceState(null, "", address);
  } catch {
    // A page in a frame or in a mail has no address of its own.
  }
}

// Read what the address says: a step of the story, a place, and the state of the page.
function readAddress() {
  const [, step, place, text] = /^(?:step-(\d+)(?:&|$))?(?:(\w+)(?:&|$))?(.*)$/s.exec(location.hash.slice(1));
  state.step = canTell() ? Math.min(Number(step ?? 0), STORY.length) : 0;
  state.place = PANELS.some((panel) => panel.id === place) ? place : "";
  const found = new URLSearchParams(text),
    number = (name, most) => Math.max(0, Math.min(most, Math.trunc(Number(found.get(name))) || 0));
  if (found.has("lang") && WORDS[found.get("lang")])
    Object.assign(state, { language: found.get("lang"), chosenLanguage: true });
  if (found.has("s")) Object.assign(state, { sample: number("s", samples.length - 1) });
  if (state.sample >= 0) state.source = samples[state.sample];
  const own = found.has("i") && !recorded ? canvasOfLetters(found.get("i")) : null;
  if (own) Object.assign(state, { source: own, sample: -1 });
  state.depth = found.has("d") ? number("d", model.config.depth) : model.config.depth;
  state.layer = Math.max(0, state.depth - 1);
  state.token = number("t", model.length - 1);
  state.withoutPositions = found.has("x") && !recorded;
  state.shuffled = found.has("r") && !recorded;
  state.covered = new Set((found.get("c") ?? "").split("_").filter((each) => /^\d+$/.test(each) && each < model.count && !recorded).map(Number));
  state.without = new Set((found.get("o") ?? "").split("_").filter((each) => /^\d+\.\d+$/.test(each) && !recorded));
  // A visitor who followed a link is on the map.
  state.how = place === "how" || found.has("how") || Boolean(state.place && !state.step);
  if (state.place && state.how) state.scroll = "how";
  state.practice = found.has("train") && canTrain();
  if (state.practice) state.scroll = "training";
}

async function share() {
  writeAddress();
  const said = byId("said"),
    whole = state.sample >= 0 || state.hidden >= 0 || lettersOf(state.source);
  try {
    if (navigator.share && matchMedia("(pointer: coarse)").matches)
      await navigator.share({ title: document.title, url: location.href });
    else await navigator.clipboard.writeText(location.href);
    byId("share").textContent = said.textContent = words()[whole ? "shared" : "shared_without_image"];
  } catch {
    byId("share").textContent = said.textContent = words().share_failed;
  }
  setTimeout(() => {
    byId("share").textContent = words().share;
  }, 2500);
}
