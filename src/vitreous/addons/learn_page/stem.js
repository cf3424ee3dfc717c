// --- EfficientNet-Lite of layers/efficientnet.py: a small convolutional network whose cells become tokens. -----
//
// A map has a row of channels for each of its cells, so that a 1x1 convolution is a matrix product and a depthwise one
// runs along channels. All lists are made once: an image that is shown ten times a second makes none. Numbers are in
// double precision, which JavaScript multiplies twice as fast as single; what follows is for browsers where kernel.wat
// does not run.

// y = x W^T + b for each of `count` cells, two cells and four channels at a time, of which every map has a multiple; six:
// whether ReLU6 follows.
function pointwise(x, count, { weight, bias, inputs, outputs }, y, six) {
  const least = six ? 0 : -Infinity,
    most = six ? 6 : Infinity;
  for (let first = 0; first < count; first += TILE) {
    const end = Math.min(count, first + TILE);
    for (let e = 0; e < outputs; e += 4) {
      const w0 = e * inputs,
        w1 = w0 + inputs,
        w2 = w1 + inputs,
        w3 = w2 + inputs;
      for (let t = first; t < end; t += 2) {
        const next = t + 1 < count ? t + 1 : t, // the last cell of an odd number is computed twice
          x0 = t * inputs,
          x1 = next * inputs;
        let a = bias[e],
          b = bias[e + 1],
          c = bias[e + 2],
          d = bias[e + 3],
          f = a,
          g = b,
          h = c,
          i = d;
        for (let q = 0; q < inputs; q++) {
          const u = x[x0 + q],
            v = x[x1 + q],
            p0 = weight[w0 + q],
            p1 = weight[w1 + q],
            p2 = weight[w2 + q],
            p3 = weight[w3 + q];
          a += u * p0;
          b += u * p1;
          c += u * p2;
          d += u * p3;
          f += v * p0;
          g += v * p1;
          h += v * p2;
          i += v * p3;
        }
        const at = t * outputs + e,
          below = next * outputs + e;
        y[at] = Math.min(most, Math.max(least, a));
        y[at + 1] = Math.min(most, Math.max(least, b));
        y[at + 2] = Math.min(most, Math.max(least, c));
        y[at + 3] = Math.min(most, Math.max(least, d));
        y[below] = Math.min(most, Math.max(least, f));
        y[below + 1] = Math.min(most, Math.max(least, g));
        y[below + 2] = Math.min(most, Math.max(least, h));
        y[below + 3] = Math.min(most, Math.max(least, i));
      }
    }
  }
}

// TensorFlow's SAME padding before the first cell: at stride 2 the odd one is at the end.
const paddingOf = (side, kernel, stride) =>
  Math.max(0, (Math.ceil(side / stride) - 1) * stride + kernel - side) >> 1;

// A convolution of each channel by itself, with ReLU6, four channels at a time; weight: a row of channels for each tap.
function depthwise(x, [tall, wide], { weight, bias, kernel, stride, outputs: channels }, y) {
  const rows = Math.ceil(tall / stride),
    columns = Math.ceil(wide / stride),
    up = paddingOf(tall, kernel, stride),
    left = paddingOf(wide, kernel, stride);
  for (let r = 0, to = 0; r < rows; r++) {
    const top = r * stride - up,
      firstRow = Math.max(0, -top),
      endRow = Math.min(kernel, tall - top);
    for (let s = 0; s < columns; s++, to += channels) {
      const side = s * stride - left,
        first = Math.max(0, -side),
        end = Math.min(kernel, wide - side);
      for (let k = 0; k < channels; k += 4) {
        let a = bias[k],
          b = bias[k + 1],
          c = bias[k + 2],
          d = bias[k + 3];
        for (let i = firstRow; i < endRow; i++) {
          let from = ((top + i) * wide + side + first) * channels + k,
            tap = (i * kernel + first) * channels + k;
          for (let j = first; j < end; j++, from += channels, tap += channels) {
            a += x[from] * weight[tap];
            b += x[from + 1] * weight[tap + 1];
            c += x[from + 2] * weight[tap + 2];
            d += x[from + 3] * weight[tap + 3];
          }
        }
        y[to + k] = Math.min(6, Math.max(0, a));
        y[to + k + 1] = Math.min(6, Math.max(0, b));
        y[to + k + 2] = Math.min(6, Math.max(0, c));
        y[to + k + 3] = Math.min(6, Math.max(0, d));
      }
    }
  }
}

