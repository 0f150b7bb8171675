// LayerNorm and residual (chapter 6).

const LIMIT = 6, STEP = 0.1, MOST = 6; // numbers of the row: range, step of the hand, how many
const EPS = 1e-5;
const WIDTH = 64, INNER = 256, ROWS = 8, DEPTH = 24; // the stack
const NAMES = ["row", "size", "block"];

/** Mean, variance, deviation √(variance + ε) and result of one row. */
export function normalise(row) {
  const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
  const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
  const deviation = Math.sqrt(variance + EPS);
  return { mean, variance, deviation, result: row.map((value) => (value - mean) / deviation) };
}

/** Numbers from −1 to 1, the same as in Python: a linear congruence modulo 2³². */
export function generator(seed = 1) {
  let state = seed;
  return () => {
    state = (Math.imul(1664525, state) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  };
}

/** W₂ max(0, W₁ x), each matrix stored row by row. */
function network(x, first, second) {
  const inner = new Float64Array(INNER);
  for (let r = 0; r < INNER; r++) {
    let sum = 0;
    for (let c = 0; c < WIDTH; c++) sum += first[r * WIDTH + c] * x[c];
    inner[r] = Math.max(0, sum);
  }
  return Array.from({ length: WIDTH }, (_, r) => {
    let sum = 0;
    for (let c = 0; c < INNER; c++) sum += second[r * INNER + c] * inner[c];
    return sum;
  });
}

const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * A fresh stack of 24 blocks on 8 rows: after each block the variance of a row, and by what the
 * side path has multiplied the input; for Post-LN, Pre-LN, and Pre-LN with its closing norm.
 */
export function stack() {
  const draw = generator();
  const uniform = (count, range) => Float64Array.from({ length: count }, () => range * draw());
  const inputs = Array.from({ length: ROWS }, () => normalise([...uniform(WIDTH, 1)]).result);
  const xavier = Math.sqrt(6 / (WIDTH + INNER));
  let [post, pre] = [inputs, inputs];
  let kept = inputs.map(() => 1);
  const found = Object.fromEntries(["post", "pre", "closed"]
    .map((name) => [name, { variance: [], side: [] }]));
  const note = (name, rows, side) => {
    found[name].variance.push(average(rows.map((row) => normalise(row).variance)));
    found[name].side.push(average(side));
  };
  for (let block = 0; block < DEPTH; block++) {
    const first = uniform(WIDTH * INNER, xavier);
    const second = uniform(WIDTH * INNER, xavier);
    const plus = (x, read) => {
      const change = network(read, first, second);
      return x.map((value, c) => value + change[c]);
    };
    const sums = post.map((x) => normalise(plus(x, x)));
    post = sums.map(({ result }) => result);
    kept = kept.map((factor, n) => factor / sums[n].deviation);
    pre = pre.map((x) => plus(x, normalise(x).result));
    const closing = pre.map(normalise);
    note("post", post, kept);
    note("pre", pre, pre.map(() => 1));
    note("closed", closing.map(({ result }) => result), closing.map(({ deviation }) => 1 / deviation));
  }
  return found;
}

const small = "₁₂₃₄₅₆";
const name = (r) => `x${small[r]}`;

// --- the picture of the row: left as it is, right its result ---
const PW = 340, PH = 224, TOP = 22, BOTTOM = 24, PANEL = 136;
const SPAN = 2.5; // results of six numbers stay within ±√5
const middle = (PH - BOTTOM + TOP) / 2, half = (PH - BOTTOM - TOP) / 2;
const PANELS = [{ left: 30, most: LIMIT, ticks: [-6, -3, 0, 3, 6] },
  { left: PW - PANEL, most: SPAN, ticks: [-2, -1, 0, 1, 2] }];

function render({ model, el }) {
  const { root, start } = frame({ model, el }, {
    label: "LayerNorm and residual: one row normalised, and two orders of norm and sum through depth",
    names: NAMES,
  });
  const inside = (value) => Math.max(-LIMIT, Math.min(LIMIT, Number((Math.round(value / STEP) * STEP).toFixed(4))));
  const change = (r, value) => {
    const row = [...model.get("row")];
    row[r] = value;
    put(model, { row });
  };
  const svg = s("svg", { viewBox: `0 0 ${PW} ${PH}`, role: "group", "aria-label": "The row and its result" });
  const panels = PANELS.map(({ left, most, ticks }, n) => {
    const y = (v) => middle - (v / most) * half;
    const band = svg.appendChild(s("rect", { x: left, width: PANEL, fill: "var(--zero)" }));
    svg.append(s("text", { x: left + PANEL / 2, y: 13, "text-anchor": "middle" }, n ? "result" : "row"));
    for (const v of ticks) svg.append(
      s("line", { class: v ? "grid" : "axis", x1: left, x2: left + PANEL, y1: y(v), y2: y(v) }),
      s("text", { class: "quiet", x: left - 5, y: y(v) + 4, "text-anchor": "end" }, fmt(v, 0)));
    const mean = svg.appendChild(s("line", { class: "stroke dashed s2", x1: left, x2: left + PANEL }));
    const parts = Array.from({ length: MOST }, (_, r) => ({
      stem: svg.appendChild(s("line", { class: `stroke s${n}`, "stroke-width": 1.5 })),
      tick: svg.appendChild(s("text", { class: "quiet", y: PH - 8, "text-anchor": "middle" }, name(r))),
    }));
    const x = (r, size) => left + PANEL * (r + 0.5) / size;
    return { y, x, band, mean, parts };
  });
  const dots = panels[0].parts.map((_, r) => {
    const node = s("g", { class: "s0" }, s("circle", { r: 16, fill: "transparent" }),
      s("circle", { r: 7, class: "ring", fill: "var(--ground)", stroke: "var(--hue)", "stroke-width": 2.5 }));
    const tell = movable(svg, node, `number ${r + 1} of the row`, {
      step: STEP,
      get: () => [0, model.get("row")[r]],
      put: ([, value]) => change(r, inside(value)),
      fromPixels: (_, y) => [0, ((middle - y) / half) * LIMIT],
      text: () => brief(model.get("row")[r]),
    });
    set(node, { "aria-valuemin": -LIMIT, "aria-valuemax": LIMIT, "aria-orientation": "vertical" });
    svg.append(node);
    return { node, tell };
  });
  const results = dots.map(() => svg.appendChild(s("circle", { class: "fill s1", r: 6 })));

  // --- its numbers, one line each ---
  const lines = dots.map((_, r) => {
    const [deviation, result] = [h("td", { class: "tw-deviation" }), h("td", { class: "tw-result" })];
    const box = numberBox(model, { label: `x${r + 1}`, low: -LIMIT, high: LIMIT, step: STEP,
      names: ["row"], get: () => model.get("row")[r], put: (value) => change(r, value) });
    const line = h("tr", {}, h("th", { scope: "row" }, name(r)), h("td", {}, box), deviation, result);
    return { line, deviation, result };
  });
  const columns = (width, ...heads) => h("thead", {}, h("tr", {}, h("th", { style: `width: ${width}` }),
    ...heads.map((head) => h("th", { scope: "col" }, head))));
  const all = (text, label, f) => {
    const changed = () => model.get("row").map((value, r) =>
      r < model.get("size") ? Number(f(value).toFixed(6)) : value);
    const fits = () => changed().every((value) => Math.abs(value) <= LIMIT);
    const button = h("button", { type: "button", "aria-label": label,
      onclick: () => { if (fits()) put(model, { row: changed() }); } }, text);
    return { button, tell: () => set(button, { "aria-disabled": !fits() }) };
  };
  const buttons = [all("+ 1", "add 1 to all", (v) => v + 1), all("− 1", "subtract 1 from all", (v) => v - 1),
    all("× 2", "double all", (v) => 2 * v), all("÷ 2", "halve all", (v) => v / 2)];
  const moments = h("p", { class: "tw-moments" });

  // --- two orders through depth ---
  const found = stack();
  const variance = chart("Variance of a row after each block", 10, [0, 2, 4, 6, 8, 10]);
  const side = chart("Factor of the input on the side path", 1, [0, 0.5, 1]);
  variance.svg.append(s("path", { d: curve(variance, found.pre.variance.map((_, n) => 1 + 0.32 * (n + 1))),
    fill: "none", stroke: "var(--quiet)", "stroke-width": 1, "stroke-dasharray": "2 3" }));
  for (const [chart, key] of [[variance, "variance"], [side, "side"]])
    for (const [order, hue, dash, text] of [["post", "s0", "none", "Post-LN"], ["pre", "s1", "5 3", "Pre-LN"]]) {
      const values = found[order][key];
      const below = key === "side" && order === "pre";
      chart.svg.append(
        s("path", { class: `stroke ${hue}`, "stroke-dasharray": dash, d: curve(chart, values) }),
        s("text", { class: `hued ${hue}`, x: chart.x(21), y: chart.y(values[20]) + (below ? 20 : -14),
          "text-anchor": "end" }, text));
      chart.marks.push(chart.svg.appendChild(
        s("circle", { class: hue, r: 5, fill: "var(--ground)", stroke: "var(--hue)", "stroke-width": 2.5 })));
    }
  const orders = ["post", "pre", "closed"].map((order, n) => {
    const cells = [h("td", { class: "tw-variance" }), h("td", { class: "tw-side" })];
    const head = ["Post-LN", "Pre-LN", "Pre-LN, closing norm"][n];
    return { order, cells, row: h("tr", {}, h("th", { scope: "row" }, head), ...cells) };
  });

  root.append(
    h("div", { class: "tw-controls" },
      choice(model, "size", { label: "numbers in the row",
        options: [2, 3, 4, 5, 6].map((v) => [v, String(v)]) }),
      h("span", { class: "tw-keep" }, ...buttons.flatMap(({ button }) => [button, " "]))),
    h("div", { class: "tw-columns" }, svg,
      h("div", {}, h("table", {}, columns("2rem", "row", "less mean", "result"),
        h("tbody", {}, ...lines.map(({ line }) => line))), moments)),
    h("p", { class: "tw-note" }, "Drag a ring, or select it and use the arrow keys. Dashed: the mean. " +
      "Shaded: one deviation to each side. The buttons change all numbers at once."),
    h("p", { class: "tw-head" }, "Post-LN and Pre-LN through 24 fresh blocks"),
    h("div", { class: "tw-controls" },
      slider(model, "block", { label: "after block", low: 1, high: DEPTH, step: 1, digits: 0 })),
    h("div", { class: "tw-columns" },
      h("div", {}, h("p", {}, "Variance of a row (dotted: 1 + 0.32 ℓ)"), variance.svg),
      h("div", {}, h("p", {}, "What the side path leaves of the input"), side.svg)),
    h("table", { style: "margin-top: 0.75rem" }, columns("45%", "variance", "input ×"), h("tbody", {}, ...orders.map(({ row }) => row))));

  return start(() => {
    const [size, block] = [model.get("size"), model.get("block")];
    const row = model.get("row").slice(0, size);
    const { mean, deviation, variance: spread, result } = normalise(row);
    const shown = [{ values: row, mean, deviation }, { values: result, mean: 0, deviation: 1 }];
    panels.forEach(({ y, x, band, mean: line, parts }, n) => {
      const { values, mean: centre, deviation: reach } = shown[n];
      const [high, low] = [centre + reach, centre - reach].map((v) => Math.max(TOP, Math.min(PH - BOTTOM, y(v))));
      set(band, { y: high, height: low - high });
      set(line, { y1: y(centre), y2: y(centre) });
      parts.forEach(({ stem, tick }, r) => {
        for (const node of [stem, tick]) node.style.display = r < size ? "" : "none";
        if (r >= size) return;
        set(stem, { x1: x(r, size), x2: x(r, size), y1: y(centre), y2: y(values[r]) });
        set(tick, { x: x(r, size) });
      });
    });
    dots.forEach(({ node, tell }, r) => {
      for (const part of [node, results[r]]) part.style.display = r < size ? "" : "none";
      lines[r].line.hidden = r >= size;
      if (r >= size) return;
      set(node, { transform: `translate(${panels[0].x(r, size)} ${panels[0].y(row[r])})` });
      tell();
      set(results[r], { cx: panels[1].x(r, size), cy: panels[1].y(result[r]) });
      lines[r].deviation.textContent = fmt(row[r] - mean);
      lines[r].result.textContent = fmt(result[r]);
    });
    buttons.forEach(({ tell }) => tell());
    moments.textContent = `mean ${fmt(mean)}, variance ${fmt(spread)}, deviation ${fmt(deviation)}`;
    for (const chart of [variance, side]) set(chart.cursor, { x1: chart.x(block), x2: chart.x(block) });
    orders.forEach(({ order, cells }, n) => {
      const [v, factor] = [found[order].variance[block - 1], found[order].side[block - 1]];
      cells[0].textContent = fmt(v, 3);
      cells[1].textContent = fmt(factor, 3);
      if (order === "closed") return;
      set(variance.marks[n], { cx: variance.x(block), cy: variance.y(v) });
      set(side.marks[n], { cx: side.x(block), cy: side.y(factor) });
    });
    return `Mean ${fmt(mean, 2)}, deviation ${fmt(deviation, 2)}, ` +
      `result ${result.map((v) => fmt(v, 2)).join(", ")}. After block ${block} variance ` +
      `${fmt(found.post.variance[block - 1], 2)} in Post-LN, ${fmt(found.pre.variance[block - 1], 2)} in Pre-LN`;
  });
}

/** Axes of a chart against the block, from 0 to `most`. */
function chart(label, most, ticks) {
  const [wide, high, left, top, right, bottom] = [330, 180, 34, 12, 8, 34];
  const svg = s("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label });
  const x = (block) => left + (block / DEPTH) * (wide - left - right);
  const y = (v) => high - bottom - (v / most) * (high - top - bottom);
  for (const v of ticks) svg.append(
    s("line", { class: v ? "grid" : "axis", x1: x(0), x2: x(DEPTH), y1: y(v), y2: y(v) }),
    s("text", { class: "quiet", x: left - 5, y: y(v) + 4, "text-anchor": "end" }, brief(v)));
  for (const v of [0, 6, 12, 18, 24])
    svg.append(s("text", { class: "quiet", x: x(v), y: high - bottom + 16, "text-anchor": "middle" }, String(v)));
  svg.append(s("text", { class: "quiet", x: (x(0) + x(DEPTH)) / 2, y: high - 3, "text-anchor": "middle" }, "block ℓ"));
  const cursor = svg.appendChild(s("line", { y1: top, y2: high - bottom, stroke: "var(--ink)", "stroke-dasharray": "3 3" }));
  return { svg, x, y, cursor, marks: [] };
}

/** A curve that starts at 1, the input, before block 1. */
const curve = ({ x, y }, values) =>
  [1, ...values].map((v, n) => `${n ? "L" : "M"}${x(n).toFixed(2)} ${y(v).toFixed(2)}`).join("");

export default { render };
