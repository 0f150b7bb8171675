// The shared part of the book's widgets; frame.py puts it before each widget's own script.

/** An HTML element: h("p", {class: "note", onclick: f}, "text", child). */
function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Change attributes of a node that stands already. */
function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** A number as text: a real minus sign, and ∞ for infinity. */
function fmt(number, digits = 4) {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "–" : number > 0 ? "∞" : "−∞";
  const text = number.toFixed(digits);
  return Number(text) < 0 ? "−" + text.slice(1) : text.replace("-", "");
}

/** As few digits as say the number: 1, 0.5, −2.25. */
function brief(number, digits = 4) {
  return fmt(number, digits).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

let serial = 0;

/** An id that no other part of the page has. */
function fresh(prefix) {
  return `${prefix}-${(serial += 1)}-${Math.random().toString(36).slice(2, 8)}`;
}

/** Write traits, all at once, tell Python where there is one, and so redraw. */
function put(model, values) {
  model.set(values);
  model.save_changes();
}

/**
 * The widget's root in `el`, with a name for screen readers, a line that they read out when values
 * change, and a button that brings back the first values. Returns {root, start, say}: hang the
 * widget's parts on root, then call start(update); update() runs now and after each change of a
 * trait in `names`, and returns the line to be read out.
 */
function frame({ model, el }, { label, names }) {
  const first = Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const body = h("div", { class: "tw-body" });
  const spoken = h("p", { class: "tw-spoken", role: "status", "aria-live": "polite" });
  const reset = h("button", { type: "button", class: "tw-reset", onclick: () => put(model, first) },
    "Start again");
  const root = h("div", { class: "tw", role: "group", "aria-label": label }, body, reset, spoken);
  let waiting;
  const start = (update) => {
    const all = () => {
      const line = update();
      clearTimeout(waiting); // a drag must not be read out pixel by pixel
      waiting = setTimeout(() => { spoken.textContent = line; }, 400);
    };
    const events = names.map((name) => `change:${name}`).join(" ");
    model.on(events, all);
    spoken.textContent = update();
    el.append(root);
    return () => { clearTimeout(waiting); model.off(events, all); };
  };
  return { root: body, start };
}

/** What a control does when the trait changes elsewhere: it follows. */
function follow(model, name, show) {
  model.on(`change:${name}`, show);
  show();
}

/** A number to type, from `low` to `high`; anything else is refused in words and not taken. */
function numberBox(model, { label, low, high, step, get, put: take, names }) {
  const hint = h("span", { class: "tw-hint", id: fresh("hint"), role: "alert" });
  const box = h("input", { type: "number", min: low, max: high, step, "aria-label": label,
    "aria-describedby": hint.id });
  const good = () => box.value !== "" && box.valueAsNumber >= low && box.valueAsNumber <= high;
  box.addEventListener("input", () => {
    box.setAttribute("aria-invalid", !good());
    hint.textContent = good() ? "" : `${brief(low)} to ${brief(high)}`;
    if (good()) take(box.valueAsNumber);
  });
  const show = () => {
    if (document.activeElement === box && box.valueAsNumber === get()) return;
    box.value = String(Number(get().toFixed(4)));
    box.setAttribute("aria-invalid", false);
    hint.textContent = "";
  };
  box.addEventListener("blur", show); // what was refused goes when one leaves
  for (const name of names) model.on(`change:${name}`, show);
  show();
  return h("span", { class: "tw-number" }, box, hint);
}

/** A slider on a number trait, with its value beside it. */
function slider(model, name, { label, low, high, step, digits = 1, shown = (v) => fmt(v, digits) }) {
  const out = h("output");
  const input = h("input", { type: "range", min: low, max: high, step,
    oninput: () => put(model, { [name]: input.valueAsNumber }) });
  follow(model, name, () => {
    input.value = model.get(name);
    out.textContent = shown(model.get(name));
    input.setAttribute("aria-valuetext", out.textContent);
  });
  return h("label", { class: "tw-slider" }, h("span", {}, label), input, out);
}

/** A box to tick on a boolean trait. */
function toggle(model, name, label) {
  const input = h("input", { type: "checkbox",
    onchange: () => put(model, { [name]: input.checked }) });
  follow(model, name, () => { input.checked = model.get(name); });
  return h("label", { class: "tw-toggle" }, input, h("span", {}, label));
}

/** A list to choose from: options are [value, text] pairs. */
function choice(model, name, { label, options }) {
  const input = h("select", {
    onchange: () => put(model, { [name]: options[input.selectedIndex][0] }) },
    ...options.map(([, text]) => h("option", {}, text)));
  follow(model, name, () => {
    input.selectedIndex = options.findIndex(([value]) => value === model.get(name));
  });
  return h("label", { class: "tw-choice" }, h("span", {}, label), input);
}

/**
 * Make an SVG node a point that moves: by mouse or finger, and by arrow keys (Shift: ten steps).
 * `place` is {step, get(): [x, y], put([x, y]), fromPixels(px, py): [x, y], text(): string}, where
 * pixels are those of the svg's viewBox. Give the node role and position yourself; call the
 * returned function after each change, it tells screen readers the new place.
 */
function movable(svg, node, label, place) {
  set(node, { tabindex: 0, role: "slider", "aria-roledescription": "movable point",
    "aria-label": label });
  node.classList.add("tw-movable");
  const at = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY)
      .matrixTransform(svg.getScreenCTM().inverse());
    return place.fromPixels(point.x, point.y);
  };
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    node.focus({ preventScroll: true });
    event.preventDefault();
  });
  node.addEventListener("pointermove", (event) => {
    if (node.hasPointerCapture(event.pointerId)) place.put(at(event));
  });
  const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  node.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    const size = place.step * (event.shiftKey ? 10 : 1);
    const [x, y] = place.get();
    place.put([x + size * move[0], y + size * move[1]]);
  });
  return () => set(node, { "aria-valuenow": place.get()[0], "aria-valuetext": place.text() });
}

/** An arrow as one path from (x0, y0) to (x1, y1), its head `size` long; "" when it has no length. */
function arrow(x0, y0, x1, y1, size = 9) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  if (length < 1) return "";
  const [ux, uy] = [(x1 - x0) / length, (y1 - y0) / length];
  const [bx, by] = [x1 - size * ux, y1 - size * uy];
  const half = size * 0.45;
  return `M${x0} ${y0}L${bx} ${by}M${x1} ${y1}L${bx - half * uy} ${by + half * ux}` +
    `L${bx + half * uy} ${by - half * ux}Z`;
}
