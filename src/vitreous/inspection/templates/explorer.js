"use strict";
(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const [rows, columns] = data.grid, [coarseRows, coarseColumns] = data.coarse;
  const prefix = data.prefix.length, patches = rows * columns;
  const state = { image: 0, layer: data.layers - 1, head: 0, patch: null, show: "attention" };  // head 0: mean of all
  const unpacked = new Map();
  const byId = (id) => document.getElementById(id);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const heat = bytes(data.heat);
  const say = (name, values = {}) => data.words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

  // Rows of `width` entries: one byte each, then the largest entry of every row as float32.
  async function unpack(text, width) {
    const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
    const raw = new Uint8Array(await new Response(stream).arrayBuffer());
    const count = raw.length / (width + 4);
    const largest = new DataView(raw.buffer, count * width);
    return (row) => {
      const scale = largest.getFloat32(4 * row, true) / 255;
      return Float32Array.from(raw.subarray(row * width, (row + 1) * width), (share) => share * scale);
    };
  }

  async function load(index) {
    if (!unpacked.has(index)) {
      const source = data.images[index], image = new Image();
      image.src = source.src;
      const [, reading, rollout, relevance, maps] = await Promise.all([
        image.decode(),
        unpack(source.reading, prefix + patches),
        unpack(source.rollout, patches),
        source.relevance && unpack(source.relevance, patches),
        source.maps && unpack(source.maps, prefix + coarseRows * coarseColumns),
      ]);
      unpacked.set(index, { image, reading, rollout, relevance, maps, pixels: pixelsOf(image) });
    }
    return unpacked.get(index);
  }

  function pixelsOf(image) {
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, canvas.width, canvas.height);
  }

  // The coarse token in which a patch lies.
  const coarseOf = (patch) => Math.floor(Math.floor(patch / columns) / data.factor) * coarseColumns
    + Math.floor((patch % columns) / data.factor);

  // What is asked of one layer and head: the attention to prefix tokens and to a grid of patches.
  function attention(loaded, layer, head) {
    if (head === 0) {
      const all = Array.from({ length: data.heads }, (_, i) => attention(loaded, layer, i + 1).values);
      const mean = all[0].map((_, i) => all.reduce((sum, each) => sum + each[i], 0) / all.length);
      return { values: mean, grid: gridNow(loaded) };
    }
    const place = layer * data.heads + head - 1;
    if (state.patch === null || !loaded.maps) return { values: loaded.reading(place), grid: gridNow(loaded) };
    const tokens = prefix + coarseRows * coarseColumns;
    return { values: loaded.maps(place * tokens + prefix + coarseOf(state.patch)), grid: gridNow(loaded) };
  }
  const gridNow = (loaded) => (state.patch === null || !loaded.maps ? data.grid : data.coarse);

  function whole(loaded) {
    const values = (state.show === "rollout" ? loaded.rollout : loaded.relevance)(0);
    return { values, grid: data.grid };
  }

  // The end of a map's color scale: four times even attention, or the largest value if it is more.
  function endOf(values) {
    return Math.max(...values, 4 * values.reduce((sum, each) => sum + each, 0) / values.length, 1e-12);
  }
  // Shares in percent with one decimal, rounded so that they add up.
  function rounded(shares) {
    const all = shares.reduce((sum, each) => sum + each, 0), exact = shares.map((share) => 1000 * share / all);
    const tenths = exact.map(Math.floor), missing = 1000 - tenths.reduce((sum, each) => sum + each, 0);
    const order = exact.map((share, i) => [share - tenths[i], i]).sort((one, other) => other[0] - one[0]);
    for (const [, i] of order.slice(0, missing)) tenths[i] += 1;
    return tenths.map((each) => say("percent", { number: (each / 10).toFixed(1) }));
  }
  // The numbers of a map, as its legend.
  function scale(values) {
    const sum = Math.max(values.reduce((all, each) => all + each, 0), 1e-12), shares = values.map((each) => each / sum);
    const entropy = shares.reduce((all, each) => all - (each > 0 ? each * Math.log(each) : 0), 0) / Math.log(Math.max(shares.length, 2));
    const small = (share) => say("percent", { number: (100 * share).toFixed(share < .01 ? 2 : 1) });
    return say("map", { low: small(Math.min(...shares)), high: small(Math.max(...shares)), even: small(1 / shares.length),
      entropy: say("percent", { number: (100 * entropy).toFixed(0) }) });
  }

  // Heat over the image in gray, patch by patch.
  function paint(canvas, pixels, values, [down, across]) {
    const { width, height } = pixels, out = new ImageData(width, height);
    const largest = endOf(values);
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const patch = patchAt(x / width, y / height, down, across), value = values[patch] / largest;
        const at = 4 * (y * width + x), color = 3 * Math.round(255 * value), share = 0.3 + 0.6 * value;
        const gray = 0.15 * (pixels.data[at] + pixels.data[at + 1] + pixels.data[at + 2]);
        for (let c = 0; c < 3; c++) out.data[at + c] = gray * (1 - share) + heat[color + c] * share;
        out.data[at + 3] = 255;
      }
    }
    canvas.width = width; canvas.height = height;
    canvas.getContext("2d").putImageData(out, 0, 0);
  }
  // Images may be padded to whole patches and coarse patches may overhang: places are counted in fine patches.
  function patchAt(x, y, down, across) {
    const factor = down === rows && across === columns ? 1 : data.factor;
    return Math.floor(Math.min(Math.floor(y * rows), rows - 1) / factor) * across
      + Math.floor(Math.min(Math.floor(x * columns), columns - 1) / factor);
  }

  function paintImage(loaded) {
    const canvas = byId("image"), { width, height } = loaded.pixels;
    const scale = Math.max(1, Math.ceil(560 / Math.max(width, height)));
    canvas.width = width * scale; canvas.height = height * scale;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(loaded.image, 0, 0, canvas.width, canvas.height);
    if (state.patch === null || state.show !== "attention") return;
    const block = loaded.maps ? data.factor : 1;
    const row = Math.floor(Math.floor(state.patch / columns) / block) * block;
    const column = Math.floor((state.patch % columns) / block) * block;
    const w = canvas.width / columns, h = canvas.height / rows;
    const box = [column * w, row * h, w * Math.min(block, columns - column), h * Math.min(block, rows - row)];
    context.lineWidth = 4; context.strokeStyle = "#000"; context.strokeRect(...box);
    context.lineWidth = 2; context.strokeStyle = "#fff"; context.strokeRect(...box);
  }

  // Every head of every layer, for the same question.
  function paintAtlas(loaded) {
    const canvas = byId("atlas"), [down, across] = gridNow(loaded), gap = 2;
    const tile = Math.max(10, Math.min(88, Math.floor(736 / data.heads) - gap));
    const tall = Math.max(4, Math.round(tile * rows / columns));
    canvas.width = data.heads * (tile + gap); canvas.height = data.layers * (tall + gap);
    const context = canvas.getContext("2d"), small = document.createElement("canvas");
    small.width = across; small.height = down;
    context.imageSmoothingEnabled = false;
    for (let layer = 0; layer < data.layers; layer++) {
      for (let head = 1; head <= data.heads; head++) {
        const values = attention(loaded, layer, head).values.slice(prefix), largest = endOf(values);
        const image = new ImageData(across, down);
        values.forEach((value, i) => {
          const color = 3 * Math.round(255 * value / largest);
          image.data.set([heat[color], heat[color + 1], heat[color + 2], 255], 4 * i);
        });
        small.getContext("2d").putImageData(image, 0, 0);
        const left = (head - 1) * (tile + gap), top = layer * (tall + gap);
        context.drawImage(small, left, top, tile, tall);
        if (layer === state.layer && (head === state.head || state.head === 0)) {
          context.lineWidth = 2; context.strokeStyle = "#57b8ca";
          context.strokeRect(left + 1, top + 1, tile - 2, tall - 2);
        }
      }
    }
  }

  function describe(loaded, values) {
    if (state.show === "rollout") return say("rollout", { readout: data.reads });
    if (state.show === "relevance") return say("relevance");
    const who = state.patch === null ? data.reads
      : say("patch", { row: Math.floor(state.patch / columns) + 1, column: state.patch % columns + 1 });
    if (state.patch !== null && !loaded.maps) {
      return say("not-stored", { readout: data.reads });
    }
    const head = state.head === 0 ? say("mean-of-heads") : say("head", { head: state.head });
    const others = data.prefix.map((name, i) => [values[i], state.patch === null && data.reads === name ? say("itself") : name]);
    const own = state.patch === null ? 0 : values[prefix + coarseOf(state.patch)];
    const rest = values.slice(prefix).reduce((sum, each) => sum + each, 0) - own;
    const given = state.patch === null ? [...others, [rest, say("all-patches")]]
      : [[own, say("itself")], ...others, [rest, say("other-patches")]];
    const shares = rounded(given.map(([share]) => share));
    const parts = given.map(([, name], i) => say("to", { share: shares[i], name }));
    return say("sentence", { layer: state.layer + 1, head, who, parts: parts.join(", ") });
  }

  async function draw() {
    const index = state.image, loaded = await load(index);
    if (index !== state.image) return;  // another was chosen meanwhile
    const asks = state.show === "attention";
    const { values, grid } = asks ? attention(loaded, state.layer, state.head) : whole(loaded);
    paintImage(loaded);
    paint(byId("map"), loaded.pixels, asks ? values.slice(prefix) : values, grid);
    byId("map").classList.toggle("pixelated", Math.max(loaded.pixels.width, loaded.pixels.height) < 64);
    paintAtlas(loaded);
    byId("scale").textContent = scale(asks ? values.slice(prefix) : values);
    byId("words").textContent = describe(loaded, values);
    byId("layer-now").textContent = say("of", { number: state.layer + 1, count: data.layers });
    byId("head-now").textContent = state.head === 0 ? say("mean-of-all") : say("of", { number: state.head, count: data.heads });
    byId("image-name").textContent = data.images[index].name;
    byId("reset").disabled = state.patch === null;
    for (const id of ["layer", "head"]) byId(id).disabled = !asks;
    document.querySelectorAll(".chosen button").forEach((b, i) => b.setAttribute("aria-pressed", i === index));
    document.querySelector(".explorer").dataset.drawn = JSON.stringify(state);
  }
  const change = (changes) => { Object.assign(state, changes); draw(); };

  data.images.forEach((entry, index) => {
    const button = document.createElement("button"), image = document.createElement("img");
    button.type = "button"; button.title = entry.name;
    image.src = entry.src; image.alt = entry.name;
    if (Math.max(rows * data.patch[0], columns * data.patch[1]) < 64) image.className = "pixelated";
    button.append(image);
    button.addEventListener("click", () => change({ image: index }));
    document.querySelector(".chosen").append(button);
  });
  byId("layer").max = data.layers; byId("layer").value = state.layer + 1;
  byId("head").max = data.heads;
  byId("layer").addEventListener("input", (event) => change({ layer: event.target.value - 1 }));
  byId("head").addEventListener("input", (event) => change({ head: Number(event.target.value) }));
  byId("show").addEventListener("change", (event) => change({ show: event.target.value }));
  byId("reset").addEventListener("click", () => change({ patch: null }));
  for (const id of ["image", "map"]) {
    byId(id).addEventListener("click", (event) => {
      const box = event.target.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      byId("show").value = "attention";
      change({ patch: patchAt(x, y, rows, columns), show: "attention" });
    });
  }
  byId("image").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = state.patch ?? Math.floor(rows / 2) * columns + Math.floor(columns / 2);
    const row = Math.min(Math.max(Math.floor(from / columns) + step[0], 0), rows - 1);
    const column = Math.min(Math.max(from % columns + step[1], 0), columns - 1);
    change({ patch: row * columns + column });
  });
  byId("atlas").addEventListener("click", (event) => {
    const box = event.target.getBoundingClientRect();
    const layer = Math.floor((event.clientY - box.top) / box.height * data.layers);
    const head = Math.floor((event.clientX - box.left) / box.width * data.heads) + 1;
    byId("layer").value = layer + 1; byId("head").value = head; byId("show").value = "attention";
    change({ layer, head, show: "attention" });
  });
  draw();
})();
