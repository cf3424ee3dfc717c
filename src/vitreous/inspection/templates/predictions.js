"use strict";
// The predictions explorer: filters, sorts, pages, and exports the images of a `.predictions` element.
function explorePredictions(root) {
  const data = JSON.parse(root.querySelector("script").textContent);
  const { classes, models, names, words } = data;
  const PAGE = 60, MANY = 300, PAIRS = 12;
  const find = (name) => root.querySelector(`[data-part="${name}"]`);
  const say = (name, values = {}) => words[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
  const percent = (share) => share === null ? "–" : `${(100 * share).toFixed(1)}%`;
  const listOf = (value) => (Array.isArray(value) ? value : [value]);
  const text = (value) => {
    if (value === null) return "–"; // a number that is not finite
    if (!classes.length) return typeof value === "number" ? String(+value.toPrecision(4)) : value;
    return listOf(value).map((each) => classes[each]).join(", ") || say("none");
  };
  const state = { pattern: "", true: "", given: "", sort: models.length > 1 ? "spread" : "loss", name: "", page: 0 };

  // Which models are right about an image, as a sign for each.
  const rated = models.every((model) => model.right);
  const pattern = (i) => models.map((model) => (model.right[i] ? "✓" : "✗")).join("");
  const patterns = rated ? names.map((_, i) => pattern(i)) : [];
  const single = classes.length > 0 && models[0].given.length > 0 && !Array.isArray(models[0].given[0]);

  let chosen = [];
  function choose() {
    const wanted = state.name.toLowerCase();
    const has = (value, filter) => filter === "" || listOf(value).includes(+filter);
    chosen = [];
    for (let i = 0; i < names.length; i++) {
      if (state.pattern && patterns[i] !== state.pattern) continue;
      if (!has(data.true[i], state.true)) continue;
      if (state.given !== "" && !models.some((model) => has(model.given[i], state.given))) continue;
      if (wanted && !names[i].toLowerCase().includes(wanted)) continue;
      chosen.push(i);
    }
    // Whatever the order, images without a number are the last.
    const spread = (i) => {
      const losses = models.map((model) => model.loss[i]);
      return losses.includes(null) ? -Infinity : Math.max(...losses) - Math.min(...losses);
    };
    if (state.sort === "spread") chosen.sort((a, b) => spread(b) - spread(a) || a - b);
    const [key, sign] = { loss: ["loss", -1], "low-loss": ["loss", 1], confidence: ["confidence", -1], "low-confidence": ["confidence", 1] }[state.sort] || [];
    if (key) {
      const value = (i) => (models[0][key][i] === null ? Infinity : sign * models[0][key][i]);
      chosen.sort((a, b) => value(a) - value(b) || a - b);
    }
  }

  // Thumbnails: a sheet is decoded when one of its images is shown.
  const sheets = new Map(), [height, width] = data.size;
  const heat = Uint8Array.from(atob(data.heat), (c) => c.charCodeAt(0));
  function sheet(number) {
    if (!sheets.has(number)) {
      const image = new Image();
      image.src = data.sheets[number];
      sheets.set(number, image.decode().then(() => image));
    }
    return sheets.get(number);
  }
  async function draw(canvas, i, attending) {
    const place = i % data.perSheet, image = await sheet(Math.floor(i / data.perSheet));
    const context = canvas.getContext("2d"), left = (place % data.columns) * width, top = Math.floor(place / data.columns) * height;
    context.imageSmoothingEnabled = !data.pixelated;
    context.filter = attending ? "grayscale(1) brightness(.6)" : "none";
    context.drawImage(image, left, top, width, height, 0, 0, canvas.width, canvas.height);
    context.filter = "none";
    if (!attending) return;
    const [rows, columns] = data.grid, map = Uint8Array.from(atob(data.attention[i]), (c) => c.charCodeAt(0));
    const colors = new ImageData(columns, rows);
    map.forEach((value, at) => colors.data.set([...heat.subarray(3 * value, 3 * value + 3), 70 + value * 0.6], 4 * at));
    const small = document.createElement("canvas");
    [small.width, small.height] = [columns, rows];
    small.getContext("2d").putImageData(colors, 0, 0);
    context.imageSmoothingEnabled = true;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  function sentence(i) {
    const answers = models.map((model) => {
      const sign = model.right ? (model.right[i] ? "✓ " : "✗ ") : "";
      const sure = model.confidence ? ` (${percent(model.confidence[i])})` : "";
      const answer = `${text(model.given[i])}${sure}`;
      return sign + (models.length > 1 ? `${model.name}: ${answer}` : say("predicted", { answer }));
    });
    const known = data.true[i] === "" ? [] : [say("true-is", { label: text(data.true[i]) })];
    return [...known, ...answers];
  }

  function figure(i) {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas"), caption = document.createElement("figcaption");
    const scale = Math.max(1, Math.round(96 / Math.max(height, width)));
    [canvas.width, canvas.height] = [width * scale, height * scale];
    const lines = sentence(i);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", lines.join("; "));
    if (rated) figure.className = models.every((model) => model.right[i]) ? "right" : "wrong";
    for (const line of [...lines, names[i].split("/").slice(-2).join("/")]) {
      caption.append(line, document.createElement("br"));
    }
    caption.title = names[i];
    if (data.attention[i]) {
      figure.tabIndex = 0;
      figure.title = say("attention");
      for (const on of ["pointerenter", "focus"]) figure.addEventListener(on, () => draw(canvas, i, true));
      for (const off of ["pointerleave", "blur"]) figure.addEventListener(off, () => draw(canvas, i, false));
    }
    figure.append(canvas, caption);
    draw(canvas, i, false);
    return figure;
  }

  function show() {
    const pages = Math.max(1, Math.ceil(chosen.length / PAGE));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const some = chosen.slice(state.page * PAGE, (state.page + 1) * PAGE);
    find("thumbs").replaceChildren(...some.map(figure));
    find("count").textContent = say("count", { count: chosen.length.toLocaleString(), page: state.page + 1, pages: pages.toLocaleString() });
    find("before").disabled = state.page === 0;
    find("after").disabled = state.page === pages - 1;
    find("export").disabled = chosen.length === 0;
  }
  function update() {
    state.page = 0;
    for (const name of ["pattern", "true", "given", "sort", "name"]) find(name).value = state[name];
    choose();
    show();
    if (single) drawMatrix();
  }

  // The confusion matrix of the first model: rows are true classes, columns predicted ones.
  const counts = new Map();
  let most = 1;
  if (single) names.forEach((_, i) => {
    const cell = data.true[i] * classes.length + models[0].given[i];
    counts.set(cell, (counts.get(cell) || 0) + 1);
  });
  for (const [cell, count] of counts) if (cell % (classes.length + 1)) most = Math.max(most, count);
  const describe = (cell) => say("cell", { true: classes[Math.floor(cell / classes.length)], given: classes[cell % classes.length], count: (counts.get(cell) || 0).toLocaleString() });
  let cursor = 0;

  function drawMatrix() {
    const canvas = find("matrix"), n = classes.length, step = Math.max(1, Math.floor(520 / n)), context = canvas.getContext("2d");
    const style = getComputedStyle(root), spread = n > MANY ? 1 : 0;
    canvas.width = canvas.height = n * step;
    for (const [cell, count] of counts) {
      const row = Math.floor(cell / n), column = cell % n, right = row === column;
      context.globalAlpha = Math.min(1, 0.35 + 0.65 * Math.log1p(count) / Math.log1p(right ? names.length / n : most));
      context.fillStyle = style.getPropertyValue(right ? "--first" : "--second");
      context.fillRect((column - spread) * step, (row - spread) * step, (1 + 2 * spread) * step - (step > 4 ? 1 : 0), (1 + 2 * spread) * step - (step > 4 ? 1 : 0));
      if (step >= 16 && count) {
        context.fillStyle = style.getPropertyValue(context.globalAlpha > 0.6 ? "--paper" : "--ink");
        context.globalAlpha = 1;
        context.font = `${Math.min(step * 0.5, 14)}px sans-serif`;
        context.textAlign = "center";
        context.fillText(count, (column + 0.5) * step, (row + 0.65) * step);
      }
    }
    context.globalAlpha = 1;
    if (state.true !== "" || state.given !== "") {
      context.strokeStyle = style.getPropertyValue("--ink");
      context.lineWidth = Math.max(2, n * step / 260);
      const row = state.true === "" ? 0 : +state.true, column = state.given === "" ? 0 : +state.given;
      context.strokeRect(column * step, row * step, (state.given === "" ? n : 1) * step, (state.true === "" ? n : 1) * step);
    }
  }
  // The cell at a point; of many small cells the nearest one with images.
  function cellAt(event) {
    const canvas = find("matrix"), box = canvas.getBoundingClientRect(), n = classes.length;
    const at = (value, low, size) => Math.min(n - 1, Math.max(0, Math.floor((value - low) / size * n)));
    const row = at(event.clientY, box.top, box.height), column = at(event.clientX, box.left, box.width);
    const reach = n > 60 ? Math.ceil(4 * n / box.width) : 0;
    let best = row * n + column, nearest = Infinity;
    for (let down = -reach; down <= reach; down++) for (let over = -reach; over <= reach; over++) {
      const r = row + down, c = column + over, far = down * down + over * over;
      if (r >= 0 && c >= 0 && r < n && c < n && counts.has(r * n + c) && far < nearest) [best, nearest] = [r * n + c, far];
    }
    return best;
  }
  function select(cell) {
    cursor = cell;
    const row = String(Math.floor(cell / classes.length)), column = String(cell % classes.length);
    const again = state.true === row && state.given === column;
    Object.assign(state, { pattern: "", true: again ? "" : row, given: again ? "" : column });
    find("cell").textContent = again ? say("choose-cell") : describe(cell);
    update();
  }
  if (single && models.length === 1 && data.matrix) {
    find("matrix-box").hidden = false;
    const canvas = find("matrix");
    canvas.addEventListener("pointermove", (event) => { find("cell").textContent = describe(cellAt(event)); });
    canvas.addEventListener("click", (event) => select(cellAt(event)));
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowUp: -classes.length, ArrowDown: classes.length, ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Enter" || event.key === " ") select(cursor);
      else if (move && counts.size) {
        cursor = Math.min(classes.length ** 2 - 1, Math.max(0, cursor + move));
        find("cell").textContent = describe(cursor);
      } else return;
      event.preventDefault();
    });
    const wrong = [...counts].filter(([cell]) => cell % (classes.length + 1)).sort((a, b) => b[1] - a[1]).slice(0, PAIRS);
    find("pairs").previousElementSibling.hidden = !wrong.length;
    find("pairs").append(...wrong.map(([cell, count]) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.textContent = say("pair", { true: classes[Math.floor(cell / classes.length)], given: classes[cell % classes.length], count });
      button.addEventListener("click", () => select(cell));
      item.append(button);
      return item;
    }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMatrix);
  }

  function save() {
    const quoted = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
    const several = models.length > 1;
    const header = ["image", "true", ...models.flatMap((model) => [
      several ? `predicted by ${model.name}` : "predicted",
      ...(model.confidence ? [several ? `probability of ${model.name}` : "probability"] : []),
      several ? `loss of ${model.name}` : "loss"])];
    const lines = chosen.map((i) => [names[i], text(data.true[i]), ...models.flatMap((model) => [
      text(model.given[i]), ...(model.confidence ? [model.confidence[i]] : []), model.loss[i]])]);
    const file = new Blob([[header, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = "predictions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const option = (value, label) => new Option(label, value);
  const signs = [...new Set(patterns)].sort();
  const spelled = (signs) => (models.length > 1 ? models.map((model, m) => `${signs[m]} ${model.name}`).join(", ") : say(signs === "✓" ? "right" : "wrong"));
  const counted = (signs) => patterns.filter((each) => each === signs).length.toLocaleString();
  find("pattern").append(option("", say("all")), ...signs.map((each) => option(each, `${spelled(each)} (${counted(each)})`)));
  for (const name of ["true", "given"]) find(name).append(option("", say("any")), ...classes.map((label, number) => option(number, label)));
  const sorts = [...(models.length > 1 ? ["spread"] : []), "loss", "low-loss", ...(models[0].confidence ? ["confidence", "low-confidence"] : []), "order"];
  find("sort").append(...sorts.map((name) => option(name, say(`sort-${name}`, { loss: data.lossName }))));
  find("pattern").closest("div").hidden = !rated;
  for (const name of ["true", "given"]) find(name).closest("div").hidden = !classes.length;
  root.classList.toggle("small", data.pixelated);
  if (models.length === 1 && patterns.includes("✗")) Object.assign(state, { pattern: "✗", sort: models[0].confidence ? "confidence" : "loss" });
  for (const name of ["pattern", "true", "given", "sort"]) find(name).addEventListener("change", (event) => { state[name] = event.target.value; update(); });
  find("name").addEventListener("input", (event) => { state.name = event.target.value; update(); });
  find("before").addEventListener("click", () => { state.page--; show(); });
  find("after").addEventListener("click", () => { state.page++; show(); });
  find("export").addEventListener("click", save);
  update();
}
document.querySelectorAll(".predictions").forEach(explorePredictions);
