// --- Elements, equations, heat maps, images: what panels are made of. -----------------------------------------

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const div = (className, ...children) => element("div", { class: className }, ...children);

// An equation as MathML, from a small notation: x_p, z^0, x_{class}, √{D_h}; {key|...} is lit with the tensor "key".
function equation(source) {
  const space = "http://www.w3.org/1998/Math/MathML";
  const make = (name, ...children) => {
    const made = document.createElementNS(space, name);
    made.append(...children);
    return made;
  };
  let at = 0;
  const skip = () => {
    while (source[at] === " ") at++;
  };
  function atom() {
    skip();
    if (source[at] === "{") {
      const key = /^\{([\w-]+)\|/.exec(source.slice(at));
      at += key ? key[0].length : 1;
      const row = make("mrow", ...sequence());
      at++;
      if (key) row.dataset.k = key[1];
      return row;
    }
    if (source[at] === "√") {
      at++;
      return make("msqrt", atom());
    }
    const [text] = /^([A-Za-z]+|[0-9.]+|.)/u.exec(source.slice(at));
    at += text.length;
    return make(/^[\p{L}]/u.test(text) ? "mi" : /^[0-9.]/.test(text) ? "mn" : "mo", text);
  }
  function scripted() {
    const base = atom();
    const scripts = {};
    while (source[at] === "_" || source[at] === "^") scripts[source[at++]] = atom();
    if (scripts._ && scripts["^"]) return make("msubsup", base, scripts._, scripts["^"]);
    if (scripts._) return make("msub", base, scripts._);
    return scripts["^"] ? make("msup", base, scripts["^"]) : base;
  }
  function sequence() {
    const found = [];
    for (skip(); at < source.length && source[at] !== "}"; skip()) found.push(scripted());
    return found;
  }
  return make("math", make("mrow", ...sequence()));
}

// A number for people: three or four significant digits, a real minus sign.
function number(value) {
  const size = Math.abs(value);
  const text =
    size >= 100
      ? value.toFixed(0)
      : size >= 10
        ? value.toFixed(1)
        : size >= 0.01 || size === 0
          ? value.toFixed(2)
          : value.toFixed(3);
  return text.replace("-", "−");
}

const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0)}%`;

const mixed = (from, to, share) => from.map((value, i) => Math.round(value + (to[i] - value) * share));
const shades = {}; // of the theme: 201 colors for each kind, computed once

// Colors from −1 to 1. Signed numbers: zero is the color of the paper. Weights: from the paper over blue to the peak.
function shadesOf(kind) {
  const style = getComputedStyle(document.documentElement),
    theme = style.getPropertyValue("--zero").trim();
  if (shades.theme !== theme) Object.assign(shades, { theme, signed: null, weight: null });
  const read = (name) =>
    style
      .getPropertyValue(name)
      .trim()
      .match(/[0-9a-f]{2}/gi)
      .map((part) => parseInt(part, 16));
  shades[kind] ??= Array.from({ length: 201 }, (_, i) => {
    const share = Math.abs(i - 100) / 100;
    if (kind === "weight")
      return share < 0.5
        ? mixed(read("--zero"), read("--weight"), 2 * share)
        : mixed(read("--weight"), read("--peak"), 2 * share - 1);
    return mixed(read("--zero"), read(i > 100 ? "--positive" : "--negative"), share ** 0.8);
  });
  return shades[kind];
}

function largest(...matrices) {
  let most = 0;
  for (const matrix of matrices) for (const value of matrix.data) most = Math.max(most, Math.abs(value));
  return most;
}

// A robust scale: the 99th percentile of the sizes, so that one large number does not fade the others.
function scaleOf(...matrices) {
  const sizes = new Float32Array(matrices.reduce((sum, matrix) => sum + matrix.data.length, 0));
  matrices.reduce((at, { data }) => (sizes.set(data, at), at + data.length), 0);
  sizes.forEach((value, i) => {
    sizes[i] = Math.abs(value);
  });
  sizes.sort();
  return sizes[Math.floor(0.99 * (sizes.length - 1))] || 1;
}

const tip = {
  show(text, x, y) {
    const box = document.getElementById("tip");
    box.textContent = text;
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
    box.style.top = `${y + 20 + height > innerHeight ? y - height - 12 : y + 20}px`;
  },
  hide() {
    document.getElementById("tip").hidden = true;
  },
};

// A canvas of cells that says what is at each: with a pointer, and with the arrow keys.
//
// at(row, column): words about a cell. pick(row, column): a click, or Enter.
function cells({ id, label, rows, columns, at, pick }) {
  const canvas = element("canvas", { id, tabindex: 0, role: "img", "aria-label": label });
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const r = Math.floor(((event.clientY - box.top) / box.height) * rows),
      c = Math.floor(((event.clientX - box.left) / box.width) * columns);
    return [Math.max(0, Math.min(rows - 1, r)), Math.max(0, Math.min(columns - 1, c))];
  };
  canvas.cursor = [0, 0];
  const tell = () => {
    const [r, c] = canvas.cursor,
      box = canvas.getBoundingClientRect(),
      words = at(r, c);
    tip.show(words, box.left + ((c + 0.5) / columns) * box.width, box.top + ((r + 0.5) / rows) * box.height);
    document.getElementById("said").textContent = words;
  };
  canvas.addEventListener("pointermove", (event) =>
    tip.show(at(...place(event)), event.clientX, event.clientY),
  );
  canvas.addEventListener("pointerleave", tip.hide);
  canvas.addEventListener("blur", tip.hide);
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) tell();
  });
  canvas.addEventListener("click", (event) => {
    canvas.cursor = place(event);
    pick?.(...canvas.cursor);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      canvas.cursor = [
        Math.max(0, Math.min(rows - 1, canvas.cursor[0] + step[0])),
        Math.max(0, Math.min(columns - 1, canvas.cursor[1] + step[1])),
      ];
      tell();
    } else if (event.key === "Enter" || event.key === " ") {
      pick?.(...canvas.cursor);
    } else {
      return;
    }
    event.preventDefault();
  });
  if (pick) canvas.classList.add("pick");
  return canvas;
}

// The size of a cell in CSS pixels.
function cellSize(rows, columns, square) {
  const tall = rows <= 6 ? 22 : rows <= 20 ? 13 : rows <= 70 ? 5 : rows <= 130 ? 3 : 1.6;
  if (square) return [tall, tall];
  return [columns <= 4 ? 44 : columns <= 12 ? 44 : columns <= 20 ? 14 : Math.max(1, 256 / columns), tall];
}

// A matrix as a heat map with its name and shape.
//
// rowName, columnName: from a number to words. marked: the rows with an outline. pick: see `cells`. bands: widths of
// groups of columns, drawn apart.
function heatMap(
  matrix,
  {
    id,
    symbol,
    name,
    k,
    kind = "signed",
    most,
    rowName,
    columnName,
    marked = [],
    pick,
    square = false,
    bands,
    note,
    tall,
    bare,
    faded,
  },
) {
  const [rows, columns] = matrix.shape,
    colors = shadesOf(kind),
    scale = most ?? (kind === "weight" ? largest(matrix) : scaleOf(matrix));
  const value = (r, c) => matrix.data[r * columns + c],
    colorOf = (number) => colors[Math.round(100 + 100 * Math.max(-1, Math.min(1, number / (scale || 1))))];
  const write = (r, c) =>
    kind === "weight" ? `${(100 * value(r, c)).toFixed(2)}%` : value(r, c).toFixed(4).replace("-", "−");
  const canvas = cells({
    id,
    rows,
    columns,
    pick,
    label: [name || symbol, `${rows} × ${columns}`].join(", "),
    at: (r, c) =>
      `${[rowName?.(r), columnName ? columnName(c) : `#${c + 1}`].filter(Boolean).join(" · ").replace(" · →", " →")}:  ${write(r, c)}`,
  });
  let [wide, high] = cellSize(rows, columns, square);
  if (tall) high = tall;
  const numbers = wide >= 36 && rows <= 24 && !square;
  if (numbers) high = Math.max(high, 20);
  const detail = numbers ? Math.ceil(window.devicePixelRatio || 1) + 1 : 1;
  canvas.width = numbers ? columns * wide * detail : columns;
  canvas.height = numbers ? rows * high * detail : rows;
  canvas.style.width = `${columns * wide}px`;
  canvas.style.height = `${rows * high}px`;
  const pen = canvas.getContext("2d");
  if (numbers) {
    pen.scale(detail, detail);
    pen.font = "11px ui-monospace, Menlo, Consolas, monospace";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const color = colorOf(value(r, c));
        pen.fillStyle = `rgb(${color})`;
        pen.fillRect(c * wide, r * high, wide - 1, high - 1);
        pen.fillStyle = color[0] * 0.3 + color[1] * 0.59 + color[2] * 0.11 > 130 ? "#14181a" : "#fff";
        pen.fillText(
          kind === "weight" ? percent(value(r, c)) : number(value(r, c)),
          c * wide + wide / 2,
          r * high + high / 2,
        );
      }
    }
  } else {
    const image = pen.createImageData(columns, rows);
    image.data.fill(255);
    for (let i = 0; i < rows * columns; i++) image.data.set(colorOf(matrix.data[i]), 4 * i);
    pen.putImageData(image, 0, 0);
  }
  const plot = div("plot", canvas);
  for (const r of marked)
    plot.append(element("i", { class: "mark", style: `top:${(100 * r) / rows}%;height:${100 / rows}%` }));
  let left = 0;
  for (const [i, band] of (bands ?? []).entries()) {
    plot.append(
      element("i", {
        class: `band${i % 2 ? " odd" : ""}`,
        style: `left:${(100 * left) / columns}%;width:${(100 * band) / columns}%`,
      }),
    );
    left += band;
  }
  if (faded) plot.classList.add("faded");
  const shape = bare ? null : `${rows} × ${columns}`;
  return bare && !name ? plot : figure({ k, symbol, name, shape, note }, plot);
}

// An image, or another drawing, with its caption.
function figure({ k, symbol, name, shape, note }, ...content) {
  const words = element(
    "figcaption",
    {},
    symbol ? equation(symbol) : null,
    name ? element("b", {}, name) : null,
    shape ? element("span", { class: "dims" }, shape) : null,
  );
  return element(
    "figure",
    { class: "tensor", "data-k": k },
    words,
    ...content,
    note ? element("p", { class: "note" }, note) : null,
  );
}

// A canvas with the pixels of an image (C, H, W) of numbers in 0 ... 1.
function pixelCanvas(image) {
  const [channels, height, width] = image.shape,
    canvas = element("canvas", { width, height });
  const pen = canvas.getContext("2d"),
    out = pen.createImageData(width, height),
    plane = height * width;
  const [green, blue] = channels >= 3 ? [plane, 2 * plane] : [0, 0];
  for (let i = 0; i < plane; i++) {
    out.data[4 * i] = 255 * image.data[i];
    out.data[4 * i + 1] = 255 * image.data[green + i];
    out.data[4 * i + 2] = 255 * image.data[blue + i];
    out.data[4 * i + 3] = 255;
  }
  pen.putImageData(out, 0, 0);
  return canvas;
}

// The image cut into patches, each at its place; with weights, how much of each.
//
// weights: one for each patch. marked: the number of a patch.
function patchImage(
  image,
  grid,
  { id, label, side = 220, gap = 2, weights, marked = -1, at, pick, most, fine, order, covered },
) {
  const [rows, columns] = grid,
    pixels = fine ?? pixelCanvas(image),
    detail = 2;
  const canvas = cells({
    id,
    label,
    rows,
    columns,
    at: (r, c) => at(r * columns + c),
    pick: pick && ((r, c) => pick(r * columns + c)),
  });
  const ratio = pixels.height / pixels.width,
    wide = side / Math.max(1, ratio),
    high = wide * ratio;
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${high}px`;
  canvas.width = wide * detail;
  canvas.height = high * detail;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = pixels.width > 64;
  if (columns > 16) gap = Math.min(gap, 1);
  const [w, h] = [canvas.width / columns, canvas.height / rows],
    [p, q] = [pixels.height / rows, pixels.width / columns];
  const top = most ?? (weights ? Math.max(...weights) : 1);
  for (let n = 0; n < rows * columns; n++) {
    const [r, c] = [Math.floor(n / columns), n % columns],
      space = gap * detail;
    const box = [c * w + space / 2, r * h + space / 2, w - space, h - space];
    const from = order && fine ? order[n] : n;
    pen.drawImage(pixels, (from % columns) * q, Math.floor(from / columns) * p, q, p, ...box);
    if (covered?.has(n)) {
      pen.fillStyle = "#8a8f8d"; // a color that is seen to cover
      pen.fillRect(...box);
    }
    if (weights) {
      const share = weights[n] / (top || 1);
      pen.fillStyle = `rgba(8, 20, 26, ${0.62 * (1 - share)})`;
      pen.fillRect(...box);
      pen.fillStyle = `rgba(255, 168, 38, ${0.78 * share})`;
      pen.fillRect(...box);
    }
    if (n === marked) {
      pen.lineWidth = 3 * detail;
      pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--second");
      pen.strokeRect(box[0] + detail, box[1] + detail, box[2] - 2 * detail, box[3] - 2 * detail);
    }
  }
  return canvas;
}

