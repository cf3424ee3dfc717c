const explorer = document.querySelector(".explorer");
const within = (value, low, high) => Math.min(Math.max(value, low), high);
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const unpacked = new Map();
// The patch that is asked, and the one under the pointer: [y, x] in 0 ... 1, so that grids of two models share them.
let asked = null, comparing = false;

async function load(number, index) {
  const key = `${number} ${index}`;
  if (!unpacked.has(key)) {
    const model = data.models[number], source = model.images[index], image = new Image();
    const prefix = model.prefix.length, patches = model.grid[0] * model.grid[1];
    image.src = source.src;
    const [, reading, rollout, relevance, maps] = await Promise.all([
      image.decode(),
      unpack(source.reading, prefix + patches),
      unpack(source.rollout, patches),
      source.relevance && unpack(source.relevance, patches),
      source.maps && unpack(source.maps, prefix + model.coarse[0] * model.coarse[1]),
    ]);
    unpacked.set(key, { image, reading, rollout, relevance, maps, pixels: pixelsOf(image) });
  }
  return unpacked.get(key);
}

// One view: a model, an image, a layer and a head of its own, with the query that all views share.
class Pane {
  constructor(letter) {
    this.letter = letter;
    const model = letter === "a" ? 0 : data.models.length - 1;
    this.state = { model, image: 0, layer: data.models[model].layers - 1, head: 0, show: "attention" };  // head 0: mean of all
    this.now = null;  // what is drawn: its values for each patch, and the map's grid
    if (this.part("model")) data.models.forEach((model, i) => this.part("model").add(new Option(model.name, i)));
    this.listen();
  }
  part(name) { return byId(`${name}-${this.letter}`); }
  get model() { return data.models[this.state.model]; }
  get grid() { return this.model.grid; }
  get prefix() { return this.model.prefix.length; }
  // The patch that is asked, by its number; null where it is what the head reads.
  get patch() { return asked && this.patchAt(asked[1], asked[0], ...this.grid); }
  // Images may be padded to whole patches and coarse patches may overhang: places are counted in fine patches.
  patchAt(x, y, down, across) {
    const [rows, columns] = this.grid, factor = down === rows && across === columns ? 1 : this.model.factor;
    return Math.floor(Math.min(Math.floor(y * rows), rows - 1) / factor) * across
      + Math.floor(Math.min(Math.floor(x * columns), columns - 1) / factor);
  }
  centerOf(row, column) { return [(row + .5) / this.grid[0], (column + .5) / this.grid[1]]; }

  // The attention of one layer and head to every token, and the grid of its patches.
  attention(loaded, layer, head) {
    const { heads, coarse } = this.model, grid = this.patch === null || !loaded.maps ? this.grid : coarse;
    if (head === 0) {
      const all = Array.from({ length: heads }, (_, i) => this.attention(loaded, layer, i + 1).values);
      return { values: all[0].map((_, i) => all.reduce((sum, each) => sum + each[i], 0) / all.length), grid };
    }
    const place = layer * heads + head - 1;
    if (grid !== coarse) return { values: loaded.reading(place), grid };
    return { values: loaded.maps(place * (this.prefix + coarse[0] * coarse[1]) + this.prefix + this.patchAt(asked[1], asked[0], ...coarse)), grid };
  }

  paintImage(loaded) {
    const canvas = this.part("image"), { width, height } = loaded.pixels, [rows, columns] = this.grid;
    const times = Math.max(1, Math.ceil(560 / Math.max(width, height)));
    canvas.width = width * times; canvas.height = height * times;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(loaded.image, 0, 0, canvas.width, canvas.height);
    if (asked === null || this.state.show !== "attention") return;
    const [top, left, tall, wide] = this.block(this.patch, loaded.maps ? this.model.factor : 1);
    const box = [left / columns * canvas.width, top / rows * canvas.height, wide / columns * canvas.width, tall / rows * canvas.height];
    context.lineWidth = 4; context.strokeStyle = "#000"; context.strokeRect(...box);
    context.lineWidth = 2; context.strokeStyle = "#fff"; context.strokeRect(...box);
  }
  // The rows and columns of patches that are merged with this one: top, left, height, width.
  block(patch, factor) {
    const [rows, columns] = this.grid, start = (at) => Math.floor(at / factor) * factor;
    const top = start(Math.floor(patch / columns)), left = start(patch % columns);
    return [top, left, Math.min(factor, rows - top), Math.min(factor, columns - left)];
  }

