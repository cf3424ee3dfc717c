// --- Training: the gradient of every parameter by hand, and AdamW. ---------------------------------------------
//
// The model is the paper's: linear patch embedding, class token, learned positions, pre-norm blocks with GELU, and a
// head on the class token. A batch is a matrix with a row for each token of each image. For y = f(x), "dy" is the
// gradient of the loss with respect to y. Gradients equal PyTorch's within 1e-5.

// Why a model cannot be trained here; null where it can.
function untrainable({ stem, position, class_token, registers, pooling, final_norm, mlp, ...config }) {
  const plain =
    stem.kind === "patch" &&
    !stem.norm_before &&
    !stem.norm_after &&
    position.kind === "learned" &&
    (position.where ?? "stem") === "stem" &&
    class_token &&
    !registers &&
    pooling.kind === "class" &&
    final_norm === "tokens" &&
    mlp === "gelu";
  const { edge, extra_norms, qk_norm, representation_size, layer_scale } = config;
  const extra =
    edge !== "refuse" ||
    extra_norms.length ||
    qk_norm !== "none" ||
    position.rotary ||
    representation_size != null ||
    layer_scale != null;
  return plain && !extra
    ? null
    : "only the paper's model can be trained in the page";
}

// y = x W^T + b for n rows; four outputs at a time.
function product(x, weight, bias, y, n, wide, out) {
  for (let t = 0; t < n; t++) {
    const from = t * wide,
      to = t * out;
    let o = 0;
    for (; o + 3 < out; o += 4) {
      let a = o * wide,
        b = a + wide,
        c = b + wide,
        d = c + wide,
        sum0 = bias[o],
        sum1 = bias[o + 1],
        sum2 = bias[o + 2],
        sum3 = bias[o + 3];
      for (let i = from; i < from + wide; i++) {
        const value = x[i];
        sum0 += value * weight[a++];
        sum1 += value * weight[b++];
        sum2 += value * weight[c++];
        sum3 += value * weight[d++];
      }
      y[to + o] = sum0;
      y[to + o + 1] = sum1;
      y[to + o + 2] = sum2;
      y[to + o + 3] = sum3;
    }
    for (; o < out; o++) {
      let sum = bias[o];
      for (let i = 0; i < wide; i++) sum += x[from + i] * weight[o * wide + i];
      y[to + o] = sum;
    }
  }
}

// dx = dy W; dW += dy^T x; db += the sum of the rows of dy. dx is left out where it is null.
function productBackward(x, weight, dy, dx, dweight, dbias, n, wide, out) {
  for (let t = 0; t < n; t++) for (let o = 0; o < out; o++) dbias[o] += dy[t * out + o];
  let t = 0;
  for (; t + 3 < n; t += 4) {
    for (let o = 0; o < out; o++) {
      const d0 = dy[t * out + o],
        d1 = dy[(t + 1) * out + o],
        d2 = dy[(t + 2) * out + o],
        d3 = dy[(t + 3) * out + o];
      let a = t * wide,
        b = a + wide,
        c = b + wide,
        d = c + wide;
      for (let w = o * wide; w < (o + 1) * wide; w++)
        dweight[w] += d0 * x[a++] + d1 * x[b++] + d2 * x[c++] + d3 * x[d++];
    }
  }
  for (; t < n; t++)
    for (let o = 0; o < out; o++)
      for (let i = 0; i < wide; i++) dweight[o * wide + i] += dy[t * out + o] * x[t * wide + i];
  if (!dx) return;
  for (let r = 0; r < n; r++) {
    const to = r * wide;
    dx.fill(0, to, to + wide);
    let o = 0;
    for (; o + 3 < out; o += 4) {
      const d0 = dy[r * out + o],
        d1 = dy[r * out + o + 1],
        d2 = dy[r * out + o + 2],
        d3 = dy[r * out + o + 3];
      let a = o * wide,
        b = a + wide,
        c = b + wide,
        d = c + wide;
      for (let i = to; i < to + wide; i++)
        dx[i] += d0 * weight[a++] + d1 * weight[b++] + d2 * weight[c++] + d3 * weight[d++];
    }
    for (; o < out; o++)
      for (let i = 0; i < wide; i++) dx[to + i] += dy[r * out + o] * weight[o * wide + i];
  }
}

