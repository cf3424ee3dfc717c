// --- images: chosen, dropped, pasted, or examples --------------------------------------------------------

const items = [];
let selected = null;

function add(files) {
  const images = [...files].slice(0, settings.most);
  if (!images.length) return;
  const first = items.length;
  for (const file of images) items.push(new Item(file, file.name || "image"));
  if (items.length > 1) byId("strip").hidden = false;
  select(items[first]);
  for (const item of items.slice(first + 1)) item.predict().catch(() => {});
}

class Item {
  constructor(file, name, listed = true) {
    this.file = file;
    this.name = name;
    this.looks = new Map();
    if (!listed) return;
    this.words = make("span", {}, "…");
    const image = make("img", { src: URL.createObjectURL(file), alt: "" });
    image.addEventListener("error", () => { image.style.visibility = "hidden"; });
    this.button = make("button", { type: "button", title: name, "aria-pressed": "false" }, image, this.words);
    this.button.addEventListener("click", () => select(this));
    byId("strip").append(this.button);
  }

  post(endpoint, parameters) {
    const form = new FormData();
    form.append("files", this.file, this.name);
    return ask(endpoint, parameters, form);
  }

  // The answer, asked for until there is one; its short form stands below the thumbnail.
  predict() {
    this.answer ??= this.post("predict", settings.predict).then(
      (reply) => { const answer = reply.predictions[0]; this.label(brief(answer)); this.button?.classList.remove("bad"); return answer; },
      (error) => { this.answer = null; this.label(say("error")); this.button?.classList.add("bad"); throw error; },
    );
    return this.answer;
  }

  label(text) {
    if (this.words) this.words.textContent = text;
    this.button?.setAttribute("aria-label", this.name + ": " + text);
  }

  // The map of a way to look, asked for until there is one.
  look(parameters) {
    const key = JSON.stringify(parameters);
    if (!this.looks.has(key)) {
      this.looks.set(key, this.post("attention", { ...parameters, seen: true }).then(
        (reply) => reply.attention[0], (error) => { this.looks.delete(key); throw error; }));
    }
    return this.looks.get(key);
  }
}

function select(item) {
  selected = item;
  for (const each of items) each.button?.setAttribute("aria-pressed", String(each === item));
  show(() => work(item));
}

byId("file").addEventListener("change", (event) => { add(event.target.files); event.target.value = ""; });
addEventListener("paste", (event) => add(event.clipboardData?.files ?? []));
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dragging"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  add(event.dataTransfer.files);
});
for (const button of document.querySelectorAll(".examples .example")) {
  button.addEventListener("click", () => select(new Item(blobOf(button.dataset.src), "example.png", false)));
}

function blobOf(uri) {
  const [head, data] = uri.split(",");
  return new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], { type: head.slice(5).split(";")[0] });
}

// --- heat over what the model sees -------------------------------------------------------------------------

const heat = Uint8Array.from(atob(settings.heat), (c) => c.charCodeAt(0));
const LONG = 576;  // pixels of the canvas's longer side, at least

async function decoded(uri) {
  const image = new Image();
  image.src = uri;
  await image.decode();
  return image;
}

// The image's pixels, enlarged with hard edges where it is small, and an image of the same size.
function enlarged(canvas, image) {
  const { naturalWidth: w, naturalHeight: h } = image, times = Math.max(1, Math.ceil(LONG / Math.max(w, h)));
  canvas.width = w * times;
  canvas.height = h * times;
  canvas.parentElement.classList.toggle("wide", w > 1.6 * h);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingEnabled = Math.max(w, h) >= 96;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

// The end of a map's color scale: four times even attention, or the largest value if it is more.
function endOf(values) {
  return Math.max(...values, 4 * values.reduce((sum, each) => sum + each, 0) / values.length, 1e-12);
}

// The numbers of a map, as its legend.
function scaleOf(map) {
  const values = map.flat(), sum = Math.max(values.reduce((all, each) => all + each, 0), 1e-12);
  const shares = values.map((each) => each / sum), small = (share) => say("percent", { number: (100 * share).toFixed(share < .01 ? 2 : 1) });
  return say("map", { low: small(Math.min(...shares)), high: small(Math.max(...shares)), even: small(1 / shares.length),
    entropy: wholePercent(Math.round(100 * entropyOf(shares))) });
}

// Heat over the image, which turns gray and dark below it; to the map's scale, each patch melting into the next. `opacity` is 0 (the image alone) ... 1.
function overlay(canvas, image, values, opacity) {
  const pixels = enlarged(canvas, image), { data, width, height } = pixels;
  const rows = values.length, columns = values[0].length, largest = endOf(values.flat());
  const clamp = (x, most) => Math.min(Math.max(x, 0), most);
  for (let y = 0; y < height; y++) {
    const v = clamp((y + .5) / height * rows - .5, rows - 1), r = Math.floor(v), below = Math.min(r + 1, rows - 1);
    for (let x = 0; x < width; x++) {
      const u = clamp((x + .5) / width * columns - .5, columns - 1), c = Math.floor(u), right = Math.min(c + 1, columns - 1);
      const upper = values[r][c] * (1 - u + c) + values[r][right] * (u - c);
      const lower = values[below][c] * (1 - u + c) + values[below][right] * (u - c);
      const value = (upper * (1 - v + r) + lower * (v - r)) / largest;
      const share = opacity * (.3 + .6 * value), color = 3 * Math.round(255 * value), at = 4 * (y * width + x);
      const gray = .15 * (data[at] + data[at + 1] + data[at + 2]);
      for (let i = 0; i < 3; i++) {
        const ground = data[at + i] * (1 - opacity) + gray * opacity;
        data[at + i] = ground * (1 - share) + heat[color + i] * share;
      }
    }
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}
