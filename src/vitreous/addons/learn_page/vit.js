"use strict";
// --- The Vision Transformer of models/vit.py in evaluation mode. Every intermediate tensor has a name. -------
//
// A tensor is {data: Float32Array, shape}; a matrix has a row for each token. Sums are taken in double precision.

function tensor(data, ...shape) {
  return { data, shape };
}

function zeros(...shape) {
  return tensor(new Float32Array(shape.reduce((product, side) => product * side, 1)), ...shape);
}

function row(matrix, index) {
  const width = matrix.shape[1];
  return matrix.data.subarray(index * width, (index + 1) * width);
}

// The columns of a matrix from `first` on.
function columnsOf(matrix, first, count) {
  const [rows, width] = matrix.shape,
    from = matrix.data,
    out = zeros(rows, count);
  for (let t = 0, to = 0; t < rows; t++) for (let d = 0; d < count; d++) out.data[to++] = from[t * width + first + d];
  return out;
}

function transposed(matrix) {
  const [rows, width] = matrix.shape,
    from = matrix.data,
    out = zeros(width, rows);
  for (let d = 0, to = 0; d < width; d++) for (let t = 0; t < rows; t++) out.data[to++] = from[t * width + d];
  return out;
}

// x W^T + b for each row of x, which is first multiplied by `scale`; W is (out, in), as in torch.nn.Linear.
function linear(x, weight, bias, scale = 1) {
  const [rows, width] = x.shape,
    out = weight.shape[0],
    y = zeros(rows, out),
    input = new Float64Array(width),
    factors = weight.data,
    offsets = bias?.data ?? new Float32Array(out);
  for (let t = 0; t < rows; t++) {
    for (let d = 0; d < width; d++) input[d] = scale * x.data[t * width + d];
    let e = 0;
    for (; e + 3 < out; e += 4) {
      // Four sums at a time, which read the input once, are twice as fast as one.
      const first = e * width,
        second = first + width,
        third = second + width,
        fourth = third + width;
      let a = offsets[e],
        b = offsets[e + 1],
        c = offsets[e + 2],
        f = offsets[e + 3];
      for (let d = 0; d < width; d++) {
        const value = input[d];
        a += value * factors[first + d];
        b += value * factors[second + d];
        c += value * factors[third + d];
        f += value * factors[fourth + d];
      }
      const at = t * out + e;
      y.data[at] = a;
      y.data[at + 1] = b;
      y.data[at + 2] = c;
      y.data[at + 3] = f;
    }
    for (; e < out; e++) {
      let sum = offsets[e];
      for (let d = 0; d < width; d++) sum += input[d] * factors[e * width + d];
      y.data[t * out + e] = sum;
    }
  }
  return y;
}

function moments(values) {
  let mean = 0,
    variance = 0;
  for (let i = 0; i < values.length; i++) mean += values[i] / values.length;
  for (let i = 0; i < values.length; i++) variance += (values[i] - mean) ** 2 / values.length;
  return { mean, variance };
}

function layerNorm(x, gamma, beta, eps) {
  const y = zeros(...x.shape),
    width = x.shape[1];
  for (let t = 0; t < x.shape[0]; t++) {
    const { mean, variance } = moments(row(x, t)),
      scale = 1 / Math.sqrt(variance + eps);
    for (let d = 0; d < width; d++) {
      y.data[t * width + d] = (x.data[t * width + d] - mean) * scale * gamma.data[d] + beta.data[d];
    }
  }
  return y;
}

// Convolution of an image (C, H, W) without bias; weight (out, C, k, k). Each weight meets a row at a time.
function convolution(x, weight, stride, padding) {
  const [channels, height, width] = x.shape,
    [out, , size] = weight.shape;
  const rows = Math.floor((height + 2 * padding - size) / stride) + 1;
  const columns = Math.floor((width + 2 * padding - size) / stride) + 1;
  const y = zeros(out, rows, columns),
    sums = new Float64Array(rows * columns),
    input = x.data;
  for (let k = 0, at = 0; k < out; k++) {
    sums.fill(0);
    for (let c = 0; c < channels; c++) {
      for (let tap = 0; tap < size * size; tap++, at++) {
        const up = Math.floor(tap / size) - padding,
          left = (tap % size) - padding,
          factor = weight.data[at];
        const first = Math.max(0, Math.ceil(-left / stride)),
          end = Math.min(columns, Math.ceil((width - left) / stride));
        for (let i = 0; i < rows; i++) {
          const r = i * stride + up;
          if (r < 0 || r >= height) continue;
          const from = (c * height + r) * width + left,
            to = i * columns;
          for (let j = first; j < end; j++) sums[to + j] += factor * input[from + j * stride];
        }
      }
    }
    y.data.set(sums, k * rows * columns);
  }
  return y;
}

