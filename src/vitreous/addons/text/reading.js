const [rows, columns] = data.grid, loaded = new Map();
const state = { example: 0, step: 0, layer: data.layers, head: 0 };  // head 0: mean of all

async function load(index) {
  if (!loaded.has(index)) {
    const example = data.examples[index], image = new Image();
    image.src = example.src;
    const [, maps] = await Promise.all([image.decode(), unpack(example.maps, rows * columns)]);
    loaded.set(index, { pixels: pixelsOf(image), maps });
  }
  return loaded.get(index);
}

function buttons(box, labels, chosen, choose) {
  if (box.childElementCount !== labels.length || box.dataset.labels !== labels.join(" ")) {
    box.dataset.labels = labels.join(" ");
    box.replaceChildren(...labels.map((label, i) => {
      const button = document.createElement("button");
      button.type = "button"; button.textContent = label;
      button.addEventListener("click", () => choose(i));
      return button;
    }));
  }
  box.childNodes.forEach((button, i) => button.setAttribute("aria-pressed", i === chosen));
}

async function draw() {
  const { example: index, step, layer, head } = state, example = data.examples[index], { pixels, maps } = await load(index);
  if (index !== state.example || step !== state.step) return;
  const one = (head) => maps(((layer - 1) * data.heads + head) * example.tokens.length + step);
  const all = head ? [one(head - 1)] : Array.from({ length: data.heads }, (_, i) => one(i));
  const values = all[0].map((_, i) => all.reduce((sum, each) => sum + each[i], 0) / all.length);
  paintHeat(byId("map"), pixels, values, (x, y) => Math.min(Math.floor(y * rows), rows - 1) * columns + Math.min(Math.floor(x * columns), columns - 1));
  byId("image").src = example.src; byId("image").alt = `${example.name}: ${example.text}`;
  byId("image").classList.toggle("pixelated", Math.max(pixels.width, pixels.height) < 64);
  buttons(byId("sources"), data.examples.map((each) => each.name), index, (i) => { state.example = i; state.step = 0; draw(); });
  buttons(byId("tokens"), example.tokens, step, (i) => { steps.stop(); state.step = i; draw(); });
  byId("map").setAttribute("aria-label", say("map-of", { token: example.tokens[step], name: example.name }));
  byId("step").textContent = say("step", { number: step + 1, count: example.tokens.length, token: example.tokens[step] });
  byId("text").textContent = example.text;
  byId("scale").textContent = scale(values);
  byId("layer-now").textContent = say("of", { number: layer, count: data.layers });
  byId("head-now").textContent = head ? say("of", { number: head, count: data.heads }) : say("mean-of-all");
  document.querySelector(".player").dataset.drawn = JSON.stringify(state);
}

const steps = stepper(byId("steps"), {
  count: () => data.examples[state.example].tokens.length, place: () => state.step, words: data.words,
  go: (step) => { state.step = step; draw(); },
});
byId("tokens").addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  steps.move(by);
  byId("tokens").childNodes[state.step].focus();
});
for (const id of ["layer", "head"]) byId(id).addEventListener("input", (event) => { state[id] = Number(event.target.value); draw(); });
draw();