// The sizes of the first map, in cells, and of each unit: of the map that it reads, of the one that it makes; and how many
// numbers the lists of a network have. side: of the image, in pixels.
function planOf({ channels, stem }, side) {
  const first = side.map((each) => Math.ceil(each / 2)),
    inputs = 9 * channels;
  let from = first,
    width = 32,
    most = 0,
    numbers = first[0] * first[1] * (inputs + width);
  const units = stem.shapes.map(([kernel, stride, expansion, outputs]) => {
    const size = from.map((each) => Math.ceil(each / stride)),
      hidden = width * expansion,
      unit = { kernel, stride, from, size, hidden, expands: expansion > 1, adds: stride === 1 && width === outputs, channels: outputs };
    most = Math.max(most, from[0] * from[1] * hidden);
    numbers += size[0] * size[1] * (hidden + outputs);
    [from, width] = [size, outputs];
    return unit;
  });
  return { first, units, most, numbers: numbers + most };
}

class EfficientNetLite {
  // stem: its configuration, with the shape of each unit and the numbers of the maps that are taken.
  // side: of the image, in pixels. kernel: which has the tensors in its memory, or null.
  constructor(config, tensors, side, kernel = null) {
    const { channels, stem } = config,
      { first, units, most } = planOf(config, side);
    Object.assign(this, { channels, taken: stem.taken, image: side, kernel, kept: [] });
    const list = (size) => kernel?.list(size, Float64Array) ?? new Float64Array(size);
    const weights = (name) => {
      const { data } = tensors[`stem.backbone.${name}`];
      return kernel ? data : new Float64Array(data);
    };
    const matrix = (name) => {
      const [outputs, inputs] = tensors[`stem.backbone.${name}.weight`].shape;
      return { weight: weights(`${name}.weight`), bias: weights(`${name}.bias`), inputs, outputs };
    };
    // The weights of a convolution with a row of output channels, or of input channels, for each tap.
    const taps = (name, kernelSize, stride) => {
      const { data, shape } = tensors[`stem.backbone.${name}.weight`],
        [outputs, inputs] = shape,
        each = kernelSize * kernelSize,
        weight = kernel?.list(data.length) ?? new Float64Array(data.length);
      // The distance of two neighbors among outputs, inputs and taps in the list.
      const [far, near, step] = inputs > 1 ? [each * inputs, 1, inputs] : [1, 0, outputs];
      for (let o = 0, from = 0; o < outputs; o++)
        for (let i = 0; i < inputs; i++)
          for (let tap = 0, to = o * far + i * near; tap < each; tap++, to += step) weight[to] = data[from++];
      return { weight, bias: weights(`${name}.bias`), kernel: kernelSize, stride, inputs: inputs * each, outputs };
    };
    this.root = taps("root", 3, 2);
    this.rootSize = first;
    this.columns = list(first[0] * first[1] * this.root.inputs);
    this.first = list(first[0] * first[1] * this.root.outputs);
    this.units = units.map((unit, n) => ({
      ...unit,
      expand: unit.expands ? matrix(`units.${n}.expand`) : null,
      depthwise: taps(`units.${n}.depthwise`, unit.kernel, unit.stride),
      contract: matrix(`units.${n}.contract`),
      filtered: list(unit.size[0] * unit.size[1] * unit.hidden),
      out: list(unit.size[0] * unit.size[1] * unit.channels),
    }));
    this.wide = list(most);
    if (tensors["stem.backbone.last.weight"]) {
      const { size } = units.at(-1);
      this.last = matrix("last");
      this.lastOut = list(size[0] * size[1] * this.last.outputs);
    }
  }

  // Bytes of the lists of a network; last: outputs of its last convolution, 0 where it has none.
  static bytes(config, side, last) {
    const { numbers, units } = planOf(config, side),
      [rows, columns] = units.at(-1).size;
    return 8 * (numbers + rows * columns * last);
  }

