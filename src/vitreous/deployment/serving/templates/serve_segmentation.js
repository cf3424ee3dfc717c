// --- the classes' colors over the image ------------------------------------------------------------------

const NEARLY = 640;  // pixels of the canvas's longer side, at least
let sight = null, alone = null;  // what is shown; the number of a class that is shown alone
// Sorted here: an object of JavaScript has names that are numbers first.
const largestFirst = (shares) => Object.entries(shares).sort((one, other) => other[1] - one[1]);
const brief = (answer) => largestFirst(answer.shares).slice(0, 2).map(([label]) => label).join(", ");
const numberOf = new Map(settings.palette.map((color, number) => [color.join(), number]));

async function work(item) {
  const answer = await item.predict();
  const mask = await decoded(answer.mask);
  const image = await decoded(URL.createObjectURL(item.file)).catch(() => null);  // a TIFF, which browsers do not show
  return () => {
    alone = null;
    sight = { answer, image, classes: classesOf(mask) };
    drawLegend();
    drawSight();
  };
}

// The class number of each pixel of a mask, whose colors are the palette's.
function classesOf(mask) {
  const canvas = new OffscreenCanvas(mask.naturalWidth, mask.naturalHeight), context = canvas.getContext("2d");
  context.drawImage(mask, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const numbers = new Uint8Array(data.length / 4);
  for (let i = 0; i < numbers.length; i++) numbers[i] = numberOf.get(`${data[4 * i]},${data[4 * i + 1]},${data[4 * i + 2]}`);
  return { numbers, width: canvas.width, height: canvas.height };
}

function drawSight() {
  const { numbers, width, height } = sight.classes, times = Math.max(1, Math.ceil(NEARLY / Math.max(width, height)));
  const layer = new OffscreenCanvas(width, height), pixels = new ImageData(width, height);
  const strength = Math.round(2.55 * valueOf("opacity"));
  numbers.forEach((number, i) => {
    const shown = alone === null ? number > 0 : number === alone;  // class 0 is the ground
    if (shown) pixels.data.set([...settings.palette[number], strength], 4 * i);
  });
  layer.getContext("2d").putImageData(pixels, 0, 0);
  const canvas = byId("sight"), context = canvas.getContext("2d");
  canvas.width = width * times;
  canvas.height = height * times;
  canvas.parentElement.classList.toggle("wide", width > 1.6 * height);
  context.imageSmoothingEnabled = Math.max(width, height) >= 96;
  context.fillStyle = "#888";
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (sight.image) context.drawImage(sight.image, 0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(layer, 0, 0, canvas.width, canvas.height);
  byId("sight-words").textContent = alone === null ? say("all-classes")
    : say("one-class", { label: settings.labels[alone] });
}

function drawLegend() {
  const classes = largestFirst(sight.answer.shares), shares = rounded(classes.map(([, share]) => share));
  byId("legend").replaceChildren(...classes.map(([label], i) => {
    const number = settings.labels.indexOf(label), color = make("i", {});
    color.style.background = `rgb(${settings.palette[number]})`;
    const button = make("button", { type: "button", "aria-pressed": "false" }, color, label, make("span", {}, shares[i]));
    button.addEventListener("click", () => {
      alone = alone === number ? null : number;
      for (const each of byId("legend").querySelectorAll("button")) each.setAttribute("aria-pressed", String(each === button && alone !== null));
      drawSight();
    });
    return make("li", {}, button);
  }));
}

slider("opacity", wholePercent, () => { if (sight) drawSight(); });
