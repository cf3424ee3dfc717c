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
  const says = [c.t("stage_lead"), w[recorded ? "stage_recorded" : "stage_live"]];
  if (DATA.bundled === "emoji") says.push(c.t("stage_emoji"));
  if (!DATA.trained) says.push(w.fresh);
  byId("stage-lead").textContent = says.join(" ");
  byId("sight-note").textContent = trace ? c.t("sight_note") + (c.config.class_token ? ` ${w.sight_note_class}` : "") : "";
  byId("stage-hint").textContent = pad.enabled ? w.hint_draw : recorded ? w.hint_recorded : w.hint_drop;
  byId("stage-pad").setAttribute("aria-label", pad.enabled ? w.pad : w.image);
  for (const [i, button] of [...byId("stage-samples").children].entries()) {
    button.setAttribute("aria-pressed", String(i === state.sample));
    button.setAttribute("aria-label", filled(w.sample, { label: named(DATA.samples[i].label) }));
  }
  range.max = c.L;
  range.value = state.depth;
  range.setAttribute("aria-valuetext", depthName(c));
  byId("depth-now").textContent = depthName(c);
  drawSight(c);
  drawGuess(c);
  drawStageSwitches(c);
  byId("how-open").textContent = w[state.how ? "how_close" : "how"];
  byId("how-open").setAttribute("aria-expanded", String(state.how));
  byId("train-open").hidden = !canTrain();
  byId("train-open").textContent = w[state.practice ? "train_close" : "train"];
  byId("train-open").setAttribute("aria-expanded", String(state.practice));
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
    side: innerWidth > 960 ? Math.max(272, Math.min(420, innerHeight - 530)) : 272,
    gap: c.grid[1] > 8 ? 1 : 3,
    marked: state.token - c.prefix,
    at: (n) => c.tokenName(n + c.prefix),
    pick: (n) => update({ token: n + c.prefix }),
  });
  const over = (event) => {
    const box = canvas.getBoundingClientRect(),
      y = Math.floor(((event.clientY - box.top) / box.height) * c.grid[0]),
      x = Math.floor(((event.clientX - box.left) / box.width) * c.grid[1]);
    return Math.max(0, Math.min(c.N - 1, y * c.grid[1] + x)) + c.prefix;
  };
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
    if (!event.key.startsWith("Arrow")) return;
    const [r, column] = canvas.cursor;
    hover.token = r * c.grid[1] + column + c.prefix;
    drawLines(context());
  });
  host.replaceChildren(canvas);
  if (focused) canvas.focus({ preventScroll: true });
  drawLines(c);
}

// Curves from the watched token, one color for each head: the wider, the more attention.
function drawLines(c) {
  const svg = byId("sight-lines"),
    canvas = byId("sight-canvas"),
    box = svg.getBoundingClientRect(),
    layer = trace?.layers[shownLayer()];
  const token = watched(),
    name = c.tokenName(token);
  byId("sight-caption").textContent = layer?.heads
    ? c.t("looks_in_layer", { token: name, number: shownLayer() + 1 })
    : c.words.no_attention_yet;
  svg.replaceChildren();
  if (!canvas || !layer?.heads || !box.width) return;
  const place = (t) => {
    if (t < c.prefix) {
      const chip = byId("sight-class").getBoundingClientRect();
      return t ? null : [chip.left + chip.width / 2 - box.left, chip.bottom - box.top + BELOW];
    }
    const from = canvas.getBoundingClientRect(),
      n = t - c.prefix;
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
  layer.heads.forEach((head, k) => {
    if (state.without.has(`${shownLayer()}.${k}`)) return;
    const weights = row(head.weights, token),
      targets = [...weights.keys()]
        .filter((t) => weights[t] > 1.25 / c.T)
        .sort((a, b) => weights[b] - weights[a])
        .slice(0, 4);
    for (const t of targets) {
      const end = place(t),
        share = weights[t];
      if (!end) continue;
      const look = { stroke: headColor(k), "stroke-width": 1.2 + 7 * share, opacity: 0.35 + 0.6 * share };
      if (t === token) {
        made("circle", { cx: end[0], cy: end[1], r: (t < c.prefix ? 7 : 13) + 2.5 * (k % 4), fill: "none", ...look });
        continue;
      }
      // Heads bend to different sides, so that their lines do not cover each other.
      const bend = (k - (c.K - 1) / 2) * 14,
        [dx, dy] = [end[0] - start[0], end[1] - start[1]],
        length = Math.hypot(dx, dy) || 1;
      const mid = [(start[0] + end[0]) / 2 - (dy / length) * bend, (start[1] + end[1]) / 2 + (dx / length) * bend];
      made("path", { d: `M${start}Q${mid} ${end}`, fill: "none", "stroke-linecap": "round", ...look });
      made("circle", { cx: end[0], cy: end[1], r: 3 + 4 * share, fill: headColor(k), opacity: look.opacity });
    }
  });
  made("circle", { cx: start[0], cy: start[1], r: 5, class: "source" });
}

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
  byId("guess-now").textContent = `${c.labels[top]} · ${percent(p[top])}`;
  const rows = DATA.labels.length <= 10 ? [...DATA.labels.keys()] : best(trace.logits).slice(0, 8);
  const names = rows.map((k) => c.labels[k]).join();
  if (host.dataset.names !== names) {
    host.dataset.names = names;
    host.style.setProperty("--name", `${Math.min(6, 0.6 + 0.6 * Math.max(...rows.map((k) => c.labels[k].length)))}rem`);
    host.replaceChildren(...bars(rows.map((k) => ({ name: c.labels[k], share: 0, text: "", ghost: 0 }))).children);
  }
  [...host.children].forEach((each, i) => {
    const k = rows[i],
      ghost = each.querySelector("u");
    each.className = k === top ? "strong" : "";
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
          onclick: () => {
            const without = new Set(state.without);
            without.has(key) ? without.delete(key) : without.add(key);
            change({ without });
          },
        },
        String(k + 1),
      );
    }),
  );
  byId("stage-note").textContent = noteOfSwitches(c);
  if (focus) byId(focus)?.focus({ preventScroll: true });
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
  if (!unchanged) return c.words.switch_note;
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
  if (state.token) found.set("t", state.token);
  if (state.withoutPositions) found.set("x", 1);
  if (state.shuffled) found.set("r", 1);
  if (state.without.size) found.set("o", [...state.without].join("_"));
  if (state.how) found.set("how", 1);
  if (state.practice) found.set("train", 1);
  if (state.chosenLanguage) found.set("lang", state.language);
  return `#${found}`;
}

function writeAddress() {
  const address = addressNow();
  try {
    if (location.hash !== address) history.replaceState(null, "", address);
  } catch {
    // A page in a frame or in a mail has no address of its own.
  }
}

// Read what the address says: a panel, or a state of the page.
function readAddress() {
  const text = location.hash.slice(1);
  if (PANELS.some((panel) => panel.id === text)) return Object.assign(state, { how: true, scroll: text });
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
  state.without = new Set((found.get("o") ?? "").split("_").filter((each) => /^\d+\.\d+$/.test(each) && !recorded));
  state.how = found.has("how");
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