// Bars with names and values: probabilities, for instance.
function bars(rows) {
  return element(
    "ol",
    { class: "bars" },
    rows.map(({ name, share, text, ghost, strong, pick, pressed }) => {
      const label = pick
        ? element("button", { type: "button", "aria-pressed": String(Boolean(pressed)), onclick: pick }, name)
        : element("span", {}, name);
      const bar = div(
        "track",
        element("i", { style: `width:${100 * Math.max(0, Math.min(1, share))}%` }),
        ghost === undefined ? null : element("u", { style: `left:${100 * ghost}%` }),
      );
      return element(
        "li",
        { class: strong ? "strong" : null },
        label,
        bar,
        element("span", { class: "value" }, text),
      );
    }),
  );
}

// Lines and points in a coordinate system, as SVG.
function plot({ x, y, lines, points = [], label, width = 360, height = 220 }) {
  const space = "http://www.w3.org/2000/svg",
    make = (name, attributes, ...children) => {
      const made = document.createElementNS(space, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      made.append(...children);
      return made;
    };
  const px = (value) => 34 + ((value - x[0]) / (x[1] - x[0])) * (width - 44),
    py = (value) => height - 24 - ((value - y[0]) / (y[1] - y[0])) * (height - 34);
  const svg = make("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": label,
    class: "plot-svg",
  });
  svg.append(
    make("path", { class: "axis", d: `M${px(x[0])} ${py(0)}H${px(x[1])}M${px(0)} ${py(y[0])}V${py(y[1])}` }),
  );
  for (let value = Math.ceil(x[0]); value <= x[1]; value++)
    svg.append(
      make(
        "text",
        { x: px(value), y: height - 8, class: "tick", "text-anchor": "middle" },
        String(value).replace("-", "−"),
      ),
    );
  for (let value = Math.ceil(y[0]); value <= y[1]; value++)
    svg.append(
      make(
        "text",
        { x: 26, y: py(value) + 4, class: "tick", "text-anchor": "end" },
        String(value).replace("-", "−"),
      ),
    );
  for (const line of lines)
    svg.append(
      make("path", {
        class: "line",
        d: `M${line.map(([a, b]) => `${px(a).toFixed(1)} ${py(b).toFixed(1)}`).join("L")}`,
      }),
    );
  for (const [a, b] of points)
    svg.append(make("circle", { class: "point", cx: px(a).toFixed(1), cy: py(b).toFixed(1), r: 3 }));
  return svg;
}

