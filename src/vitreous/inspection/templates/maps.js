// What pages with maps over an image have in common; `data` has their words and the colors.
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

function pixelsOf(image) {
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

// The end of a map's color scale: four times uniform attention, or the largest value if it is more.
function endOf(values) {
  return Math.max(...values, 4 * values.reduce((sum, each) => sum + each, 0) / values.length, 1e-12);
}
// Shares in percent with one decimal, rounded so that they add up.
function rounded(shares) {
  const all = shares.reduce((sum, each) => sum + each, 0), exact = shares.map((share) => 1000 * share / all);
  const tenths = exact.map(Math.floor), missing = 1000 - tenths.reduce((sum, each) => sum + each, 0);
  const order = exact.map((share, i) => [share - tenths[i], i]).sort((one, other) => other[0] - one[0]);
  for (const [, i] of order.slice(0, missing)) tenths[i] += 1;
  return tenths.map((each) => `${(each / 10).toFixed(1)}%`);
}
const sharesOf = (values) => {
  const sum = Math.max(values.reduce((all, each) => all + each, 0), 1e-12);
  return values.map((each) => each / sum);
};
const small = (share) => `${(100 * share).toFixed(share < .01 ? 2 : 1)}%`;
// The numbers of a map, as its legend.
function scale(values) {
  const shares = sharesOf(values);
  const entropy = shares.reduce((all, each) => all - (each > 0 ? each * Math.log(each) : 0), 0) / Math.log(Math.max(shares.length, 2));
  return say("map", { low: small(Math.min(...shares)), high: small(Math.max(...shares)), even: small(1 / shares.length),
    entropy: `${(100 * entropy).toFixed(0)}%` });
}

// Heat over the image in gray, patch by patch; `patchOf` says which one is at [x, y], in 0 ... 1.
function paintHeat(canvas, pixels, values, patchOf) {
  const { width, height } = pixels, out = new ImageData(width, height), largest = endOf(values);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const value = values[patchOf(x / width, y / height)] / largest;
      const at = 4 * (y * width + x), color = 3 * Math.round(255 * value), share = 0.3 + 0.6 * value;
      const gray = 0.15 * (pixels.data[at] + pixels.data[at + 1] + pixels.data[at + 2]);
      for (let c = 0; c < 3; c++) out.data[at + c] = gray * (1 - share) + heat[color + c] * share;
      out.data[at + 3] = 255;
    }
  }
  canvas.width = width; canvas.height = height;
  canvas.getContext("2d").putImageData(out, 0, 0);
  canvas.classList.toggle("pixelated", Math.max(width, height) < 64);
}
