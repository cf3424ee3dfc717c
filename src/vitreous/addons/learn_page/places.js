// --- The map of the model and its places: a part is drawn small on the map, and opens alone, over the screen. ----
//
// A place is a panel (panels.js). The map is the architecture: what makes the tokens, one layer, what makes the answer.

const GROUPS = ["tokens", "layer", "answer"];
let openedFrom = null; // the element that a place grows out of

function shownPanels(c) {
  return PANELS.filter((panel) => !panel.when || panel.when(c));
}

// Open a place, with a layer, a head and a token selected where these are given.
function openPlace(id, from, selected = {}) {
  openedFrom = from;
  play(false);
  update({ place: id, ...selected });
}

function drawMap(c) {
  const w = c.words,
    panels = shownPanels(c),
    host = byId("places"),
    names = [state.language, ...panels.map((panel) => panel.id)].join();
  if (host.dataset.names !== names) {
    host.dataset.names = names;
    host.replaceChildren(
      ...GROUPS.map((group) =>
        element(
          "section",
          { class: "group-of-places", id: `places-${group}`, "aria-labelledby": `map-${group}` },
          element("h3", { id: `map-${group}` }),
          element(
            "ol",
            {},
            panels.filter((panel) => panel.group === group).map((panel) => element("li", {}, placeButton(panel, panels))),
          ),
        ),
      ),
    );
  }
  for (const group of GROUPS) byId(`map-${group}`).textContent = c.t(`map_${group}`);
  for (const panel of panels) {
    const [small, dims] = byId(`open-${panel.id}`).querySelectorAll(".small, .dims"),
      [, symbol, ...sides] = panel.shapes(c).at(-1) ?? [];
    small.replaceChildren(...(trace && panel.small ? panel.small(c) : []).filter(Boolean));
    dims.replaceChildren(...(symbol ? [equation(symbol), ` ${sides.join(" × ")}`] : []));
  }
  byId("how-title").textContent = w.how_title;
  drawModels(c);
  const named = {
    parameters: DATA.parameters.toLocaleString("en"),
    name: DATA.name,
    images: samples.length,
  };
  const lead = c.t(recorded ? "lead_recorded" : DATA.trained ? (pad.enabled ? "lead" : "lead_image") : "lead_fresh", named),
    about = c.t(model.shapesOnly ? "about_shapes" : "about_untrained", {
      parameters: parametersOf(c).toLocaleString("en"),
    });
  byId("lead").textContent = [!trained() ? about : DATA.trained ? lead : `${lead} ${w.fresh}`, w.map_note].join(" ");
  byId("made").textContent =
    filled(w.made, { version: DATA.version }) +
    (DATA.facts?.credit ? ` ${filled(w.credit, { source: DATA.facts.credit })}` : "") +
    (DATA.bits < 32 ? ` ${filled(w.rounding, { bits: DATA.bits, change: smallNumber(DATA.rounding) })}` : "");
}

function placeButton({ id }, panels) {
  return element(
    "button",
    {
      type: "button",
      class: "place-button",
      id: `open-${id}`,
      "aria-haspopup": "dialog",
      onclick: (event) => openPlace(id, event.currentTarget),
    },
    element("span", { class: "small", "aria-hidden": "true" }),
    element("b", {}, `${panels.findIndex((panel) => panel.id === id) + 1}. ${WORDS[state.language].panels[id].title}`),
    element("span", { class: "dims" }),
  );
}

// The place that is open, if one is: the panel, and beside it what can be chosen and changed.
function drawPlace(c) {
  const dialog = byId("place"),
    panels = shownPanels(c),
    index = panels.findIndex((panel) => panel.id === state.place);
  if (index < 0) {
    state.place = "";
    return dialog.close();
  }
  byId("place-close").textContent = `‹ ${c.words.place_close}`;
  for (const [id, by] of [["less", -1], ["more", 1]]) {
    byId(`place-${id}`).setAttribute("aria-label", c.words[`place_${id}`]);
    byId(`place-${id}`).disabled = !panels[index + by];
  }
  drawPath(panels, index);
  drawAnswer(c);
  drawSteppers(c);
  drawSwitches(c);
  fill(panels, index, c);
  if (!dialog.open) showPlace(dialog);
}

function showPlace(dialog) {
  // What is said of cells is said where the reader is: all that is outside of the dialog is inert.
  dialog.append(byId("tip"), byId("said"));
  dialog.showModal();
  const from = openedFrom?.getBoundingClientRect(),
    to = dialog.getBoundingClientRect();
  openedFrom = null;
  if (!from?.width || still()) return;
  const scale = `scale(${from.width / to.width}, ${from.height / to.height})`;
  dialog.animate(
    [
      { transformOrigin: "0 0", transform: `translate(${from.left - to.left}px, ${from.top - to.top}px) ${scale}`, opacity: 0.3 },
      { transformOrigin: "0 0", transform: "none", opacity: 1 },
    ],
    { duration: 280, easing: "ease-out" },
  );
}