// The numbers of a matrix as a small image, one pixel each.
function numbersImage(matrix, most = scaleOf(matrix), kind = "signed") {
  const [rows, columns] = matrix.shape,
    shade = shadesOf(kind);
  return canvasOf(columns, rows, (pen) => {
    const image = pen.createImageData(columns, rows);
    matrix.data.forEach((value, i) => {
      const color = shade[100 + Math.round(100 * Math.max(-1, Math.min(1, value / most)))];
      image.data.set([...color, 255], 4 * i);
    });
    pen.putImageData(image, 0, 0);
  });
}

// A feature map as an image: the three channels that differ most from place to place are red, green and blue.
function colorsOf(map) {
  const [channels, high, wide] = map.shape,
    plane = high * wide,
    of = (c) => map.data.subarray(c * plane, (c + 1) * plane),
    order = [...Array(channels).keys()].map((c) => [moments(of(c)).variance, c]).sort((a, b) => b[0] - a[0]);
  const out = zeros(3, high, wide);
  order.slice(0, 3).forEach(([, c], i) => {
    const values = of(c),
      least = Math.min(...values),
      most = Math.max(...values);
    values.forEach((value, n) => {
      out.data[i * plane + n] = (value - least) / (most - least || 1);
    });
  });
  return pixelCanvas(out);
}
