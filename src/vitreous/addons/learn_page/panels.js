// --- The panels: each has an equation with its number, shapes, a line of n, and what it draws. -----------
//
// c is the context of a drawing (app.js): the model, the trace of the image, and what is selected.
// group: the part of the map (places.js) that a panel is on; small: the images that it has there.
// shapes: [key, symbol, rows, columns]. code: [name of a line, {part of it: key}].

const tokenMap = (c, matrix, options) =>
  heatMap(matrix, {
    rowName: c.tokenName,
    marked: [c.token],
    pick: (r) => c.select({ token: r }),
    columnName: (d) => `${c.words.channel} ${d + 1}`,
    ...options,
  });

const sign = (text) => element("span", { class: "sign", "aria-hidden": "true" }, text);

// The image with its patches; a click selects the token of a patch.
function patches(c, options = {}) {
  const selected = c.token - c.prefix;
  return patchImage(c.image, c.grid, {
    label: c.t("image_of_patches", { rows: c.grid[0], columns: c.grid[1] }),
    marked: selected,
    at: (n) => c.tokenName(n + c.prefix),
    pick: (n) => c.select({ token: n + c.prefix }),
    ...options,
  });
}

// The patch that is selected; the first where another token is.
const patchNumber = (c) => Math.max(0, c.token - c.prefix);

const imageShape = (c) => [...c.config.image_size, c.config.channels].join(" × ");

// What is projected to the tokens: flat patches x_p, or the cells h of the last feature map of convolutions.
const sourceOf = (c) => (c.config.stem.kind === "patch" ? "x_p" : "h");

// The tokens before positions are added, in the notation of equations.
const tokensBefore = (c) =>
  c.config.class_token ? `[ x_{class} ; ${sourceOf(c)} E ]` : `${sourceOf(c)} E`;

// Feature maps as figures: their first channels, each a small image.
function mapFigures(c, nameOf) {
  return c.trace.maps.map((map, i) => {
    const [wide, high, across] = map.shape,
      shown = Math.min(wide, 16),
      plane = high * across,
      most = largest(map);
    const images = Array.from({ length: shown }, (_, k) => {
      const image = tensor(map.data.subarray(k * plane, (k + 1) * plane), 1, high, across);
      const canvas = cells({
        id: `map-${i}-${k}`,
        rows: high,
        columns: across,
        label: `${c.words.channel} ${k + 1}`,
        at: (r, s) =>
          `${c.words.channel} ${k + 1} · ${r + 1}, ${s + 1}:  ${image.data[r * across + s].toFixed(4)}`,
      });
      canvas.tabIndex = -1;
      canvas.width = across;
      canvas.height = high;
      const scaled = pixelCanvas(
        tensor(
          image.data.map((value) => value / (most || 1)),
          1,
          high,
          across,
        ),
      );
      canvas.getContext("2d").drawImage(scaled, 0, 0);
      return canvas;
    });
    return figure(
      {
        k: "maps",
        symbol: `h_${i + 1}`,
        name: nameOf(map, i),
        shape: `${high} × ${across} × ${wide}`,
        note: wide > shown ? c.t("first_maps", { shown, wide }) : null,
      },
      div("maps", images),
    );
  });
}

function patchShape(c) {
  const [p, q] = c.config.patch_size;
  return `${p}×${q}×${c.config.channels}`;
}

// A few filters as images: each scaled to 0 ... 1 around gray.
function filterImages(c, filters, pick) {
  return div(
    "filters",
    filters.map(({ image, label, pressed }, d) => {
      const most = largest(image),
        gray = tensor(
          image.data.map((value) => 0.5 + (0.5 * value) / (most || 1)),
          ...image.shape,
        );
      const canvas = pixelCanvas(gray);
      return element(
        "button",
        {
          type: "button",
          class: "filter",
          title: label,
          "aria-label": label,
          "aria-pressed": String(pressed),
          onclick: () => pick(d),
        },
        canvas,
      );
    }),
  );
}

// One row of a projection matrix, in the order (row, column, channel), as an image.
function filterImage(vector, [p, q], channels) {
  const image = zeros(channels, p, q);
  vector.forEach((value, i) => {
    image.data[(i % channels) * p * q + Math.floor(i / channels)] = value;
  });
  return image;
}

function normOf(values) {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}

// What BatchNorm without gamma and beta would give: each channel over all tokens of a batch of images.
function batchNorm(x, batch) {
  const width = x.shape[1],
    out = zeros(...x.shape),
    count = batch.reduce((sum, each) => sum + each.shape[0], 0);
  for (let d = 0; d < width; d++) {
    let mean = 0,
      variance = 0;
    for (const each of batch) for (let i = d; i < each.data.length; i += width) mean += each.data[i] / count;
    for (const each of batch)
      for (let i = d; i < each.data.length; i += width) variance += (each.data[i] - mean) ** 2 / count;
    for (let i = d; i < x.data.length; i += width)
      out.data[i] = (x.data[i] - mean) / Math.sqrt(variance + 1e-5);
  }
  return out;
}