// GroupNorm with one group ("layer") or one for each channel ("instance"), then ReLU.
function groupNormReLU(x, gamma, beta, kind) {
  const channels = x.shape[0],
    each = x.data.length / channels,
    y = zeros(...x.shape),
    all = moments(x.data);
  for (let c = 0; c < channels; c++) {
    const { mean, variance } = kind === "layer" ? all : moments(x.data.subarray(c * each, (c + 1) * each));
    const scale = 1 / Math.sqrt(variance + 1e-5);
    for (let i = c * each; i < (c + 1) * each; i++) {
      y.data[i] = Math.max(0, (x.data[i] - mean) * scale * gamma.data[c] + beta.data[c]);
    }
  }
  return y;
}

function add(x, y) {
  return tensor(
    x.data.map((value, i) => value + y.data[i]),
    ...x.shape,
  );
}

// The error function by its series exp(-x^2) x (1 + 2 x^2 / 3 + ...), whose terms are all positive.
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x,
    sum = x;
  for (let n = 1; Math.abs(term) > 1e-12 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

const ACTIVATIONS = {
  gelu: (x) => x * 0.5 * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  quick_gelu: (x) => x / (1 + Math.exp(-1.702 * x)),
  relu: (x) => Math.max(0, x),
  silu: (x) => x / (1 + Math.exp(-x)),
};

function softmax(values) {
  const powers = new Float64Array(values.length);
  let most = -Infinity,
    sum = 0;
  for (let i = 0; i < powers.length; i++) most = Math.max(most, values[i]);
  for (let i = 0; i < powers.length; i++) sum += powers[i] = Math.exp(values[i] - most);
  const shares = new Float32Array(powers.length);
  for (let i = 0; i < shares.length; i++) shares[i] = powers[i] / sum;
  return shares;
}

// Flat patches in raster order, each (row, column, channel): layers/embedding.py, to_patches.
function toPatches(image, [p, q]) {
  const [channels, height, width] = image.shape,
    columns = width / q,
    count = (height / p) * columns;
  const flat = zeros(count, p * q * channels);
  for (let n = 0, at = 0; n < count; n++) {
    const top = Math.floor(n / columns) * p,
      left = (n % columns) * q;
    for (let y = top; y < top + p; y++) {
      for (let x = left; x < left + q; x++) {
        for (let c = 0; c < channels; c++) flat.data[at++] = image.data[(c * height + y) * width + x];
      }
    }
  }
  return flat;
}

// [rows, columns] of patches: the last may be padded, or left out.
function gridOf({ image_size, patch_size, edge }) {
  return image_size.map((side, i) => (edge === "drop" ? Math.floor : Math.ceil)(side / patch_size[i]));
}

// The pixels of a side that whole patches cover.
function wholeSize(config) {
  return gridOf(config).map((count, i) => count * config.patch_size[i]);
}

// The image padded with zeros, or cropped, to whole patches.
function wholePatches(image, config) {
  const [channels, height, width] = image.shape,
    [tall, wide] = wholeSize(config);
  if (tall === height && wide === width) return image;
  const out = zeros(channels, tall, wide);
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < Math.min(height, tall); y++) {
      const from = (c * height + y) * width;
      out.data.set(image.data.subarray(from, from + Math.min(width, wide)), (c * tall + y) * wide);
    }
  }
  return out;
}

// An image whose patches have changed places: at place n is patch order[n].
function shuffledPatches(image, [p, q], order) {
  if (!order) return image;
  const [channels, height, width] = image.shape,
    columns = width / q,
    out = zeros(channels, height, width);
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const from = order[Math.floor(y / p) * columns + Math.floor(x / q)],
          top = Math.floor(from / columns) * p + (y % p),
          left = (from % columns) * q + (x % q);
        out.data[(c * height + y) * width + x] = image.data[(c * height + top) * width + left];
      }
    }
  }
  return out;
}