  // A convolution of one pixel, of `count` cells, and one of each channel by itself; in the kernel where there is one.
  pointwise(x, count, layer, y, six) {
    if (this.kernel) this.kernel.product(x, count, layer, y, ...(six ? [0, 6] : []));
    else pointwise(x, count, layer, y, six);
  }

  depthwise(x, size, layer, y) {
    if (this.kernel) this.kernel.depthwise(x, size, layer, y);
    else depthwise(x, size, layer, y);
  }

  // What becomes of an image (C, H, W): its cells as an image (C, h, w), and the last map of each size. Those of the last
  // images are kept: switching heads off does not change them.
  read(image) {
    const same = (each) => each.pixels.every((value, i) => value === image.data[i]);
    const known = this.kept.find(same);
    if (known) return known;
    const maps = this.run(image),
      last = maps.filter((map, i) => map.size[0] !== maps[i + 1]?.size[0]).map(mapImage);
    const found = { pixels: image.data.slice(), cells: this.cells(maps), maps: last };
    this.kept = [found, ...this.kept].slice(0, 2);
    return found;
  }

  // Run on an image. Return its maps: the first convolution's, each unit's, and the last convolution's.
  run(image) {
    const [tall, wide] = this.image,
      [rows, columns] = this.rootSize,
      up = paddingOf(tall, 3, 2),
      left = paddingOf(wide, 3, 2);
    // Each 3x3 neighborhood as a row.
    for (let r = 0, at = 0; r < rows; r++)
      for (let s = 0; s < columns; s++)
        for (let i = 0; i < 3; i++)
          for (let j = 0; j < 3; j++) {
            const h = 2 * r + i - up,
              v = 2 * s + j - left,
              inside = h >= 0 && h < tall && v >= 0 && v < wide;
            for (let c = 0; c < this.channels; c++, at++)
              this.columns[at] = inside ? image.data[(c * tall + h) * wide + v] : 0;
          }
    this.pointwise(this.columns, rows * columns, this.root, this.first, true);
    const maps = [{ data: this.first, size: this.rootSize, channels: this.root.outputs }];
    for (const unit of this.units) {
      const input = maps.at(-1).data,
        cells = unit.from[0] * unit.from[1];
      if (unit.expand) this.pointwise(input, cells, unit.expand, this.wide, true);
      this.depthwise(unit.expand ? this.wide : input, unit.from, unit.depthwise, unit.filtered);
      this.pointwise(unit.filtered, unit.size[0] * unit.size[1], unit.contract, unit.out, false);
      if (unit.adds) for (let i = 0; i < unit.out.length; i++) unit.out[i] += input[i];
      maps.push({ data: unit.out, size: unit.size, channels: unit.channels });
    }
    if (this.last) {
      const { size, data } = maps.at(-1);
      this.pointwise(data, size[0] * size[1], this.last, this.lastOut, true);
      maps.push({ data: this.lastOut, size, channels: this.last.outputs });
    }
    return maps;
  }

  // The maps that are taken, their channels joined, as an image (C, h, w) of its own.
  cells(maps) {
    const taken = this.taken.map((number) => maps[number + 1]),
      [rows, columns] = taken.at(-1).size,
      out = zeros(
        taken.reduce((sum, map) => sum + map.channels, 0),
        rows,
        columns,
      );
    let first = 0;
    for (const { data, size, channels } of taken) {
      const [tall, wide] = size,
        step = tall === rows && wide === columns ? 1 : 2; // the mean of 2 x 2 cells, at an odd edge of those that are
      for (let r = 0; r < rows; r++)
        for (let s = 0; s < columns; s++)
          for (let c = 0; c < channels; c++) {
            let sum = 0,
              count = 0;
            for (let h = step * r; h < Math.min(tall, step * r + step); h++)
              for (let v = step * s; v < Math.min(wide, step * s + step); v++, count++)
                sum += data[(h * wide + v) * channels + c];
            out.data[((first + c) * rows + r) * columns + s] = sum / count;
          }
      first += channels;
    }
    return out;
  }
}

// A map as an image (C, h, w) that stays as it is when the network runs again.
function mapImage({ data, size: [rows, columns], channels }) {
  const out = zeros(channels, rows, columns),
    plane = rows * columns;
  for (let n = 0; n < plane; n++) for (let c = 0; c < channels; c++) out.data[c * plane + n] = data[n * channels + c];
  return out;
}
