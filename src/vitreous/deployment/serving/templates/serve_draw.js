// --- a digit drawn by hand, brought to the form of the training digits --------------------------------------

const pad = byId("pad"), pen = pad.getContext("2d", { willReadFrequently: true });
const [tall, broad] = settings.size, FINE = 4;  // the digits were counted in blocks of 4x4 pixels
let last = null;

function place(event) {
  const box = pad.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width * pad.width, (event.clientY - box.top) / box.height * pad.height];
}

function clear() {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, pad.width, pad.height);
}

function stroke(to) {
  pen.strokeStyle = "#fff";
  pen.lineWidth = 26;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo(...last);
  pen.lineTo(...to);
  pen.stroke();
  last = to;
}

// [left, top, width, height] of the ink; null without any.
function inked() {
  const { data, width, height } = pen.getImageData(0, 0, pad.width, pad.height);
  let left = width, top = height, right = -1, bottom = -1;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (data[4 * (y * width + x)] < 128) continue;
      left = Math.min(left, x); right = Math.max(right, x);
      top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
  }
  return right < 0 ? null : [left, top, right - left + 1, bottom - top + 1];
}

// The ink fills the height and stands in the middle, as in the data; then blocks are counted.
function reduced([left, top, width, height]) {
  const fine = new OffscreenCanvas(broad * FINE, tall * FINE), context = fine.getContext("2d", { willReadFrequently: true });
  const scale = Math.min(tall * FINE / height, broad * FINE / width), w = width * scale, h = height * scale;
  context.imageSmoothingQuality = "high";
  context.fillRect(0, 0, fine.width, fine.height);
  context.drawImage(pad, left, top, width, height, (fine.width - w) / 2, (fine.height - h) / 2, w, h);
  const ink = context.getImageData(0, 0, fine.width, fine.height).data;
  const small = new OffscreenCanvas(broad, tall), out = new ImageData(broad, tall);
  for (let y = 0; y < tall; y++) {
    for (let x = 0; x < broad; x++) {
      let sum = 0;
      for (let i = 0; i < FINE * FINE; i++) sum += ink[4 * ((y * FINE + Math.floor(i / FINE)) * fine.width + x * FINE + i % FINE)];
      const gray = sum / (FINE * FINE);
      out.data.set([gray, gray, gray, 255], 4 * (y * broad + x));
    }
  }
  small.getContext("2d").putImageData(out, 0, 0);
  return small.convertToBlob();
}

async function read() {
  const box = inked();
  if (box) select(new Item(await reduced(box), "drawing.png", false));
}

pad.addEventListener("pointerdown", (event) => {
  event.preventDefault();
  pad.setPointerCapture(event.pointerId);
  last = place(event);
  stroke([last[0] + .1, last[1]]);
});
pad.addEventListener("pointermove", (event) => { if (last) stroke(place(event)); });
for (const event of ["pointerup", "pointercancel"]) pad.addEventListener(event, () => { last = null; read(); });
byId("clear").addEventListener("click", clear);
clear();