// An image with patches of one color: 0 is the mean color after normalization.
function coveredPatches(image, [p, q], covered, color = []) {
  if (!covered?.size) return image;
  const [channels, height, width] = image.shape,
    columns = width / q,
    out = tensor(image.data.slice(), ...image.shape);
  for (let c = 0; c < channels; c++) {
    for (const n of covered) {
      const top = Math.floor(n / columns) * p,
        left = (n % columns) * q;
      for (let y = top; y < top + p; y++) {
        const from = (c * height + y) * width + left;
        out.data.fill(color[c] ?? 0, from, from + q);
      }
    }
  }
  return out;
}

// The projection of Eq. 1 as a matrix (D, P P C), whose columns are in the order of a flat patch.
function projectionMatrix(weight) {
  if (weight.shape.length === 2) return weight;
  const [width, channels, p, q] = weight.shape,
    matrix = zeros(width, p * q * channels);
  for (let d = 0; d < width; d++) {
    for (let c = 0; c < channels; c++) {
      for (let k = 0; k < p * q; k++) {
        matrix.data[(d * p * q + k) * channels + c] = weight.data[(d * channels + c) * p * q + k];
      }
    }
  }
  return matrix;
}

class ViT {
  // tensors: parameters and fixed tables by the names of the PyTorch model's state dict.
  // kernel: the one that has them in its memory, or null.
  constructor(config, tensors, kernel = null) {
    Object.assign(this, { config, tensors, kernel });
    [this.rows, this.columns] = gridOf(config);
    this.count = this.rows * this.columns;
    this.prefix = Number(config.class_token) + config.registers;
    this.length = this.prefix + this.count;
    this.headDim = config.head_dim ?? config.width / config.heads;
    if (!tensors) return;
    if (config.stem.kind === "efficientnet-lite") {
      this.network = new EfficientNetLite(config, tensors, wholeSize(config), kernel);
    }
    if (tensors["stem.projection.weight"]) {
      const matrix = projectionMatrix(tensors["stem.projection.weight"]);
      this.projection = kernel?.hold(matrix) ?? matrix;
    }
  }

  // As the function of this name; in the kernel where there is one.
  linear(x, weight, bias, scale) {
    return this.kernel?.linear(x, weight, bias, scale) ?? linear(x, weight, bias, scale);
  }

  // The product with a weight matrix; a recorded model has the results for each of its images instead.
  apply(name, x) {
    if (this.recorded?.[name]) return this.recorded[name];
    return this.linear(x, this.tensors[`${name}.weight`], this.tensors[`${name}.bias`]);
  }

  norm(name, x) {
    return layerNorm(x, this.tensors[`${name}.weight`], this.tensors[`${name}.bias`], this.config.norm_eps);
  }

  // What happens to a normalized image (C, H, W).
  //
  // changes: withoutPositions; order, a permutation of the image's patches; covered, a set of places that show the mean
  // color; without, a set of heads "layer.head".
  // recorded: the results of the matrix products of this image, where the page does not have the matrices.
  run(pixels, changes = {}, recorded = null) {
    this.recorded = recorded;
    const { config, tensors } = this,
      trace = { pixels };
    const image = shuffledPatches(wholePatches(pixels, config), config.patch_size, changes.order);
    this.embed(coveredPatches(image, config.patch_size, changes.covered), trace, changes);
    let z = trace.z0;
    trace.layers = [];
    for (let l = 0; l < config.depth; l++) {
      const layer = recorded?.[`blocks.${l}`] ? { z: recorded[`blocks.${l}`] } : this.block(l, z, changes);
      trace.layers.push(layer);
      z = layer.z;
    }
    if (recorded) return Object.assign(trace, { lens: recorded.lens, logits: recorded.lens.at(-1) });
    const answers = [trace.z0, ...trace.layers.map((layer) => layer.z)].map((each) => this.answer(each));
    trace.lens = answers.map(({ logits }) => logits);
    return Object.assign(trace, answers.at(-1));
  }