// y = LN(x); hat is x with mean 0 and variance 1, and inverse one over the standard deviation of each row.
function normalize(x, gamma, beta, eps, y, hat, inverse, n, wide) {
  for (let t = 0; t < n; t++) {
    const from = t * wide;
    let mean = 0,
      variance = 0;
    for (let d = 0; d < wide; d++) mean += x[from + d];
    mean /= wide;
    for (let d = 0; d < wide; d++) variance += (x[from + d] - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / wide + eps);
    inverse[t] = scale;
    for (let d = 0; d < wide; d++) {
      hat[from + d] = (x[from + d] - mean) * scale;
      y[from + d] = hat[from + d] * gamma[d] + beta[d];
    }
  }
}

// Adds to dx the gradient that comes through LN.
function normalizeBackward(dy, gamma, hat, inverse, dx, dgamma, dbeta, n, wide) {
  for (let t = 0; t < n; t++) {
    const from = t * wide;
    let sum = 0,
      along = 0;
    for (let d = 0; d < wide; d++) {
      const each = dy[from + d],
        scaled = each * gamma[d];
      dgamma[d] += each * hat[from + d];
      dbeta[d] += each;
      sum += scaled;
      along += scaled * hat[from + d];
    }
    for (let d = 0; d < wide; d++)
      dx[from + d] +=
        inverse[t] * (dy[from + d] * gamma[d] - sum / wide - (hat[from + d] * along) / wide);
  }
}