const CURVES = {
  gelu: ["GELU", "GELU(x) = x ⋅ Φ(x)"],
  gelu_tanh: ["GELU", "GELU(x) ≈ x ⋅ ( 1 + tanh ( √{2 / π} ( x + 0.0447 x^3 ) ) ) / 2"],
  quick_gelu: ["QuickGELU", "x ⋅ σ(1.702 x)"],
  relu: ["ReLU", "max ( 0 , x )"],
  silu: ["SiLU", "x ⋅ σ(x)"],
};

// What the head reads of the tokens after layer l, in the notation of equations.
function readout({ config }, l) {
  const norm = (x) => (config.final_norm === "none" ? x : `LN(${x})`),
    token = norm(`z_${l}^0`);
  const mean = config.final_norm === "pooled" ? norm(`mean(z_${l})`) : `mean(${norm(`z_${l}`)})`;
  return { class: token, "class+mean": `[ ${token} ; ${mean} ]` }[config.pooling.kind] ?? mean;
}

// The numbers of attention or of probabilities as a small image; the second of rows of equal lengths.
const weightsImage = (matrix) => numbersImage(matrix, largest(matrix), "weight");
const stacked = (rows) => tensor(Float32Array.from(rows.flatMap((each) => [...each])), rows.length, rows[0].length);