  // Eq. 1: patches, projection, class token, positions.
  embed(image, trace, changes) {
    const { config, tensors, prefix } = this,
      width = config.width;
    trace.flat = toPatches(image, config.patch_size);
    if (this.network) {
      const { cells, maps } = this.network.read(image),
        each = [cells.shape[1] / this.rows, cells.shape[2] / this.columns]; // cells of a token
      trace.maps = maps;
      trace.cells = toPatches(cells, each);
      trace.patches = this.projection
        ? this.linear(trace.cells, this.projection, tensors["stem.projection.bias"])
        : trace.cells;
    } else if (config.stem.kind === "convolution") {
      trace.maps = [];
      let x = image;
      config.stem.strides.forEach((stride, i) => {
        const at = `stem.convolutions.${3 * i}`,
          norm = `stem.convolutions.${3 * i + 1}`;
        x = convolution(x, tensors[`${at}.weight`], stride, 1);
        x = groupNormReLU(x, tensors[`${norm}.weight`], tensors[`${norm}.bias`], config.stem.norm);
        trace.maps.push(x);
      });
      trace.cells = toPatches(x, [1, 1]);
      trace.patches = this.linear(trace.cells, this.projection, tensors["stem.projection.bias"]);
    } else {
      let flat = trace.flat;
      if (config.stem.norm_before) flat = trace.flatNormed = this.norm("stem.norm_before", flat);
      trace.patches = this.linear(flat, this.projection, tensors["stem.projection.bias"]);
      if (config.stem.norm_after) trace.patches = this.norm("stem.norm_after", trace.patches);
    }
    trace.tokens = zeros(this.length, width);
    if (prefix) trace.tokens.data.set(tensors.prefix.data);
    trace.tokens.data.set(trace.patches.data, prefix * width);
    trace.z0 = this.positioned(trace.tokens, "position", changes);
    if (config.extra_norms.includes("tokens")) trace.z0 = this.norm("embedding_norm", trace.z0);
  }

  // The table of added positions with a row for each token; registers have none. Null where there is no table.
  positions(name) {
    const table = this.tensors[`${name}.rows`];
    if (!table) return null;
    const { config, length } = this,
      width = config.width,
      extra = Number(config.class_token),
      full = zeros(length, width);
    full.data.set(table.data.subarray(0, extra * width));
    full.data.set(table.data.subarray(extra * width), (extra + config.registers) * width);
    return full;
  }

  positioned(z, name, changes) {
    const table = changes.withoutPositions ? null : this.positions(name);
    return table ? add(z, table) : z;
  }

  // Eq. 2 and 3: a layer of the encoder.
  block(l, input, changes) {
    const name = `blocks.${l}`,
      z = this.positioned(input, `${name}.position`, changes);
    const layer = { input: z, normed: this.norm(`${name}.attention_norm`, z) };
    this.attention(l, layer, changes);
    layer.middle = add(z, this.scaled(layer.msa, `${name}.attention_branch.scale.gamma`));
    layer.middleNormed = this.norm(`${name}.mlp_norm`, layer.middle);
    layer.hidden = this.apply(`${name}.mlp.expand`, layer.middleNormed);
    const activation = ACTIVATIONS[this.config.mlp];
    layer.active = tensor(layer.hidden.data.map(activation), ...layer.hidden.shape);
    layer.mlp = this.apply(`${name}.mlp.contract`, layer.active);
    layer.z = add(layer.middle, this.scaled(layer.mlp, `${name}.mlp_branch.scale.gamma`));
    return layer;
  }

  // LayerScale, where the model has it.
  scaled(branch, name) {
    const gamma = this.tensors[name]?.data;
    return gamma
      ? tensor(
          branch.data.map((value, i) => value * gamma[i % gamma.length]),
          ...branch.shape,
        )
      : branch;
  }

  // Eq. 5 to 8: multi-head self-attention.
  attention(l, layer, changes) {
    const { config, headDim, length } = this,
      name = `blocks.${l}.attention`,
      inner = config.heads * headDim;
    const qkv = this.apply(`${name}.qkv`, layer.normed);
    layer.heads = [];
    layer.joined = zeros(length, inner);
    for (let k = 0; k < config.heads; k++) {
      const [query, key, value] = [0, 1, 2].map((part) => columnsOf(qkv, part * inner + k * headDim, headDim));
      const head = {
        query: this.positionedHead(query, l, "query", changes),
        key: this.positionedHead(key, l, "key", changes),
        value,
      };
      this.attend(head, this.tensors[`${name}.position.table`], changes);
      if (changes.without?.has(`${l}.${k}`)) head.output = zeros(length, headDim);
      for (let t = 0, from = 0; t < length; t++)
        for (let e = 0, to = t * inner + k * headDim; e < headDim; e++) layer.joined.data[to++] = head.output.data[from++];
      layer.heads.push(head);
    }
    layer.msa = this.apply(`${name}.out`, layer.joined);
  }

