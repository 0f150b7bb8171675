// Attention by hand (chapter 4).

const LIMIT = 3; // the plane runs from −3 to 3
const STEP = 0.1;
const UNIT = 50; // pixels of the viewBox
const SIZE = 2 * LIMIT * UNIT + 40;

/** Dot products, scores and weights of the word that asks, and its output. */
export function attend({ vectors, query, masked, scaled, temperature }) {
  const [qx, qy] = vectors[query];
  const dots = vectors.map(([x, y]) => x * qx + y * qy);
  const divisor = (scaled ? Math.sqrt(2) : 1) * temperature;
  const scores = dots.map((dot, j) => (masked && j > query ? -Infinity : dot / divisor));
  const highest = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - highest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  const weights = powers.map((power) => power / total);
  const output = [0, 1].map((axis) =>
    weights.reduce((sum, weight, j) => sum + weight * vectors[j][axis], 0));
  return { dots, scores, weights, output };
}

const NAMES = ["vectors", "query", "masked", "scaled", "temperature"];
const px = (x) => SIZE / 2 + UNIT * x;
const py = (y) => SIZE / 2 - UNIT * y;
const inside = (value) =>
  Math.max(-LIMIT, Math.min(LIMIT, Number((Math.round(value / STEP) * STEP).toFixed(4))));