// Phi, the share of a normal distribution below x, to 1e-7: a Chebyshev fit of erfc (Numerical Recipes, 6.2).
function normalShare(x) {
  const z = Math.abs(x) / Math.SQRT2,
    t = 1 / (1 + 0.5 * z);
  const fit =
    t *
    Math.exp(
      -z * z -
        1.26551223 +
        t *
          (1.00002368 +
            t *
              (0.37409196 +
                t *
                  (0.09678418 +
                    t *
                      (-0.18628806 +
                        t *
                          (0.27886807 +
                            t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))),
    );
  return x > 0 ? 1 - fit / 2 : fit / 2;
}

class Trainer {
  // tensors: the parameters by their names, as `ViT` takes them; they are changed in place. batch: images of a step.
  constructor(config, tensors, batch) {
    Object.assign(this, { config, tensors, batch, steps: 0 });
    const { width: D, heads: K, mlp_dim: M, depth, num_classes } = config;
    const [rows, columns] = gridOf(config),
      [p, q] = config.patch_size;
    const T = rows * columns + 1,
      Dh = config.head_dim ?? D / K,
      n = batch * T;
    Object.assign(this, { D, K, M, T, Dh, n, inner: K * Dh, flatWidth: p * q * config.channels, N: T - 1 });
    const each = n * (12 * D + 3 * M + 4 * this.inner) + batch * K * T * T,
      weights = Object.values(tensors).reduce((sum, { data }) => sum + data.length, 0);
    this.kernel = Kernel.make(4 * ((depth + 2) * each + 4 * weights) + (1 << 20));
    const list = (size) => this.kernel?.list(size) ?? new Float32Array(size);
    this.gradients = {};
    this.moments = {};
    for (const [name, parameter] of Object.entries(tensors)) {
      const size = parameter.data.length,
        data = list(size);
      data.set(parameter.data);
      parameter.data = data;
      this.gradients[name] = list(size);
      this.moments[name] = [new Float32Array(size), new Float32Array(size)];
    }
    this.turned = list(Math.max(3 * this.inner, M, D) * Math.max(this.inner, M, D));
    this.flat = list(batch * this.N * this.flatWidth);
    this.patches = list(batch * this.N * D);
    this.layers = Array.from({ length: depth }, () => ({
      normed: list(n * D),
      hat: list(n * D),
      inverse: list(n),
      qkv: list(n * 3 * this.inner),
      weights: list(batch * K * T * T),
      joined: list(n * this.inner),
      msa: list(n * D),
      middle: list(n * D),
      middleNormed: list(n * D),
      middleHat: list(n * D),
      middleInverse: list(n),
      hidden: list(n * M),
      share: list(n * M),
      active: list(n * M),
      mlp: list(n * D),
      z: list(n * D),
    }));
    this.z0 = list(n * D);
    const sizes = { classes: D, features: D, hat: D, logits: num_classes, dlogits: num_classes, dfeatures: D };
    this.top = Object.fromEntries(Object.entries(sizes).map(([name, wide]) => [name, list(batch * wide)]));
    this.top.inverse = list(batch);
    this.top.dclasses = list(batch * D);
    this.back = {
      z: list(n * D),
      branch: list(n * D),
      hidden: list(n * M),
      joined: list(n * this.inner),
      qkv: list(n * 3 * this.inner),
      patches: list(batch * this.N * D),
    };
  }

  // y = x W^T + b.
  product(x, weight, bias, y, n, wide, out) {
    const { kernel, turned } = this;
    if (!kernel?.fits(out, x, weight, y)) return product(x, weight, bias, y, n, wide, out);
    for (let o = 0; o < out; o++)
      for (let i = 0; i < wide; i++) turned[i * out + o] = weight[o * wide + i];
    for (let t = 0; t < n; t++) y.set(bias, t * out);
    kernel.add(x, 1, wide, turned, y, n, wide, out);
  }

  productBackward(x, weight, dy, dx, dweight, dbias, n, wide, out) {
    const { kernel } = this;
    if (!dx || !kernel?.fits(wide, x, weight, dy, dx, dweight))
      return productBackward(x, weight, dy, dx, dweight, dbias, n, wide, out);
    for (let t = 0; t < n; t++) for (let o = 0; o < out; o++) dbias[o] += dy[t * out + o];
    kernel.add(dy, out, 1, x, dweight, out, n, wide);
    dx.fill(0, 0, n * wide);
    kernel.add(dy, 1, out, weight, dx, n, out, wide);
  }

  parameter(name) {
    return this.tensors[name].data;
  }

  // The loss, cross-entropy, of normalized images (C, H, W), and how many are right. count: fewer than a batch.
  forward(images, labels, count = this.batch) {
    const { D, M, T, N, config, layers, top } = this,
      n = count * T,
      eps = config.norm_eps;
    images.forEach((image, b) => {
      this.flat.set(toPatches(image, config.patch_size).data, b * N * this.flatWidth);
    });
    const matrix = projectionMatrix(this.tensors["stem.projection.weight"]).data,
      bias = this.tensors["stem.projection.bias"]?.data ?? new Float32Array(D);
    this.product(this.flat, matrix, bias, this.patches, count * N, this.flatWidth, D);
    const prefix = this.parameter("prefix"),
      positions = this.parameter("position.rows");
    for (let b = 0; b < count; b++) {
      for (let i = 0; i < T * D; i++) {
        const token = i < D ? prefix[i] : this.patches[b * N * D + i - D];
        this.z0[b * T * D + i] = token + positions[i];
      }
    }
    let z = this.z0;
    layers.forEach((layer, l) => {
      const at = `blocks.${l}`,
        use = (name) => this.parameter(`${at}.${name}`);
      normalize(
        z,
        use("attention_norm.weight"),
        use("attention_norm.bias"),
        eps,
        layer.normed,
        layer.hat,
        layer.inverse,
        n,
        D,
      );
      this.product(
        layer.normed,
        use("attention.qkv.weight"),
        use("attention.qkv.bias"),
        layer.qkv,
        n,
        D,
        3 * this.inner,
      );
      this.attend(layer, count);
      this.product(
        layer.joined,
        use("attention.out.weight"),
        use("attention.out.bias"),
        layer.msa,
        n,
        this.inner,
        D,
      );
      for (let i = 0; i < n * D; i++) layer.middle[i] = z[i] + layer.msa[i];
      normalize(
        layer.middle,
        use("mlp_norm.weight"),
        use("mlp_norm.bias"),
        eps,
        layer.middleNormed,
        layer.middleHat,
        layer.middleInverse,
        n,
        D,
      );
      this.product(layer.middleNormed, use("mlp.expand.weight"), use("mlp.expand.bias"), layer.hidden, n, D, M);
      for (let i = 0; i < n * M; i++) {
        layer.share[i] = normalShare(layer.hidden[i]);
        layer.active[i] = layer.hidden[i] * layer.share[i];
      }
      this.product(layer.active, use("mlp.contract.weight"), use("mlp.contract.bias"), layer.mlp, n, M, D);
      for (let i = 0; i < n * D; i++) layer.z[i] = layer.middle[i] + layer.mlp[i];
      z = layer.z;
    });
    for (let b = 0; b < count; b++) top.classes.set(z.subarray(b * T * D, b * T * D + D), b * D);
    const [gamma, beta] = [this.parameter("norm.weight"), this.parameter("norm.bias")];
    normalize(top.classes, gamma, beta, eps, top.features, top.hat, top.inverse, count, D);
    const classes = config.num_classes;
    this.product(
      top.features,
      this.parameter("head.weight"),
      this.parameter("head.bias"),
      top.logits,
      count,
      D,
      classes,
    );
    let loss = 0,
      right = 0;
    for (let b = 0; b < count; b++) {
      const logits = top.logits.subarray(b * classes, (b + 1) * classes),
        p = softmax(logits);
      loss -= Math.log(Math.max(p[labels[b]], 1e-30)) / count;
      right += Number(p.indexOf(Math.max(...p)) === labels[b]);
      for (let k = 0; k < classes; k++)
        top.dlogits[b * classes + k] = (p[k] - Number(k === labels[b])) / count;
    }
    return { loss, right };
  }

  attend(layer, count) {
    const { T, K, Dh, inner } = this,
      { qkv, weights, joined } = layer,
      scale = Dh ** -0.5,
      powers = new Float64Array(T);
    for (let b = 0; b < count; b++) {
      for (let k = 0; k < K; k++) {
        for (let i = 0; i < T; i++) {
          const query = (b * T + i) * 3 * inner + k * Dh,
            at = ((b * K + k) * T + i) * T;
          let most = -Infinity,
            total = 0;
          for (let j = 0; j < T; j++) {
            const key = (b * T + j) * 3 * inner + inner + k * Dh;
            let sum = 0;
            for (let e = 0; e < Dh; e++) sum += qkv[query + e] * qkv[key + e];
            powers[j] = sum * scale;
            if (powers[j] > most) most = powers[j];
          }
          for (let j = 0; j < T; j++) total += powers[j] = Math.exp(powers[j] - most);
          const to = (b * T + i) * inner + k * Dh;
          joined.fill(0, to, to + Dh);
          for (let j = 0; j < T; j++) {
            const weight = (weights[at + j] = powers[j] / total),
              value = (b * T + j) * 3 * inner + 2 * inner + k * Dh;
            for (let e = 0; e < Dh; e++) joined[to + e] += weight * qkv[value + e];
          }
        }
      }
    }
  }

  // From the gradient of the heads' outputs, side by side, to that of q, k and v.
  attendBackward(layer, djoined, dqkv) {
    const { T, K, Dh, inner, batch } = this,
      { qkv, weights } = layer,
      scale = Dh ** -0.5,
      dweights = new Float64Array(T);
    dqkv.fill(0);
    for (let b = 0; b < batch; b++) {
      for (let k = 0; k < K; k++) {
        for (let i = 0; i < T; i++) {
          const from = (b * T + i) * inner + k * Dh,
            at = ((b * K + k) * T + i) * T,
            query = (b * T + i) * 3 * inner + k * Dh;
          let along = 0;
          for (let j = 0; j < T; j++) {
            const value = (b * T + j) * 3 * inner + 2 * inner + k * Dh,
              weight = weights[at + j];
            let sum = 0;
            for (let e = 0; e < Dh; e++) {
              sum += djoined[from + e] * qkv[value + e];
              dqkv[value + e] += weight * djoined[from + e];
            }
            dweights[j] = sum;
            along += sum * weight;
          }
          for (let j = 0; j < T; j++) {
            const dlogit = weights[at + j] * (dweights[j] - along) * scale,
              key = (b * T + j) * 3 * inner + inner + k * Dh;
            for (let e = 0; e < Dh; e++) {
              dqkv[query + e] += dlogit * qkv[key + e];
              dqkv[key + e] += dlogit * qkv[query + e];
            }
          }
        }
      }
    }
  }

  // The gradient of the last loss with respect to each parameter, into `gradients`.
  backward() {
    const { D, M, T, N, n, batch, config, layers, top, back, gradients, inner } = this;
    for (const each of Object.values(gradients)) each.fill(0);
    const toward = (name) => [gradients[`${name}.weight`], gradients[`${name}.bias`]];
    this.productBackward(
      top.features,
      this.parameter("head.weight"),
      top.dlogits,
      top.dfeatures,
      ...toward("head"),
      batch,
      D,
      config.num_classes,
    );
    top.dclasses.fill(0);
    normalizeBackward(
      top.dfeatures,
      this.parameter("norm.weight"),
      top.hat,
      top.inverse,
      top.dclasses,
      ...toward("norm"),
      batch,
      D,
    );
    const dz = back.z.fill(0);
    for (let b = 0; b < batch; b++) dz.set(top.dclasses.subarray(b * D, (b + 1) * D), b * T * D);
    for (let l = layers.length - 1; l >= 0; l--) {
      const layer = layers[l],
        at = `blocks.${l}`,
        use = (name) => this.parameter(`${at}.${name}.weight`);
      // The MLP branch: dz goes on unchanged through the residual connection, and through the branch as well.
      this.productBackward(
        layer.active,
        use("mlp.contract"),
        dz,
        back.hidden,
        ...toward(`${at}.mlp.contract`),
        n,
        M,
        D,
      );
      for (let i = 0; i < n * M; i++) {
        const x = layer.hidden[i];
        back.hidden[i] *= layer.share[i] + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
      }
      this.productBackward(
        layer.middleNormed,
        use("mlp.expand"),
        back.hidden,
        back.branch,
        ...toward(`${at}.mlp.expand`),
        n,
        D,
        M,
      );
      normalizeBackward(
        back.branch,
        use("mlp_norm"),
        layer.middleHat,
        layer.middleInverse,
        dz,
        ...toward(`${at}.mlp_norm`),
        n,
        D,
      );
      this.productBackward(
        layer.joined,
        use("attention.out"),
        dz,
        back.joined,
        ...toward(`${at}.attention.out`),
        n,
        inner,
        D,
      );
      this.attendBackward(layer, back.joined, back.qkv);
      this.productBackward(
        layer.normed,
        use("attention.qkv"),
        back.qkv,
        back.branch,
        ...toward(`${at}.attention.qkv`),
        n,
        D,
        3 * inner,
      );
      normalizeBackward(
        back.branch,
        use("attention_norm"),
        layer.hat,
        layer.inverse,
        dz,
        ...toward(`${at}.attention_norm`),
        n,
        D,
      );
    }
    for (let b = 0; b < batch; b++) {
      for (let i = 0; i < T * D; i++) {
        const each = dz[b * T * D + i];
        gradients["position.rows"][i] += each;
        if (i < D) gradients.prefix[i] += each;
        else back.patches[b * N * D + i - D] = each;
      }
    }
    const dmatrix = new Float32Array(D * this.flatWidth),
      dbias = gradients["stem.projection.bias"] ?? new Float32Array(D);
    this.productBackward(this.flat, null, back.patches, null, dmatrix, dbias, batch * N, this.flatWidth, D);
    this.toKernel(dmatrix);
  }

  // The gradient of the projection matrix, in the order of the weight: (D, C, P, P) where it is a convolution's.
  toKernel(dmatrix) {
    const weight = this.tensors["stem.projection.weight"],
      gradient = this.gradients["stem.projection.weight"];
    if (weight.shape.length === 2) return gradient.set(dmatrix);
    const [width, channels, p, q] = weight.shape;
    for (let d = 0; d < width; d++)
      for (let c = 0; c < channels; c++)
        for (let k = 0; k < p * q; k++)
          gradient[(d * channels + c) * p * q + k] = dmatrix[(d * p * q + k) * channels + c];
  }

  // AdamW (arXiv 1711.05101), as in PyTorch: vectors, the class token and positions are not decayed.
  update(rate, { betas: [b1, b2] = [0.9, 0.98], eps = 1e-8, decay = 0.05 } = {}) {
    this.steps++;
    const c1 = 1 - b1 ** this.steps,
      c2 = 1 - b2 ** this.steps;
    for (const [name, { data, shape }] of Object.entries(this.tensors)) {
      const gradient = this.gradients[name],
        [first, second] = this.moments[name],
        keep = 1 - rate * (shape.length > 1 && name.endsWith("weight") ? decay : 0);
      for (let i = 0; i < data.length; i++) {
        const g = gradient[i];
        first[i] = b1 * first[i] + (1 - b1) * g;
        second[i] = b2 * second[i] + (1 - b2) * g * g;
        data[i] = data[i] * keep - (rate * (first[i] / c1)) / (Math.sqrt(second[i] / c2) + eps);
      }
    }
  }

  // One step on a batch: forward, backward, and the update. The learning rate rises at first, then falls as a cosine.
  step(images, labels, { peak = 2e-3, warmup = 50, total = 1000, ...options } = {}) {
    const found = this.forward(images, labels);
    this.backward();
    const share = Math.min(1, this.steps / total);
    const rate = Math.min(1, (this.steps + 1) / warmup) * peak * (0.5 + 0.5 * Math.cos(Math.PI * share));
    this.update(Math.max(rate, peak / 100), options);
    return found;
  }
}

// Training in pieces of a tenth of a second, in a worker or in the page. post: takes what there is to tell.
class Practice {
  constructor({ config, tensors, train, test, factor, shift, batch = 32, total = 600, seed = 1 }, post) {
    Object.assign(this, { config, post, total, test, own: [], onlyOwn: false, running: false });
    Object.assign(this, { factor, shift, train, uniform: generator(seed), news: 0, evaluated: -1 });
    this.trainer = new Trainer(config, tensors, batch);
  }

  // Letters a to q (0 to 16) as a normalized image.
  image(letters) {
    const [height, width] = this.config.image_size,
      data = Float32Array.from(letters, (each) => Math.round(((each.charCodeAt(0) - 97) * 255) / 16));
    return tensor(
      data.map((value) => value * this.factor + this.shift),
      1,
      height,
      width,
    );
  }

  // A random image with its label: of the digits, or of what the reader has drawn.
  sample() {
    const own = this.own.length && (this.onlyOwn || this.uniform() < 0.3);
    if (own) return this.own[Math.floor(this.uniform() * this.own.length)];
    const n = Math.floor(this.uniform() * this.train.labels.length),
      size = this.config.image_size[0] * this.config.image_size[1];
    return [this.image(this.train.pixels.slice(n * size, (n + 1) * size)), Number(this.train.labels[n])];
  }

  once() {
    const chosen = Array.from({ length: this.trainer.batch }, () => this.sample());
    const { loss, right } = this.trainer.step(
      chosen.map(([image]) => image),
      chosen.map(([, label]) => label),
      { total: this.total },
    );
    return { loss, accuracy: right / chosen.length };
  }

  // The share of the held-out images that are right.
  evaluate(most = 360) {
    const size = this.config.image_size[0] * this.config.image_size[1],
      { batch } = this.trainer,
      count = Math.min(most, this.test.labels.length);
    let right = 0;
    for (let from = 0; from < count; from += batch) {
      const numbers = Array.from({ length: Math.min(batch, count - from) }, (_, i) => from + i);
      right += this.trainer.forward(
        numbers.map((n) => this.image(this.test.pixels.slice(n * size, (n + 1) * size))),
        numbers.map((n) => Number(this.test.labels[n])),
        numbers.length,
      ).right;
    }
    return right / count;
  }

  run(running) {
    const begins = running && !this.running;
    this.running = running;
    if (begins) this.loop();
  }

  loop() {
    if (!this.running) return;
    const begun = performance.now(),
      found = [];
    do found.push(this.once());
    while (performance.now() - begun < 100 && this.trainer.steps < this.total);
    const millis = (performance.now() - begun) / found.length,
      done = this.trainer.steps >= this.total,
      news = { steps: this.trainer.steps, found, millis, done };
    if (done || this.trainer.steps - this.evaluated >= 20) {
      this.evaluated = this.trainer.steps;
      news.heldOut = this.evaluate(done ? 360 : 120);
    }
    news.tensors = Object.fromEntries(
      Object.entries(this.trainer.tensors).map(([name, { data, shape }]) => [name, tensor(data.slice(), ...shape)]),
    );
    this.post(news);
    if (done) this.running = false;
    else setTimeout(() => this.loop(), 0);
  }

  // What the page says: to run or to pause, and which images the reader has drawn.
  hear({ running, own, onlyOwn }) {
    if (own) this.own = own.map(([letters, label]) => [this.image(letters), label]);
    if (onlyOwn !== undefined) this.onlyOwn = onlyOwn;
    if (running !== undefined) this.run(running);
  }
}