  // LayerNorm of queries and keys and rotary positions, where the model has them.
  positionedHead(x, l, which, changes) {
    const name = `blocks.${l}.attention`,
      { tensors } = this;
    if (this.config.qk_norm === "head") x = this.norm(`${name}.${which}_norm`, x);
    const cos = tensors[`${name}.position.cos`],
      sin = tensors[`${name}.position.sin`];
    if (!cos || changes.withoutPositions) return x;
    // A pair of channels: neighbors, or i and i + D_h / 2.
    const halves = this.config.position.rotary?.pairs === "halves",
      half = this.headDim / 2,
      y = zeros(...x.shape);
    for (let p = 0; p < x.data.length / 2; p++) {
      const i = halves ? Math.floor(p / half) * this.headDim + (p % half) : 2 * p,
        j = halves ? i + half : i + 1;
      y.data[i] = x.data[i] * cos.data[i] - x.data[j] * sin.data[i];
      y.data[j] = x.data[j] * cos.data[j] + x.data[i] * sin.data[j];
    }
    return y;
  }

  // Logits, softmax row by row, and the weighted sum of the values. offsets: relative positions (appendix D.4).
  attend(head, offsets, changes) {
    const { headDim, length } = this,
      scale = headDim ** -0.5;
    head.logits = this.linear(head.query, head.key, null, scale);
    if (offsets && !changes.withoutPositions) {
      for (let i = 0; i < length; i++) {
        const query = row(head.query, i);
        for (let j = 0; j < length; j++) {
          const offset = row(offsets, i - j + length - 1);
          let sum = 0;
          for (let e = 0; e < headDim; e++) sum += query[e] * offset[e];
          head.logits.data[i * length + j] += sum * scale;
        }
      }
    }
    head.weights = zeros(length, length);
    for (let i = 0; i < length; i++) head.weights.data.set(softmax(row(head.logits, i)), i * length);
    head.output = this.linear(head.weights, transposed(head.value));
  }

  // Eq. 4 and the head: from the tokens after a layer to class logits.
  answer(z) {
    const { config } = this,
      normed = config.final_norm === "tokens" ? this.norm("norm", z) : z;
    let pooled = this.pool(normed);
    if (config.final_norm === "pooled") pooled = this.norm("pool.norm", pooled);
    let features = pooled;
    if (config.representation_size) {
      const wide = this.apply("representation.linear", pooled);
      features = tensor(wide.data.map(Math.tanh), ...wide.shape);
    }
    return { normed, pooled, features, logits: this.apply("head", features).data };
  }

  pool(z) {
    const { config, prefix } = this,
      width = config.width,
      token = row(z, 0);
    if (config.pooling.kind === "class") return tensor(token.slice(), 1, width);
    const first = config.pooling.kind === "mean-all" ? 0 : prefix,
      mean = zeros(1, width);
    for (let t = first; t < z.shape[0]; t++) {
      for (let d = 0; d < width; d++) mean.data[d] += z.data[t * width + d] / (z.shape[0] - first);
    }
    return config.pooling.kind === "class+mean"
      ? tensor(Float32Array.from([...token, ...mean.data]), 1, 2 * width)
      : mean;
  }
}

// --- Weights: those of the page, as float32 or float16 in base64; and fresh ones, for models of one's own. ----

function fromHalf(bits) {
  const sign = bits >> 15 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24);
}

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text).buffer;
  const letters = atob(text),
    bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes.buffer;
}

function decoded(text, half) {
  const bytes = bytesOf(text);
  if (!half) return new Float32Array(bytes);
  if (globalThis.Float16Array) return new Float32Array(new Float16Array(bytes));
  return Float32Array.from(new Uint16Array(bytes), fromHalf);
}

const numbersOf = (shape) => shape.reduce((product, side) => product * side, 1);