// Go to the place before or after.
function stepPlace(by) {
  const panels = shownPanels(context()),
    next = panels[panels.findIndex((panel) => panel.id === state.place) + by];
  if (next) update({ place: next.id });
}

function listenToPlaces() {
  const dialog = byId("place");
  byId("place-close").onclick = () => dialog.close();
  byId("place-less").onclick = () => stepPlace(-1);
  byId("place-more").onclick = () => stepPlace(1);
  // Beside the place, where it is narrower than the screen.
  dialog.onclick = (event) => {
    if (event.target === dialog) dialog.close();
  };
  // By the button, by Escape, or by a gesture of the system. The browser returns the focus to what had it.
  dialog.onclose = () => {
    document.body.append(byId("tip"), byId("said"));
    tip.hide();
    if (document.activeElement === document.body) byId("how-open").focus({ preventScroll: true });
    update({ place: "" });
  };
  // Alt with an arrow goes to the place before or after.
  document.addEventListener("keydown", (event) => {
    if (!state.place || !event.altKey || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    stepPlace(event.key === "ArrowDown" ? 1 : -1);
    event.preventDefault();
  });
}

// Draw the panel of the place; what had the focus has it again.
function fill(panels, index, c) {
  const panel = panels[index],
    host = byId("panels"),
    parts = "button, canvas, table",
    focused = host.contains(document.activeElement) ? document.activeElement : null,
    at = focused && [...host.querySelectorAll(parts)].indexOf(focused),
    same = host.firstElementChild?.id === panel.id,
    drawn = model.shapesOnly && panel.id !== "shapes" ? boxes(panel, c) : panel.draw(c);
  host.replaceChildren(
    element("section", { class: "panel", id: panel.id }, ...panelFrame(panel, c, index), div("visual", drawn)),
  );
  if (!same) byId("place").scrollTop = 0;
  if (!focused || !same) return;
  const again = host.querySelectorAll(parts)[at];
  if (focused.cursor && again?.cursor) again.cursor = focused.cursor;
  again?.focus({ preventScroll: true });
}

// The path through all places, from which each can be gone to.
function drawPath(panels, index) {
  const list = byId("path").querySelector("ol"),
    names = [state.language, ...panels.map((panel) => panel.id)].join();
  byId("path").setAttribute("aria-label", words().path);
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(
      ...panels.map(({ id }, i) => {
        const { title } = WORDS[state.language].panels[id];
        return element(
          "li",
          {},
          element(
            "button",
            { type: "button", title, "aria-label": `${i + 1}. ${title}`, onclick: () => update({ place: id }) },
            String(i + 1),
          ),
        );
      }),
    );
  }
  [...list.children].forEach(({ firstChild }, i) => {
    if (i === index) firstChild.setAttribute("aria-current", "step");
    else firstChild.removeAttribute("aria-current");
  });
}

// The header of a panel: title, text, equation, shapes and code, lit together.
function panelFrame(panel, c, index) {
  const w = WORDS[state.language].panels[panel.id],
    text = (value) => filled(value, c.values);
  const source = typeof panel.equation === "function" ? panel.equation(c) : panel.equation,
    rail = div("rail");
  const key = (k) => (k ? { "data-k": k } : {});
  if (source)
    rail.append(
      element(
        "div",
        { class: "eq" },
        source.split(",,").map(equation),
        element(
          "span",
          { class: "number" },
          panel.number.length > 6
            ? `arXiv ${panel.number}`
            : /^\d+\./.test(panel.number)
              ? `§ ${panel.number}`
              : `(${panel.number})`,
        ),
      ),
    );
  const shapes = panel.shapes(c);
  if (shapes.length)
    rail.append(
      element(
        "div",
        { class: "shapes" },
        shapes.map(([k, symbol, ...sides]) =>
          element(
            "button",
            { type: "button", class: "chip", ...key(k) },
            equation(symbol),
            element("span", {}, sides.join(" × ")),
          ),
        ),
      ),
    );
  for (const [name, parts] of panel.code(c)) {
    const {
      file,
      line,
      text: code,
    } = DATA.code[trained() ? name : ({ stem: "plain", projection: "plain" }[name] ?? name)];
    rail.append(
      element(
        "div",
        { class: "code" },
        element("span", { class: "file" }, `${file}:${line}`),
        element("code", {}, litCode(code, parts)),
      ),
    );
  }
  const tags = [
    panel.layer ? c.t("layer_number", { number: state.layer + 1 }) : null,
    panel.head ? `${c.words.head} ${state.head + 1}` : null,
  ]
    .filter(Boolean)
    .join(" · ");
  return [
    element("h2", { id: "place-title" }, element("i", {}, String(index + 1)), w.title, tags ? element("small", {}, tags) : null),
    element("p", { class: "text" }, text(w.text)),
    rail.children.length ? rail : null,
  ];
}