function render({ model, el }) {
  const words = model.get("words");
  const { root, start } = frame({ model, el }, {
    label: "Attention by hand: three words as vectors in the plane, and what one of them reads",
    names: NAMES,
  });
  const change = (j, vector) => {
    const vectors = model.get("vectors").map((old) => [...old]);
    vectors[j] = vector;
    put(model, { vectors });
  };

  // --- the plane ---
  const svg = s("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": "The plane" });
  for (let i = -LIMIT; i <= LIMIT; i++) {
    const kind = i ? "grid" : "axis";
    svg.append(
      s("line", { class: kind, x1: px(i), y1: py(-LIMIT), x2: px(i), y2: py(LIMIT) }),
      s("line", { class: kind, x1: px(-LIMIT), y1: py(i), x2: px(LIMIT), y2: py(i) }));
    if (i) {
      svg.append(
        s("text", { class: "quiet", x: px(i), y: py(-LIMIT) + 15, "text-anchor": "middle" }, fmt(i, 0)),
        s("text", { class: "quiet", x: px(-LIMIT) - 5, y: py(i) + 4, "text-anchor": "end" }, fmt(i, 0)));
    }
  }
  const arrows = words.map((_, j) => svg.appendChild(s("path", { class: `arrow s${j}` })));
  const result = svg.appendChild(s("path", { class: "arrow s3" }));
  const shares = words.map((_, j) => svg.appendChild(s("path", { class: `stroke dashed s${j}` })));
  const names = words.map((word, j) =>
    svg.appendChild(s("text", { class: `hued s${j}`, "text-anchor": "middle" }, word)));
  const resultName = svg.appendChild(
    s("text", { class: "hued s3", "text-anchor": "middle" }, "output"));
  const tips = words.map((word, j) => {
    const node = s("g", { class: `s${j}` },
      s("circle", { r: 17, fill: "transparent" }),
      s("circle", { r: 7, class: "ring", fill: "var(--ground)", stroke: "var(--hue)",
        "stroke-width": 2.5 }));
    const tell = movable(svg, node, `Vector of ${word}`, {
      step: STEP,
      get: () => model.get("vectors")[j],
      put: ([x, y]) => change(j, [inside(x), inside(y)]),
      fromPixels: (x, y) => [(x - SIZE / 2) / UNIT, (SIZE / 2 - y) / UNIT],
      text: () => model.get("vectors")[j].map((v) => brief(v)).join(", "),
    });
    svg.append(node);
    return { node, tell };
  });

  // --- the numbers, one column a word ---
  const group = fresh("query");
  const radios = words.map((word, j) => h("input", { type: "radio", name: group,
    "aria-label": `${word} asks`, onchange: () => put(model, { query: j }) }));
  const boxes = [0, 1].map((axis) => words.map((word, j) => numberBox(model, {
    label: `${word}, coordinate ${axis + 1}`, low: -LIMIT, high: LIMIT, step: STEP,
    names: ["vectors"],
    get: () => model.get("vectors")[j][axis],
    put: (value) => {
      const vector = [...model.get("vectors")[j]];
      vector[axis] = value;
      change(j, vector);
    },
  })));
  const cells = { dots: [], scores: [], weights: [] };
  const row = (head, parts) => h("tr", {}, h("th", { scope: "row" }, head),
    ...parts.map((part) => h("td", {}, part)));
  const numbers = (key) => words.map(() => {
    const cell = h("span", { class: `tw-${key}` });
    cells[key].push(cell);
    return cell;
  });
  const bars = words.map((_, j) => s("rect", { class: `fill glide s${j}`, x: 0, width: 60 }));
  const table = h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "word"),
      ...words.map((word, j) => h("th", { scope: "col", class: `hued s${j}` }, word)))),
    h("tbody", {},
      row("asks", radios), row("x₁", boxes[0]), row("x₂", boxes[1]),
      row("q · k", numbers("dots")), row("score", numbers("scores")),
      row("weight", numbers("weights")),
      row("", bars.map((bar) => s("svg", { viewBox: "0 0 60 60", "aria-hidden": "true",
        style: "max-width: 60px; margin-left: auto" },
        s("rect", { x: 0, y: 0, width: 60, height: 60, fill: "var(--zero)" }), bar)))));
  const sum = h("p", { class: "tw-sum" });
  root.append(
    h("div", { class: "tw-columns" },
      svg,
      h("div", {},
        h("div", { class: "tw-controls" },
          toggle(model, "scaled", "divide by √d_k"),
          toggle(model, "masked", "causal mask"),
          slider(model, "temperature",
            { label: "temperature", low: 0.1, high: 5, step: 0.1 })),
        table)),
    sum,
    h("p", { class: "tw-note" }, "Drag a tip, or select it and use the arrow keys. " +
      "The dashed steps are the values times their weights; they lead to the output."));

  return start(() => {
    const state = Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
    const { dots, scores, weights, output } = attend(state);
    let [x, y] = [0, 0];
    state.vectors.forEach(([vx, vy], j) => {
      const [nextX, nextY] = [x + weights[j] * vx, y + weights[j] * vy];
      set(shares[j], { d: `M${px(x)} ${py(y)}L${px(nextX)} ${py(nextY)}` });
      [x, y] = [nextX, nextY];
      set(arrows[j], { d: arrow(px(0), py(0), px(vx), py(vy)) });
      set(tips[j].node, { transform: `translate(${px(vx)} ${py(vy)})` });
      tips[j].tell();
      beside(names[j], vx, vy, 26);
      radios[j].checked = j === state.query;
      cells.dots[j].textContent = brief(dots[j]);
      cells.scores[j].textContent = fmt(scores[j]);
      cells.weights[j].textContent = fmt(weights[j]);
      set(bars[j], { y: 60 * (1 - weights[j]), height: 60 * weights[j] });
    });
    set(result, { d: arrow(px(0), py(0), px(output[0]), py(output[1]), 12) });
    beside(resultName, output[0], output[1], 22, -1);
    const keep = (text) => h("span", { class: "tw-keep" }, text);
    const terms = weights.map((weight, j) =>
      keep(`${j ? "+ " : ""}${fmt(weight)} · [${state.vectors[j].map((v) => brief(v)).join(", ")}]`));
    const total = keep(`= [${output.map((v) => fmt(v)).join(", ")}]`);
    sum.replaceChildren("output = ", ...terms.flatMap((term) => [term, " "]), total);
    return `${words[state.query]} reads ` +
      words.map((word, j) => `${word} ${fmt(weights[j], 2)}`).join(", ") +
      `; output ${output.map((v) => fmt(v, 2)).join(", ")}`;
  });
}

/** Put a name beyond the tip of its arrow; the output's on the other side of the line. */
function beside(text, x, y, distance, side = 1) {
  const length = Math.hypot(x, y) || 1;
  const [ux, uy] = x || y ? [x / length, y / length] : [0, 1];
  const [dx, dy] = side > 0 ? [ux * distance, uy * distance] : [uy * 40, -ux * 24];
  const edge = SIZE / 2 - 18;
  const clamp = (value) => Math.max(-edge, Math.min(edge, value));
  set(text, {
    x: SIZE / 2 + clamp(UNIT * x + dx),
    y: SIZE / 2 - clamp(UNIT * y + dy) + 5,
  });
}

export default { render };