// index: [name, ...shape] of each tensor, in the order of the numbers.
function unpacked(index, numbers) {
  const tensors = {};
  let at = 0;
  for (const [name, ...shape] of index) {
    tensors[name] = tensor(numbers.subarray(at, (at += numbersOf(shape))), ...shape);
  }
  return tensors;
}

// Bytes of a kernel that has the tensors of a page in its memory, those in another order that a model makes of some, and
// the largest of its products.
function bytesOfKernel({ config, index, compact = [] }) {
  const shapes = [...index, ...compact],
    [rows, columns] = gridOf(config),
    tokens = rows * columns + Number(config.class_token) + config.registers;
  let numbers = 0,
    widest = 0;
  for (const [, first, ...rest] of shapes) {
    numbers += first * numbersOf(rest);
    widest = Math.max(widest, first + numbersOf(rest));
  }
  const last = shapes.find(([name]) => name === "stem.backbone.last.weight")?.[1] ?? 0,
    network = config.stem.kind === "efficientnet-lite" ? EfficientNetLite.bytes(config, wholeSize(config), last) : 0;
  return 2 * 4 * numbers + network + 8 * tokens * widest + 32 * shapes.length + 65536;
}

// The model of a page: its tensors in 32 or 16 bits, and those in 8, a step for each of whose rows says how far levels are
// apart; in the memory of a kernel where the browser can run one.
function modelOf(data) {
  const { config, index, weights, bits = 32, compact = [], levels = "", steps = "" } = data,
    kernel = Kernel.make(bytesOfKernel(data)),
    list = (size) => kernel?.list(size) ?? new Float32Array(size),
    numbers = decoded(weights, bits < 32),
    whole = list(numbers.length);
  whole.set(numbers);
  const tensors = unpacked(index, whole);
  if (compact.length) Object.assign(tensors, unpacked(compact, scaled(compact, levels, steps, kernel)));
  return new ViT(config, tensors, kernel);
}

// Levels in 8 bits times the steps of their rows.
function scaled(compact, levels, steps, kernel) {
  const whole = new Int8Array(bytesOf(levels)),
    step = decoded(steps, false);
  if (kernel) return kernel.scaled(compact, whole, step);
  const numbers = new Float32Array(whole.length);
  let at = 0,
    row = 0;
  for (const [, rows, ...sides] of compact) {
    const each = numbersOf(sides);
    for (let r = 0; r < rows; r++, row++) for (let i = 0; i < each; i++, at++) numbers[at] = whole[at] * step[row];
  }
  return numbers;
}

// Uniform numbers in 0 ... 1, the same for the same seed (mulberry32).
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), seed | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Fresh weights of a plain ViT, which has learned nothing.
function freshTensors(config, seed = 1) {
  const uniform = generator(seed),
    { width, mlp_dim: hidden, channels } = config,
    tensors = {};
  const inner = config.heads * (config.head_dim ?? width / config.heads),
    [p, q] = config.patch_size;
  const [rows, columns] = gridOf(config),
    count = rows * columns;
  const fill = (name, std, ...shape) => {
    tensors[name] = zeros(...shape);
    if (std)
      tensors[name].data.forEach((_, i, data) => {
        data[i] = std * (uniform() + uniform() + uniform() + uniform() - 2) * Math.sqrt(3);
      });
  };
  const matrix = (name, out, wide) => {
    fill(`${name}.weight`, Math.sqrt(2 / (out + wide)), out, wide);
    fill(`${name}.bias`, 0, out);
  };
  const norm = (name) => {
    tensors[`${name}.weight`] = tensor(new Float32Array(width).fill(1), width);
    fill(`${name}.bias`, 0, width);
  };
  matrix("stem.projection", width, p * q * channels);
  fill("prefix", 0.02, 1, width);
  fill("position.rows", 0.02, count + 1, width);
  for (let l = 0; l < config.depth; l++) {
    norm(`blocks.${l}.attention_norm`);
    matrix(`blocks.${l}.attention.qkv`, 3 * inner, width);
    matrix(`blocks.${l}.attention.out`, width, inner);
    norm(`blocks.${l}.mlp_norm`);
    matrix(`blocks.${l}.mlp.expand`, hidden, width);
    matrix(`blocks.${l}.mlp.contract`, width, hidden);
  }
  norm("norm");
  matrix("head", config.num_classes, width);
  return tensors;
}