// A line of code, with the parts that belong to a tensor in spans.
function litCode(code, parts) {
  const found = Object.entries(parts)
      .map(([part, k]) => [code.indexOf(part), part, k])
      .filter(([at]) => at >= 0)
      .sort((a, b) => a[0] - b[0]),
    nodes = [];
  let at = 0;
  for (const [start, part, k] of found) {
    if (start < at) continue;
    nodes.push(code.slice(at, start), element("span", { "data-k": k }, part));
    at = start + part.length;
  }
  return [...nodes, code.slice(at)];
}

// The shapes of a panel as boxes, for models that are too large to run here.
function boxes(panel, c) {
  const size = (side) => Math.max(8, Math.min(150, 3.4 * Math.sqrt(side) + 6));
  return panel.shapes(c).map(([k, symbol, ...sides]) => {
    const [tall, wide] = sides.length === 1 ? [1, sides[0]] : sides;
    return figure(
      { k, symbol, shape: sides.join(" × ") },
      element("i", { class: "box", style: `width:${size(wide)}px;height:${size(tall)}px` }),
    );
  });
}

function drawAnswer(c) {
  const w = c.words;
  if (!trace)
    return byId("place-answer").replaceChildren(
      element("h2", {}, w.answer),
      element("p", { class: "note" }, w.shapes_only),
    );
  const p = probabilities(trace.logits),
    order = best(trace.logits),
    [top] = order,
    rows = DATA.labels.length <= 10 ? [...DATA.labels.keys()] : order.slice(0, 6);
  const before = unchanged && probabilities(unchanged.logits),
    [was] = unchanged ? best(unchanged.logits) : [];
  byId("place-answer").replaceChildren(
    element(
      "h2",
      {},
      w.answer,
      element("output", {}, headline(c, p, top)),
    ),
    bars(
      rows.map((k) => ({
        name: c.labels[k],
        share: p[k],
        text: percent(p[k]),
        strong: answers() && k === top,
        ghost: before?.[k],
      })),
    ),
    ...(before && answers()
      ? [
          element(
            "p",
            { class: "note" },
            filled(w.unchanged, { label: c.labels[was], share: percent(before[was]) }),
          ),
        ]
      : []),
  );
}

// A choice to step through: layer, head, token. values: the numbers that it may have.
function stepper(name, values, text) {
  const w = words(),
    at = values.indexOf(state[name]),
    step = (by) => () => update({ [name]: values[(at + by + values.length) % values.length] });
  return div(
    "stepper",
    element("span", {}, w[name]),
    element(
      "button",
      { type: "button", id: `${name}-less`, "aria-label": `${w[name]} −1`, onclick: step(-1) },
      "‹",
    ),
    element("output", {}, text),
    element(
      "button",
      { type: "button", id: `${name}-more`, "aria-label": `${w[name]} +1`, onclick: step(1) },
      "›",
    ),
  );
}

function drawSteppers(c) {
  if (!trace) return byId("steppers").replaceChildren();
  const focus = document.activeElement?.id,
    upTo = (count) => [...Array(count).keys()];
  byId("steppers").replaceChildren(
    stepper("layer", c.detailed, `${state.layer + 1} / ${c.L}`),
    stepper("head", upTo(c.K), `${state.head + 1} / ${c.K}`),
    stepper("token", upTo(c.T), c.tokenName(state.token)),
  );
  if (/-(less|more)$/.test(focus ?? "")) byId(focus)?.focus();
}

function drawSwitches(c) {
  const w = c.words,
    fixed = switchesFixed(),
    key = `${state.layer}.${state.head}`;
  const focus = document.activeElement?.id;
  byId("switches").replaceChildren(
    switchOf(
      "without-positions",
      w.without_positions,
      state.withoutPositions,
      fixed || model.config.position.kind === "none",
      (on) => change({ withoutPositions: on }),
    ),
    switchOf("shuffled", w.shuffle, state.shuffled, fixed, (on) => change({ shuffled: on })),
    switchOf(
      "without-head",
      c.t("zero_head", { layer: state.layer + 1, head: state.head + 1 }),
      state.without.has(key),
      fixed,
      (on) => {
        const without = new Set(state.without);
        on ? without.add(key) : without.delete(key);
        change({ without });
      },
    ),
    element("p", { class: "note" }, noteOfSwitches(c)),
  );
  if (focus) byId(focus)?.focus({ preventScroll: true });
}