  // Every head of every layer, for the same question, with their numbers along the edges.
  paintAtlas(loaded) {
    const { layers, heads } = this.model, canvas = this.part("atlas"), gap = 2;
    const { grid: [down, across] } = this.attention(loaded, 0, 1);
    const tile = within(Math.floor(736 / heads) - gap, 10, 88), tall = Math.max(4, Math.round(tile * this.grid[0] / this.grid[1]));
    canvas.width = heads * (tile + gap); canvas.height = layers * (tall + gap);
    canvas.parentElement.style.setProperty("--wide", canvas.width + "px");
    const context = canvas.getContext("2d"), one = document.createElement("canvas");
    one.width = across; one.height = down;
    context.imageSmoothingEnabled = false;
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 1; head <= heads; head++) {
        const values = this.attention(loaded, layer, head).values.slice(this.prefix), largest = endOf(values);
        const image = new ImageData(across, down);
        values.forEach((value, i) => {
          const color = 3 * Math.round(255 * value / largest);
          image.data.set([heat[color], heat[color + 1], heat[color + 2], 255], 4 * i);
        });
        one.getContext("2d").putImageData(image, 0, 0);
        const left = (head - 1) * (tile + gap), top = layer * (tall + gap);
        context.drawImage(one, left, top, tile, tall);
        if (layer === this.state.layer && (head === this.state.head || this.state.head === 0)) {
          context.lineWidth = 2; context.strokeStyle = "#57b8ca";
          context.strokeRect(left + 1, top + 1, tile - 2, tall - 2);
        }
      }
    }
    this.label("heads", heads, tile, 18, (head) => this.state.show === "attention" && (this.state.head === 0 || head === this.state.head));
    this.label("layers", layers, tall, 12, (layer) => this.state.show === "attention" && layer === this.state.layer + 1);
  }
  // Numbers along an edge of the atlas, every n-th where they would not fit.
  label(axis, count, size, least, current) {
    const every = Math.ceil(least / (size + 2));
    this.part(axis).replaceChildren(...Array.from({ length: count }, (_, i) => {
      const number = document.createElement("span");
      number.textContent = i % every ? "" : i + 1;
      number.classList.toggle("now", current(i + 1));
      return number;
    }));
  }

  describe(loaded, values) {
    const { show, layer, head } = this.state, reads = this.model.reads, patch = this.patch;
    if (show === "rollout") return say("rollout", { readout: reads });
    if (show === "relevance") return say("relevance");
    if (patch !== null && !loaded.maps) return say("not-stored", { readout: reads });
    if (patch === null && !this.model.prefix.length) return ""; // all patches together get everything
    const who = patch === null ? reads
      : say("patch", { row: Math.floor(patch / this.grid[1]) + 1, column: patch % this.grid[1] + 1 });
    const others = this.model.prefix.map((name, i) => [values[i], patch === null && reads === name ? say("itself") : name]);
    const own = patch === null ? 0 : values[this.prefix + this.patchAt(asked[1], asked[0], ...this.now.grid)];
    const rest = values.slice(this.prefix).reduce((sum, each) => sum + each, 0) - own;
    const given = patch === null ? [...others, [rest, say("all-patches")]]
      : [[own, say("itself")], ...others, [rest, say("other-patches")]];
    const shares = rounded(given.map(([share]) => share));
    const parts = given.map(([, name], i) => say("to", { share: shares[i], name }));
    const whose = head === 0 ? say("mean-of-heads") : say("head", { head });
    return say("sentence", { layer: layer + 1, head: whose, who, parts: parts.join(", ") });
  }

  async draw() {
    const { model, image, show, layer, head } = this.state, loaded = await load(model, image);
    if (model !== this.state.model || image !== this.state.image) return;  // another was chosen meanwhile
    const asks = show === "attention";
    const { values, grid } = asks ? this.attention(loaded, layer, head) : { values: loaded[show](0), grid: this.grid };
    this.now = { patches: asks ? values.slice(this.prefix) : values, grid };
    this.paintImage(loaded);
    paintHeat(this.part("map"), loaded.pixels, this.now.patches, (x, y) => this.patchAt(x, y, ...grid));
    this.paintAtlas(loaded);
    this.part("scale").textContent = scale(this.now.patches);
    this.part("words").textContent = this.describe(loaded, values);
    this.part("layer").max = this.model.layers; this.part("layer").value = layer + 1;
    this.part("head").max = this.model.heads; this.part("head").value = head;
    this.part("show").value = show;
    if (this.part("model")) this.part("model").value = model;
    this.part("layer-now").textContent = say("of", { number: layer + 1, count: this.model.layers });
    this.part("head-now").textContent = head === 0 ? say("mean-of-all") : say("of", { number: head, count: this.model.heads });
    this.part("name").textContent = this.model.images[image].name;
    this.part("reset").disabled = asked === null;
    for (const id of ["layer", "head"]) this.part(id).disabled = !asks;
    this.thumbnails();
  }
  thumbnails() {
    const box = this.part("chosen"), { images, grid, patch } = this.model;
    if (box.dataset.model !== String(this.state.model)) {
      box.dataset.model = this.state.model;
      box.replaceChildren(...images.map((entry, index) => {
        const button = document.createElement("button"), image = document.createElement("img");
        button.type = "button"; button.title = entry.name;
        image.src = entry.src; image.alt = entry.name;
        if (Math.max(grid[0] * patch[0], grid[1] * patch[1]) < 64) image.className = "pixelated";
        button.append(image);
        button.addEventListener("click", () => this.change({ image: index }));
        return button;
      }));
    }
    box.childNodes.forEach((button, i) => button.setAttribute("aria-pressed", i === this.state.image));
  }

  // Frames the patch at a place in image and map, and says its share.
  point(place) {
    for (const mark of this.part("views").querySelectorAll(".mark")) mark.hidden = !place;
    this.part("at").textContent = "";
    if (!place || !this.now) return;
    const [down, across] = this.now.grid, fine = this.patchAt(place[1], place[0], ...this.grid), [rows, columns] = this.grid;
    const [top, left, tall, wide] = this.block(fine, down === rows && across === columns ? 1 : this.model.factor);
    for (const mark of this.part("views").querySelectorAll(".mark")) {
      Object.assign(mark.style, { top: 100 * top / rows + "%", left: 100 * left / columns + "%",
        height: 100 * tall / rows + "%", width: 100 * wide / columns + "%" });
    }
    const share = sharesOf(this.now.patches)[this.patchAt(place[1], place[0], down, across)];
    this.part("at").textContent = say("at", { row: Math.floor(fine / columns) + 1, column: fine % columns + 1, share: small(share) });
  }

  change(changes) {
    Object.assign(this.state, changes);
    this.fit();
    redraw();
  }
  // What another model or a link says may be more than there is.
  fit() {
    const { state } = this;
    state.model = within(state.model, 0, data.models.length - 1);
    state.image = within(state.image, 0, this.model.images.length - 1);
    state.layer = within(state.layer, 0, this.model.layers - 1);
    state.head = within(state.head, 0, this.model.heads);
    if (!["attention", "rollout"].includes(state.show) && !this.model.images[0][state.show]) state.show = "attention";
  }

  listen() {
    this.part("layer").addEventListener("input", (event) => this.change({ layer: event.target.value - 1 }));
    this.part("head").addEventListener("input", (event) => this.change({ head: Number(event.target.value) }));
    this.part("show").addEventListener("change", (event) => this.change({ show: event.target.value }));
    this.part("model")?.addEventListener("change", (event) => this.change({ model: Number(event.target.value) }));
    this.part("reset").addEventListener("click", () => ask(null));
    for (const id of ["image", "map"]) {
      const canvas = this.part(id), place = (event) => {
        const box = canvas.getBoundingClientRect();
        return [within((event.clientY - box.top) / box.height, 0, 1), within((event.clientX - box.left) / box.width, 0, 1)];
      };
      const query = (at) => { this.state.show = "attention"; ask(this.snapped(at)); };
      canvas.addEventListener("click", (event) => query(place(event)));
      canvas.addEventListener("pointermove", (event) => panes.forEach((pane) => pane.point(place(event))));
      canvas.addEventListener("pointerleave", () => panes.forEach((pane) => pane.point(null)));
      canvas.addEventListener("blur", () => panes.forEach((pane) => pane.point(null)));
      let held = null;  // where the arrow keys are in the map
      canvas.addEventListener("keydown", (event) => {
        const step = STEPS[event.key], [rows, columns] = this.grid;
        if (event.key === "Escape") { held = null; ask(null); }
        if (event.key === "Enter" && held) query(held);
        if (!step) return;
        event.preventDefault();
        const [y, x] = (id === "map" && held) || asked || [.5, .5];
        held = this.snapped([within(y + step[0] / rows, 0, 1), within(x + step[1] / columns, 0, 1)]);
        if (id === "image") query(held); else panes.forEach((pane) => pane.point(held));
      });
    }
    const atlas = this.part("atlas");
    atlas.addEventListener("click", (event) => {
      const box = atlas.getBoundingClientRect();
      const layer = Math.floor((event.clientY - box.top) / box.height * this.model.layers);
      this.change({ layer, head: Math.floor((event.clientX - box.left) / box.width * this.model.heads) + 1, show: "attention" });
    });
    atlas.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      this.change({ layer: this.state.layer + step[0], head: Math.max(this.state.head + step[1], 1), show: "attention" });
    });
  }
  snapped([y, x]) {
    const [rows, columns] = this.grid;
    return this.centerOf(Math.min(Math.floor(y * rows), rows - 1), Math.min(Math.floor(x * columns), columns - 1));
  }

  // The state in an address, with "b." before the names of the second view.
  get link() {
    const { model, image, layer, head, show } = this.state, before = this.letter === "a" ? "" : "b.";
    const all = { layer: layer + 1, head: head || "mean", image: image + 1, ...(show !== "attention" && { show }),
      ...(data.models.length > 1 && { model: model + 1 }) };
    return Object.entries(all).map(([key, value]) => `${before}${key}=${value}`);
  }
  follow(given) {
    const before = this.letter === "a" ? "" : "b.";
    const count = (key) => Number.parseInt(given.get(before + key), 10);
    for (const key of ["model", "image", "layer"]) if (count(key) > 0) this.state[key] = count(key) - 1;
    if (given.has(before + "head")) this.state.head = count("head") > 0 ? count("head") : 0;
    if (given.has(before + "show")) this.state.show = given.get(before + "show");
    this.fit();
  }
}