const PANELS = [
  {
    id: "patches",
    group: "tokens",
    small: (c) => [pixelCanvas(c.image)],
    number: "3.1",
    when: (c) => c.config.stem.kind === "patch",
    equation: "{image|x ∈ R^{H × W × C}} → {flat|x_p ∈ R^{N × (P^2 ⋅ C)}} ,, N = H W / P^2",
    shapes: (c) => [
      ["image", "x", c.config.image_size[0], c.config.image_size[1], c.config.channels],
      ["flat", "x_p", c.N, c.flatWidth],
    ],
    code: () => [["patches", { cells: "image", "flatten(3)": "flat" }]],
    draw(c) {
      const whole = patchImage(c.image, [1, 1], {
        id: "patches-whole",
        label: c.words.image,
        gap: 0,
        at: () => c.words.image,
      });
      const strip = div(
        "strip",
        Array.from({ length: Math.min(c.N, 64) }, (_, n) => {
          const at = c.patchPixels(n);
          return element(
            "button",
            {
              type: "button",
              class: "thumb",
              title: c.tokenName(n + c.prefix),
              "aria-label": c.tokenName(n + c.prefix),
              "aria-pressed": String(n + c.prefix === c.token),
              onclick: () => c.select({ token: n + c.prefix }),
            },
            pixelCanvas(at),
          );
        }),
      );
      return [
        figure(
          {
            k: "image",
            symbol: "x",
            name: c.words.image,
            shape: imageShape(c),
          },
          whole,
        ),
        sign("→"),
        figure(
          {
            k: "flat",
            name: c.t("cut", { rows: c.grid[0], columns: c.grid[1] }),
            shape: `${c.N} × (${patchShape(c)})`,
          },
          patches(c, { id: "patches-cut", gap: 5 }),
        ),
        sign("→"),
        figure(
          {
            k: "flat",
            symbol: "x_p",
            name: c.words.sequence,
            shape: `N = ${c.N}`,
            note: c.N > 64 ? c.words.first_64 : null,
          },
          strip,
        ),
      ];
    },
  },
  {
    id: "flatten",
    group: "tokens",
    small: (c) => [numbersImage(c.trace.flat)],
    number: "3.1",
    when: (c) => c.config.stem.kind === "patch",
    equation: "x_p = [ {one|x_p^1} ; x_p^2 ; … ; x_p^N ]",
    shapes: (c) => [
      ["one", "x_p^i", c.flatWidth],
      ["flat", "x_p", c.N, c.flatWidth],
    ],
    code: () => [["patches", { "permute(0, 2, 4, 3, 5, 1)": "one", "flatten(1, 2)": "flat" }]],
    draw(c) {
      const n = patchNumber(c),
        [p, q] = c.config.patch_size,
        channels = c.config.channels;
      const vector = tensor(row(c.trace.flat, n), 1, c.flatWidth),
        pixel = (d) =>
          `${c.words.row} ${Math.floor(d / (q * channels)) + 1} ${c.words.column} ${(Math.floor(d / channels) % q) + 1} ${c.words.color} ${(d % channels) + 1}`;
      const large = patchImage(c.patchPixels(n), [p, q], {
        id: "flatten-patch",
        label: c.tokenName(n + c.prefix),
        side: 120,
        gap: p > 8 ? 0 : 2,
        at: (i) => `${c.words.pixel} ${Math.floor(i / q) + 1}, ${(i % q) + 1}`,
      });
      return [
        figure({ k: "one", name: c.tokenName(n + c.prefix), shape: patchShape(c) }, large),
        sign("→"),
        heatMap(vector, {
          id: "flatten-vector",
          k: "one",
          symbol: "x_p^i",
          name: c.words.flat_vector,
          columnName: pixel,
          tall: 22,
          note: c.words.normalized,
        }),
        heatMap(c.trace.flat, {
          id: "flatten-all",
          k: "flat",
          symbol: "x_p",
          name: c.words.all_patches,
          rowName: (r) => c.tokenName(r + c.prefix),
          columnName: pixel,
          marked: [n],
          pick: (r) => c.select({ token: r + c.prefix }),
        }),
      ];
    },
  },
  {
    id: "convolutions",
    group: "tokens",
    small: (c) => [pixelCanvas(c.image), colorsOf(c.trace.maps.at(-1))],
    number: "2106.14881",
    when: (c) => c.config.stem.kind === "convolution",
    equation:
      "{image|h_0 = x} ,, {maps|h_i} = ReLU ( GroupNorm ( {kernels|W_i} ∗ h_{i−1} ) )",
    shapes: (c) => [
      ["image", "x", ...c.config.image_size, c.config.channels],
      ...c.config.stem.widths.flatMap((wide, i) => [
        ["kernels", `W_${i + 1}`, 3, 3, i ? c.config.stem.widths[i - 1] : c.config.channels, wide],
        ["maps", `h_${i + 1}`, ...c.mapSize(i), wide],
      ]),
    ],
    code: () => [["stem", { "self.convolutions(images)": "maps" }]],
    draw: (c) => [
      figure(
        { k: "image", symbol: "x", name: c.words.image, shape: imageShape(c) },
        patches(c, { id: "convolutions-image", gap: 2 }),
      ),
      ...mapFigures(c, (_, i) => c.t("convolution", { number: i + 1 })),
    ],
  },
  {
    id: "network",
    group: "tokens",
    small: (c) => [pixelCanvas(c.image), colorsOf(c.trace.maps.at(-1))],
    number: "1905.11946",
    when: (c) => c.config.stem.kind === "efficientnet-lite",
    equation:
      "{image|h_0 = x} ,, {maps|h_i} = W_i ReLU6 ( K_i ∗ ReLU6 ( V_i h_{i−1} ) ) [ + h_{i−1} ]",
    shapes: (c) => [
      ["image", "x", ...c.config.image_size, c.config.channels],
      ...(c.trace?.maps ?? []).map((map, i) => ["maps", `h_${i + 1}`, map.shape[1], map.shape[2], map.shape[0]]),
    ],
    code: () => [["stem", { "self.cells(images)": "maps" }]],
    draw: (c) => [
      figure(
        { k: "image", symbol: "x", name: c.words.image, shape: imageShape(c) },
        patches(c, { id: "network-image", gap: 2 }),
      ),
      ...mapFigures(c, (map) => c.t("map_of_stem", { high: map.shape[1], wide: map.shape[2] })),
    ],
  },
  {
    id: "projection",
    group: "tokens",
    small: (c) => [numbersImage(c.trace.patches)],
    number: "1",
    when: (c) => c.config.stem.projection !== false,
    equation: (c) =>
      `{flat|${sourceOf(c)}} {filters|E} + b = {patches|[ ${sourceOf(c)}^1 E ; … ; ${sourceOf(c)}^N E ]}`,
    shapes: (c) => [
      ["flat", sourceOf(c), c.N, c.stemWidth],
      ["filters", "E", c.stemWidth, c.D],
      ["patches", `${sourceOf(c)} E`, c.N, c.D],
    ],
    code: () => [["projection", { "self.projection": "filters", "flatten(2)": "patches" }]],
    draw(c) {
      const { config } = c,
        d = Math.min(c.channel, c.D - 1),
        n = patchNumber(c);
      const input = c.trace.cells ?? c.trace.flatNormed ?? c.trace.flat,
        matrix = c.model.projection;
      const bias = c.model.tensors["stem.projection.bias"]?.data[d] ?? 0,
        filter = row(matrix, d),
        value = row(c.trace.patches, n)[d];
      const shown = Math.min(c.D, 64),
        parts = [];
      if (c.trace.cells) {
        parts.push(
          heatMap(matrix, {
            id: "projection-matrix",
            k: "filters",
            symbol: "E",
            name: c.words.matrix_1x1,
            rowName: (r) => `${c.words.channel} ${r + 1}`,
            marked: [d],
            pick: (r) => c.select({ channel: r }),
            tall: c.D > 70 ? 2 : 3,
          }),
        );
      } else {
        const filters = Array.from({ length: shown }, (_, k) => ({
          image: filterImage(row(matrix, k), config.patch_size, config.channels),
          label: `${c.words.channel} ${k + 1}`,
          pressed: k === d,
        }));
        parts.push(
          figure(
            {
              k: "filters",
              symbol: "E",
              name: c.t("filters", { count: c.D }),
              shape: `${c.D} × (${patchShape(c)})`,
              note: c.D > shown ? c.words.first_64 : null,
            },
            filterImages(c, filters, (k) => c.select({ channel: k })),
          ),
        );
      }
      const [norm_before, norm_after] = [config.stem.norm_before, config.stem.norm_after];
      const sum = row(input, n).reduce((total, each, i) => total + each * filter[i], 0);
      const words = c.t(norm_after ? "dot_product_normed" : "dot_product", {
        patch: c.tokenName(n + c.prefix),
        channel: d + 1,
        sum: number(sum),
        bias: number(bias),
        value: number(value),
      });
      parts.push(
        figure(
          { k: "filters", name: c.words.one_dot_product, note: words },
          heatMap(
            tensor(
              Float32Array.from([
                ...row(input, n),
                ...filter,
                ...row(input, n).map((each, i) => each * filter[i]),
              ]),
              3,
              c.stemWidth,
            ),
            {
              id: "projection-dot",
              rowName: (r) => [c.words.patch_row, c.words.filter_row, c.words.product_row][r],
              tall: 20,
              bare: true,
            },
          ),
        ),
      );
      parts.push(
        heatMap(c.trace.patches, {
          id: "projection-patches",
          k: "patches",
          symbol: `${sourceOf(c)} E`,
          name: c.words.embedded,
          rowName: (r) => c.tokenName(r + c.prefix),
          columnName: (e) => `${c.words.channel} ${e + 1}`,
          marked: [n],
          pick: (r, e) => c.select({ token: r + c.prefix, channel: e }),
          note: norm_before ? c.words.norm_before : null,
        }),
      );
      return parts;
    },
  },
  {
    id: "class",
    group: "tokens",
    small: (c) => [numbersImage(c.trace.tokens)],
    number: "1",
    when: (c) => c.config.class_token,
    equation: (c) => `[ {class|x_{class}} ; {patches|${sourceOf(c)}^1 E ; … ; ${sourceOf(c)}^N E} ]`,
    shapes: (c) => [
      ["class", "x_{class}", c.prefix, c.D],
      ["patches", `${sourceOf(c)} E`, c.N, c.D],
      ["tokens", `[ x_{class} ; ${sourceOf(c)} E ]`, c.T, c.D],
    ],
    code: () => [["prefix", { "self.prefix": "class", "patches]": "patches", "torch.cat": "tokens" }]],
    draw: (c) => [
      heatMap(c.model.tensors.prefix, {
        id: "class-token",
        k: "class",
        symbol: "x_{class}",
        name: c.words.learned,
        rowName: c.tokenName,
        tall: 22,
      }),
      sign(";"),
      tokenMap(c, c.trace.tokens, {
        id: "class-tokens",
        k: "tokens",
        name: c.words.tokens,
        marked: [...Array(c.prefix).keys(), c.token],
      }),
    ],
  },
  {
    id: "positions",
    group: "tokens",
    small: (c) => [numbersImage(c.trace.z0)],
    number: "1",
    when: (c) => c.config.position.kind !== "none",
    equation: (c) =>
      c.addedPositions
        ? `{z0|z_0} = {tokens|${tokensBefore(c)}} + {table|E_{pos}}`
        : "A = softmax ( q k^⊤ / √{D_h} {table|+ position} )",
    shapes: (c) =>
      c.addedPositions
        ? [
            ["tokens", tokensBefore(c), c.T, c.D],
            ["table", "E_{pos}", c.T, c.D],
            ["z0", "z_0", c.T, c.D],
          ]
        : [["table", "position", c.T, c.Dh]],
    code: (c) =>
      c.addedPositions
        ? [["positions", { z: "tokens", rows: "table" }]]
        : [["attention_positions", { "self.position": "table" }]],
    draw(c) {
      if (!c.addedPositions) {
        const name = Object.keys(c.model.tensors).find((each) =>
          /blocks\.0\.attention\.position\.(table|cos)$/.test(each),
        );
        return [
          heatMap(c.model.tensors[name], {
            id: "positions-table",
            k: "table",
            name: c.t(`position_${c.config.position.kind.replaceAll("-", "_")}`),
          }),
        ];
      }
      const everywhere = c.config.position.where?.startsWith("every-layer"),
        name = everywhere ? "blocks.0.position" : "position";
      const table = c.model.positions(name),
        removed = c.changes.withoutPositions;
      const before = everywhere ? c.trace.z0 : c.trace.tokens,
        after = removed ? before : add(before, table),
        most = scaleOf(before, after);
      const selected = row(table, Math.max(c.token, c.prefix)),
        size = normOf(selected);
      const similar = Float32Array.from({ length: c.N }, (_, n) => {
        const other = row(table, n + c.prefix);
        return selected.reduce((sum, value, d) => sum + value * other[d], 0) / (size * normOf(other) || 1);
      });
      return [
        tokenMap(c, before, { id: "positions-before", k: "tokens", name: c.words.before, most }),
        sign("+"),
        tokenMap(c, table, {
          id: "positions-table",
          k: "table",
          symbol: "E_{pos}",
          name: removed ? c.words.removed : c.t(`kind_${c.config.position.kind.replaceAll("-", "_")}`),
          most,
          faded: removed,
        }),
        sign("="),
        tokenMap(c, after, {
          id: "positions-after",
          k: "z0",
          symbol: everywhere ? undefined : "z_0",
          name: c.words.after,
          most,
        }),
        heatMap(tensor(similar, ...c.grid), {
          id: "positions-similar",
          k: "table",
          name: c.words.similarity,
          square: true,
          tall: Math.max(6, Math.min(40, 200 / c.grid[0])),
          most: 1,
          rowName: (r) => `${c.words.row} ${r + 1}`,
          columnName: (s) => `${c.words.column} ${s + 1}`,
          pick: (r, s) => c.select({ token: r * c.grid[1] + s + c.prefix }),
          note: c.t("similarity_note", { token: c.tokenName(Math.max(c.token, c.prefix)) }),
        }),
      ];
    },
  },
  {
    id: "norm",
    group: "layer",
    small: (c) => [numbersImage(c.layerTrace.normed)],
    number: "2",
    layer: true,
    equation: "{normed|LN(z)} = γ ⊙ ( {z|z} − μ ) / √{σ^2 + ε} + β",
    shapes: (c) => [
      ["z", "z_{ℓ−1}", c.T, c.D],
      ["normed", "LN(z)", c.T, c.D],
    ],
    code: () => [["layer_norm", { "self.attention_norm(z)": "normed" }]],
    draw(c) {
      const { input, normed } = c.layerTrace,
        all = c.batch(),
        size = Math.min(c.batchSize, all.length),
        batch = all.slice(0, size);
      const normalized = batchNorm(input, batch),
        fewer = batchNorm(input, all.slice(0, 2));
      const change = row(normalized, c.token).reduce(
        (most, value, d) => Math.max(most, Math.abs(value - row(fewer, c.token)[d])),
        0,
      );
      const { mean, variance } = moments(row(input, c.token)),
        std = Math.sqrt(variance);
      const choice = div(
        "choice",
        [2, all.length].map((count) =>
          element(
            "button",
            {
              type: "button",
              id: `batch-${count}`,
              "aria-pressed": String(count === size),
              onclick: () => c.select({ batchSize: count }),
            },
            c.t("batch_of", { count }),
          ),
        ),
      );
      return [
        tokenMap(c, input, {
          id: "norm-before",
          k: "z",
          symbol: "z_{ℓ−1}",
          name: c.words.not_normalized,
          note: c.t("moments", { token: c.tokenName(c.token), mean: number(mean), std: number(std) }),
        }),
        sign("→"),
        tokenMap(c, normed, {
          id: "norm-after",
          k: "normed",
          symbol: "LN(z)",
          name: c.words.layer_norm,
          note: c.words.layer_norm_note,
        }),
        div(
          "aside",
          tokenMap(c, normalized, {
            id: "norm-batch",
            name: c.words.batch_norm,
            note: c.t(size > 2 ? "batch_norm_note" : "batch_norm_two", {
              count: size,
              change: number(change),
            }),
          }),
          all.length > 2 ? choice : null,
        ),
      ];
    },
  },
  {
    id: "qkv",
    group: "layer",
    small: (c) => ["query", "key", "value"].map((part) => numbersImage(c.headTrace[part])),
    number: "5",
    layer: true,
    head: true,
    equation: "[ {q|q} , {key|k} , {v|v} ] = {normed|z} U_{qkv}",
    shapes: (c) => [
      ["normed", "z", c.T, c.D],
      ["weights", "U_{qkv}", c.D, 3 * c.K * c.Dh],
      ["q", "q", c.T, c.Dh],
      ["key", "k", c.T, c.Dh],
      ["v", "v", c.T, c.Dh],
    ],
    code: () => [["qkv", { query: "q", "key,": "key", value: "v", "self.qkv(z)": "normed" }]],
    draw: (c) =>
      ["query", "key", "value"].map((part, i) =>
        tokenMap(c, c.headTrace[part], {
          id: `qkv-${part}`,
          k: ["q", "key", "v"][i],
          symbol: ["q", "k", "v"][i],
          name: c.words[part],
        }),
      ),
  },
  {
    id: "logits",
    group: "layer",
    small: (c) => [numbersImage(c.headTrace.logits)],
    number: "6",
    layer: true,
    head: true,
    equation: "{logits|{q|q} {key|k^⊤} / √{D_h}}",
    shapes: (c) => [
      ["q", "q", c.T, c.Dh],
      ["key", "k^⊤", c.Dh, c.T],
      ["logits", "q k^⊤ / √{D_h}", c.T, c.T],
    ],
    code: () => [["logits", { query: "q", "key.transpose(-2, -1)": "key", "logits =": "logits" }]],
    draw(c) {
      const i = c.token,
        j = c.other,
        { query, key, logits } = c.headTrace,
        q = row(query, i),
        k = row(key, j);
      const products = Float32Array.from([...q, ...k, ...q.map((value, e) => value * k[e])]);
      const value = row(logits, i)[j],
        sum = q.reduce((total, each, e) => total + each * k[e], 0);
      return [
        heatMap(logits, {
          id: "logits-all",
          k: "logits",
          name: c.words.logits,
          square: true,
          rowName: (r) => `${c.words.query} ${c.tokenName(r)}`,
          columnName: (s) => `${c.words.key} ${c.tokenName(s)}`,
          marked: [i],
          pick: (r, s) => c.select({ token: r, other: s }),
          note: c.words.click_logit,
        }),
        heatMap(tensor(products, 3, c.Dh), {
          id: "logits-dot",
          k: "logits",
          name: c.t("one_logit", { query: c.tokenName(i), key: c.tokenName(j) }),
          rowName: (r) => ["q", "k", "q ⊙ k"][r],
          tall: 22,
          note: c.t("logit_sum", { sum: number(sum), dim: c.Dh, value: number(value) }),
        }),
      ];
    },
  },
  {
    id: "softmax",
    group: "layer",
    small: (c) => [weightsImage(c.headTrace.weights)],
    number: "6",
    layer: true,
    head: true,
    equation: "{A|A} = softmax ( {logits|q k^⊤ / √{D_h}} )",
    shapes: (c) => [
      ["logits", "q k^⊤ / √{D_h}", c.T, c.T],
      ["A", "A", c.T, c.T],
    ],
    code: () => [["softmax", { "torch.softmax": "A", "logits if": "logits" }]],
    draw(c) {
      const weights = row(c.headTrace.weights, c.token),
        best = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 6);
      const most = Math.max(...weights.subarray(c.prefix));
      const heads = div(
        "heads",
        c.layerTrace.heads.map((head, k) =>
          element(
            "button",
            {
              type: "button",
              class: "head",
              id: `softmax-head-${k}`,
              "aria-pressed": String(k === c.head),
              onclick: () => c.select({ head: k }),
            },
            Object.assign(
              patchImage(c.image, c.grid, {
                label: `${c.words.head} ${k + 1}`,
                side: 84,
                gap: 1,
                weights: row(head.weights, c.token).subarray(c.prefix),
                marked: c.token - c.prefix,
                at: () => `${c.words.head} ${k + 1}`,
              }),
              { tabIndex: -1 },
            ),
            `${c.words.head} ${k + 1}`,
          ),
        ),
      );
      return [
        heatMap(c.headTrace.weights, {
          id: "softmax-all",
          k: "A",
          symbol: "A",
          name: c.words.attention,
          kind: "weight",
          square: true,
          rowName: c.tokenName,
          columnName: (s) => `→ ${c.tokenName(s)}`,
          marked: [c.token],
          pick: (r) => c.select({ token: r }),
          note: c.words.click_row,
        }),
        figure(
          {
            k: "A",
            name: c.t("looks", { token: c.tokenName(c.token) }),
            note: c.t("row_sum", {
              sum: weights.reduce((sum, value) => sum + value, 0).toFixed(4),
              even: percent(1 / c.T),
            }),
          },
          patches(c, {
            id: "softmax-image",
            weights: weights.subarray(c.prefix),
            most,
            at: (n) => `${c.tokenName(n + c.prefix)}:  ${percent(weights[n + c.prefix])}`,
          }),
        ),
        figure(
          { k: "A", name: c.words.largest_weights },
          bars(
            best.map((t) => ({
              name: c.tokenName(t),
              share: weights[t] / weights[best[0]],
              text: percent(weights[t]),
            })),
          ),
        ),
        figure({ name: c.t("all_heads", { layer: c.layer + 1 }) }, heads),
      ];
    },
  },
  {
    id: "heads",
    group: "layer",
    small: (c) => [numbersImage(c.layerTrace.joined)],
    number: "7, 8",
    layer: true,
    equation: "{out|SA(z) = A v} ,, {msa|MSA(z)} = {joined|[ SA_1(z) ; … ; SA_k(z) ]} U_{msa}",
    shapes: (c) => [
      ["out", "SA(z)", c.T, c.Dh],
      ["joined", "[ SA_1 ; … ; SA_k ]", c.T, c.K * c.Dh],
      ["weights", "U_{msa}", c.K * c.Dh, c.D],
      ["msa", "MSA(z)", c.T, c.D],
    ],
    code: () => [["heads", { "join_heads(attended)": "joined", "self.out": "msa" }]],
    draw: (c) => [
      tokenMap(c, c.headTrace.output, {
        id: "heads-one",
        k: "out",
        symbol: "A v",
        name: c.t("head_output", { head: c.head + 1 }),
      }),
      sign("→"),
      tokenMap(c, c.layerTrace.joined, {
        id: "heads-joined",
        k: "joined",
        name: c.t("concatenated", { heads: c.K }),
        bands: Array(c.K).fill(c.Dh),
        columnName: (e) =>
          `${c.words.head} ${Math.floor(e / c.Dh) + 1}, ${c.words.channel} ${(e % c.Dh) + 1}`,
        pick: (r, e) => c.select({ token: r, head: Math.floor(e / c.Dh) }),
        note: c.zeroedHeads(),
      }),
      sign("→"),
      tokenMap(c, c.layerTrace.msa, { id: "heads-msa", k: "msa", symbol: "MSA(z)", name: c.words.projected }),
    ],
  },
  {
    id: "residual",
    group: "layer",
    small: (c) => [numbersImage(c.layerTrace.middle)],
    number: "2",
    layer: true,
    equation: "{middle|z'_ℓ} = {msa|MSA(LN(z_{ℓ−1}))} + {z|z_{ℓ−1}}",
    shapes: (c) => [
      ["msa", "MSA(LN(z))", c.T, c.D],
      ["z", "z_{ℓ−1}", c.T, c.D],
      ["middle", "z'_ℓ", c.T, c.D],
    ],
    code: () => [["residual", { "self.attention_branch": "msa", "z +": "z", "z =": "middle" }]],
    draw(c) {
      const { input, middle } = c.layerTrace,
        branch = tensor(
          middle.data.map((value, i) => value - input.data[i]),
          ...middle.shape,
        ),
        most = scaleOf(input, middle);
      return [
        tokenMap(c, branch, {
          id: "residual-msa",
          k: "msa",
          symbol: "MSA(LN(z))",
          name: c.config.layer_scale === null ? "" : c.words.scaled,
          most,
        }),
        sign("+"),
        tokenMap(c, input, { id: "residual-z", k: "z", symbol: "z_{ℓ−1}", most }),
        sign("="),
        tokenMap(c, middle, {
          id: "residual-middle",
          k: "middle",
          symbol: "z'_ℓ",
          most,
          note: c.t("residual_note", {
            token: c.tokenName(c.token),
            share: percent(normOf(row(branch, c.token)) / normOf(row(input, c.token))),
          }),
        }),
      ];
    },
  },
  {
    id: "mlp",
    group: "layer",
    small: (c) => [numbersImage(c.layerTrace.hidden)],
    number: "3",
    layer: true,
    equation: (c) =>
      `{z|z_ℓ} = {mlp|MLP(LN({middle|z'_ℓ}))} + {middle|z'_ℓ} ,, {curve|${CURVES[c.config.mlp][1]}}`,
    shapes: (c) => [
      ["middle", "LN(z'_ℓ)", c.T, c.D],
      ["curve", CURVES[c.config.mlp][0], c.T, c.M],
      ["mlp", "MLP", c.T, c.D],
      ["z", "z_ℓ", c.T, c.D],
    ],
    code: () => [
      ["mlp", { "self.contract": "mlp", "self.activation": "curve", "self.expand(z)": "middle" }],
      ["mlp_residual", { "self.mlp(": "mlp", "z +": "z" }],
    ],
    draw(c) {
      const { hidden, active, mlp, middleNormed } = c.layerTrace,
        activation = ACTIVATIONS[c.config.mlp],
        units = row(hidden, c.token);
      const curve = Array.from({ length: 121 }, (_, i) => [-4 + i / 15, activation(-4 + i / 15)]).filter(
        ([, y]) => y < 4.2,
      );
      const points = Array.from(units, (x) => [
        Math.max(-4, Math.min(4, x)),
        activation(Math.max(-4, Math.min(4, x))),
      ]);
      const negative = units.filter((x) => x < 0).length / units.length;
      return [
        tokenMap(c, middleNormed, { id: "mlp-normed", k: "middle", symbol: "LN(z'_ℓ)", name: "" }),
        sign("→"),
        tokenMap(c, hidden, {
          id: "mlp-hidden",
          k: "curve",
          name: c.words.hidden,
          columnName: (e) => `${c.words.unit} ${e + 1}`,
        }),
        sign("→"),
        figure(
          {
            k: "curve",
            name: CURVES[c.config.mlp][0],
            note: c.t("gelu_note", {
              token: c.tokenName(c.token),
              count: units.length,
              share: percent(negative),
            }),
          },
          plot({ x: [-4, 4], y: [-0.6, 4], lines: [curve], points, label: CURVES[c.config.mlp][0] }),
        ),
        sign("→"),
        tokenMap(c, active, {
          id: "mlp-active",
          k: "curve",
          name: c.words.active,
          columnName: (e) => `${c.words.unit} ${e + 1}`,
        }),
        sign("→"),
        tokenMap(c, mlp, { id: "mlp-out", k: "mlp", symbol: "MLP", name: c.words.back }),
      ];
    },
  },
  {
    id: "stream",
    group: "answer",
    small: (c) => [numbersImage(c.trace.layers.at(-1).z)],
    number: "2, 3",
    equation: "{stream|z_0 → z_1 → … → z_L}",
    shapes: (c) => [
      ["stream", "z_ℓ", c.T, c.D],
      ["layers", "L", c.L],
    ],
    code: () => [["encode", { "block(z)": "stream" }]],
    draw(c) {
      const all = [c.trace.z0, ...c.trace.layers.map((layer) => layer.z)],
        one = zeros(all.length, c.D),
        name = (l) => (l ? c.t("layer_number", { number: l }) : c.words.embedding);
      all.forEach((z, l) => one.data.set(row(z, c.token), l * c.D));
      const detailed = c.trace.layers.map((layer, l) => ({ layer, l })).filter(({ layer }) => layer.msa),
        share = (part, whole) => normOf(row(part, c.token)) / normOf(row(whole, c.token));
      const updates = detailed.flatMap(({ layer, l }) => [
          {
            name: `${l + 1} MSA`,
            value: share(
              tensor(
                layer.middle.data.map((value, i) => value - layer.input.data[i]),
                ...layer.z.shape,
              ),
              layer.input,
            ),
          },
          {
            name: `${l + 1} MLP`,
            value: share(
              tensor(
                layer.z.data.map((value, i) => value - layer.middle.data[i]),
                ...layer.z.shape,
              ),
              layer.middle,
            ),
          },
        ]),
        most = Math.max(...updates.map((each) => each.value));
      return [
        heatMap(one, {
          id: "stream-all",
          k: "stream",
          name: c.t("stream_of", { token: c.tokenName(c.token) }),
          rowName: name,
          columnName: (d) => `${c.words.channel} ${d + 1}`,
          tall: 20,
          marked: [c.layer + 1],
          pick: (r) => c.select({ layer: Math.max(0, r - 1) }),
          note: c.words.stream_note,
        }),
        figure(
          { k: "layers", name: c.words.updates, note: c.words.updates_note },
          bars(
            updates
              .slice(0, 24)
              .map(({ name: label, value }) => ({ name: label, share: value / most, text: percent(value) })),
          ),
        ),
      ];
    },
  },
  {
    id: "lens",
    group: "answer",
    small: (c) => [weightsImage(stacked(c.trace.lens.map(c.probabilities)))],
    number: "4",
    equation: (c) => `${c.multilabel ? "sigmoid" : "softmax"} ( head ( {lens|${readout(c, "ℓ")}} ) )`,
    shapes: (c) => [
      ["lens", "z_ℓ^0", c.D],
      ["answer", "logits", c.labels.length],
    ],
    code: () => [
      ["features", { "self.pool": "lens" }],
      ["head", { "self.head": "answer" }],
    ],
    draw(c) {
      const best = c
          .best(c.trace.logits)
          .slice(0, 10)
          .sort((a, b) => a - b),
        probabilities = c.trace.lens.map(c.probabilities);
      const head = element(
        "tr",
        {},
        element("th", { scope: "col" }, c.words.layer),
        best.map((k) => element("th", { scope: "col" }, c.labels[k])),
      );
      const body = probabilities.map((each, l) => {
        const top = c.best(c.trace.lens[l])[0];
        return element(
          "tr",
          {},
          element("th", { scope: "row" }, l ? c.t("layer_number", { number: l }) : c.words.embedding),
          best.map((k) =>
            element(
              "td",
              { class: k === top ? "best" : null, style: `--share:${(each[k] * 100).toFixed(1)}%` },
              percent(each[k]),
            ),
          ),
        );
      });
      return [
        figure(
          { k: "lens", name: c.words.lens_table },
          div(
            "scroll",
            element(
              "table",
              { class: "lens", tabindex: 0, "aria-label": c.words.lens_table },
              element("thead", {}, head),
              element("tbody", {}, body),
            ),
          ),
        ),
      ];
    },
  },
  {
    id: "answer",
    group: "answer",
    small: (c) => [weightsImage(stacked([c.probabilities(c.trace.logits)]))],
    number: "4",
    equation: (c) =>
      `{y|y = ${readout(c, "L")}} ,, {answer|p = ${c.multilabel ? "sigmoid" : "softmax"} ( y W_{head} + b )}`,
    shapes: (c) => [
      ["y", "y", 1, c.featureWidth],
      ["answer", "p", c.labels.length],
    ],
    code: () => [
      ["features", { "self.pool": "y" }],
      ["head", { "self.head": "answer" }],
    ],
    draw(c) {
      const p = c.probabilities(c.trace.logits),
        best = c.best(c.trace.logits).slice(0, 12),
        rows = c.labels.length <= 12 ? [...c.labels.keys()] : best;
      const parts = [
        figure(
          { k: "answer", name: c.words.logits_and_probabilities },
          bars(
            rows.map((k) => ({
              name: c.labels[k],
              share: p[k],
              text: `${number(c.trace.logits[k])} → ${percent(p[k])}`,
              strong: k === best[0],
            })),
          ),
        ),
      ];
      if (c.trace.features)
        parts.unshift(
          heatMap(c.trace.features, {
            id: "answer-y",
            k: "y",
            symbol: "y",
            name: c.t(`pooling_${c.config.pooling.kind.replace(/[+-]/g, "_")}`),
            columnName: (d) => `${c.words.channel} ${d + 1}`,
            tall: 26,
          }),
          sign("→"),
        );
      return parts;
    },
  },
  {
    id: "shapes",
    group: "answer",
    number: "1–4",
    equation: "",
    shapes: () => [],
    code: () => [],
    draw: (c) => {
      const rows = c.stages(),
        total = rows.reduce(
          (sum, [, , , parameters, products]) => [sum[0] + parameters, sum[1] + products],
          [0, 0],
        );
      const cellsOf = (values) =>
        values.map((value) => element("td", { class: "number" }, value ? value.toLocaleString("en") : ""));
      return [
        element(
          "div",
          { class: "scroll" },
          element(
            "table",
            { class: "stages", tabindex: 0, "aria-label": c.words.stages },
            element(
              "thead",
              {},
              element(
                "tr",
                {},
                [c.words.stage, c.words.equation, c.words.shape, c.words.parameters, c.words.products].map(
                  (each) => element("th", { scope: "col" }, each),
                ),
              ),
            ),
            element(
              "tbody",
              {},
              rows.map(([name, symbol, shape, ...counts]) =>
                element(
                  "tr",
                  {},
                  element("th", { scope: "row" }, name),
                  element("td", {}, symbol ? equation(symbol) : ""),
                  element("td", { class: "number" }, shape),
                  cellsOf(counts),
                ),
              ),
            ),
            element(
              "tfoot",
              {},
              element(
                "tr",
                {},
                element("th", { scope: "row" }, c.words.total),
                element("td", {}),
                element("td", {}),
                cellsOf(total),
              ),
            ),
          ),
        ),
      ];
    },
  },
];