const panes = ["a", "b"].map((letter) => new Pane(letter)), [first, second] = panes;
const shown = () => (comparing ? panes : [first]);
function ask(place) { asked = place; redraw(); }

async function draw() {
  byId("pane-b").hidden = !comparing;
  byId("compare").setAttribute("aria-pressed", comparing);
  explorer.classList.toggle("comparing", comparing);
  await Promise.all(shown().map((pane) => pane.draw()));
  const patch = first.patch;
  explorer.dataset.drawn = JSON.stringify({ ...first.state, patch, second: comparing ? second.state : null });
}
function redraw() {
  const columns = first.grid[1], patch = first.patch;
  const parts = [...shown().flatMap((pane) => pane.link),
    ...(patch === null ? [] : [`patch=${Math.floor(patch / columns) + 1}x${patch % columns + 1}`])];
  try {
    history.replaceState(null, "", "#" + parts.join("&"));
  } catch { /* a page inside another one has no address */ }
  draw();
}
// #layer=3&head=5&patch=6x9, all counted from 1, and perhaps image, show, model, and b.layer ... of a second view.
function follow() {
  const given = new URLSearchParams(location.hash.slice(1)), keys = [...given.keys()];
  const known = keys.filter((key) => /^(b\.)?(layer|head|image|show|model)$|^patch$/.test(key));
  if (!known.length) return false;
  comparing = known.some((key) => key.startsWith("b."));
  panes.forEach((pane) => pane.follow(given));
  const [, row, column] = given.get("patch")?.match(/^(\d+)x(\d+)$/) ?? [], [rows, columns] = first.grid;
  asked = row > 0 && column > 0 && row <= rows && column <= columns ? first.centerOf(row - 1, column - 1) : null;
  return true;
}

byId("compare").addEventListener("click", () => {
  comparing = !comparing;
  if (comparing) Object.assign(second.state, first.state, { model: data.models.length - 1 });
  second.fit();
  redraw();
});
addEventListener("hashchange", () => { if (follow()) draw(); });
if (follow()) byId("explorer").scrollIntoView();
else comparing = data.models.length > 1;
draw();
