// Position explorer (chapter 3).

const LAST = 60; // places 0 to 60
const NAMES = ["place", "other", "width", "base"];
const WIDTHS = [4, 8, 16, 32, 64, 128];
const BASES = [10, 100, 1000, 10000, 100000];
const DASHES = ["none", "9 4", "3 3", "11 3 3 3"];

/** One row of the encoding: sine and cosine in turn. */
export function encoding(place, width, base) {
  const row = [];
  for (let c = 0; c < width; c += 2) {
    const angle = place * base ** (-c / width);
    row.push(Math.sin(angle), Math.cos(angle));
  }
  return row;
}

/** The row of the place, the coordinates that are drawn, and its product with every place. */
export function explore({ place, width, base }) {
  const row = encoding(place, width, base);
  const products = Array.from({ length: LAST + 1 }, (_, q) =>
    encoding(q, width, base).reduce((sum, value, c) => sum + value * row[c], 0));
  const step = Math.max(2, width / 8);
  const coordinates = [0, 1, 2, 3].map((i) => i * step).filter((c) => c < width);
  return { row, products, coordinates };
}

const W = 330, H = 190, LEFT = 34, TOP = 12, RIGHT = 12, BOTTOM = 34;

/** Axes of a small chart: {svg, x(v), y(v), label(text)}; y ticks are set later. */
function chart(name, low, high, ticks, below) {
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": name });
  const x = (v) => LEFT + ((v - low) / (high - low)) * (W - LEFT - RIGHT);
  const y = (v) => TOP + ((1 - v) / 2) * (H - TOP - BOTTOM); // from −1 to 1
  for (const v of [-1, 0, 1])
    svg.append(s("line", { class: v ? "grid" : "axis", x1: x(low), x2: x(high), y1: y(v), y2: y(v) }));
  for (const v of ticks)
    svg.append(s("text", { class: "quiet", x: x(v), y: H - BOTTOM + 16, "text-anchor": "middle" },
      fmt(v, 0)));
  svg.append(s("text", { class: "quiet", x: (x(low) + x(high)) / 2, y: H - 3, "text-anchor": "middle" },
    below));
  const sides = [1, 0, -1].map((v) => svg.appendChild(
    s("text", { class: "quiet", x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, fmt(v, 0))));
  return { svg, x, y, sides };
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

function render({ model, el }) {
  const { root, start } = frame({ model, el }, {
    label: "Position explorer: the encoding of a place, its waves, and its dot product with others",
    names: NAMES,
  });

  // --- waves, with a line at each of the two places ---
  const waves = chart("Waves against the place", 0, LAST, [0, 20, 40, 60], "place p");
  const curves = DASHES.map((dash, i) => waves.svg.appendChild(
    s("path", { class: `stroke s${i}`, "stroke-dasharray": dash })));
  const hairs = [["place", "place p"], ["other", "place to compare with"]].map(([name, label], i) => {
    const line = s("line", { y1: TOP - 6, y2: H - BOTTOM, stroke: "var(--ink)", "stroke-width": 1.5,
      "stroke-dasharray": i ? "3 3" : "none" });
    const node = s("g", {}, s("rect", { x: -14, y: 0, width: 28, height: H - BOTTOM, fill: "transparent" }),
      line, s("circle", { class: "ring", cy: TOP - 6, r: 6, stroke: "var(--ink)", "stroke-width": 2,
        fill: i ? "var(--ground)" : "var(--ink)" }));
    const tell = movable(waves.svg, node, label, {
      step: 1,
      get: () => [model.get(name), 0],
      put: ([v]) => put(model, { [name]: Math.max(0, Math.min(LAST, Math.round(v))) }),
      fromPixels: (px) => [((px - LEFT) / (W - LEFT - RIGHT)) * LAST, 0],
      text: () => String(model.get(name)),
    });
    set(node, { "aria-valuemin": 0, "aria-valuemax": LAST });
    waves.svg.append(node);
    return { node, tell, name };
  });

  // --- the dot product against the distance ---
  const dots = chart("Dot product against the distance", -LAST, LAST, [-60, -30, 0, 30, 60],
    "distance from p");
  const curve = dots.svg.appendChild(s("path", { class: "stroke s0" }));
  const mark = dots.svg.appendChild(s("circle", { r: 5, fill: "var(--ground)", stroke: "var(--ink)",
    "stroke-width": 2 }));

  // --- the row, one bar a coordinate ---
  const RH = 84;
  const bars = s("svg", { viewBox: `0 0 680 ${RH}`, preserveAspectRatio: "none", "aria-hidden": "true",
    style: `height: ${RH}px` });

  // --- the hands that are drawn, one column each ---
  const heads = DASHES.map((_, i) => h("th", { scope: "col", class: `hued s${i}` }));
  const column = (kind) => DASHES.map(() => h("td", { class: `tw-${kind}` }));
  const rows = { turn: column("turn"), sin: column("sin"), cos: column("cos") };
  const hands = DASHES.map((_, i) => s("line", { class: `stroke s${i}`, x1: 0, y1: 0, "stroke-width": 3 }));
  const clocks = hands.map((hand) => h("td", {}, s("svg", { viewBox: "-22 -22 44 44", "aria-hidden": "true",
    style: "width: 44px; margin-left: auto" },
    s("circle", { r: 20, fill: "none", stroke: "var(--quiet)", "stroke-width": 1 }), hand)));
  const row = (head, cells) => h("tr", {}, h("th", { scope: "row" }, head), ...cells);
  const product = h("p", { class: "tw-product" });
  root.append(
    h("div", { class: "tw-controls" },
      slider(model, "place", { label: "place p", low: 0, high: LAST, step: 1, digits: 0 }),
      slider(model, "other", { label: "compare with", low: 0, high: LAST, step: 1, digits: 0 }),
      choice(model, "width", { label: "width d", options: WIDTHS.map((v) => [v, String(v)]) }),
      choice(model, "base",
        { label: "base", options: BASES.map((v) => [v, v.toLocaleString("en")]) })),
    h("div", { class: "tw-columns" },
      h("div", {}, h("p", { class: "tw-head" }, "Waves"), waves.svg),
      h("div", {}, h("p", { class: "tw-head" }, "Dot product of p with every place"), dots.svg)),
    product,
    h("p", { class: "tw-head" }, "The row of place p: ", h("span", { class: "hued s0" }, "sines"), " and ",
      h("span", { class: "hued s1" }, "cosines"), " in turn"),
    bars,
    h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "hand"), ...heads)),
      h("tbody", {}, row("turn", rows.turn), row("sin", rows.sin), row("cos", rows.cos),
        row("at p", clocks))),
    h("p", { class: "tw-note" }, "Four of the hands: the coordinates that hold the tip of each, " +
      "the places that one full turn takes, and how it stands at place p."));

  return start(() => {
    const { place, other, width, base } = Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
    const found = explore({ place, width, base });
    hairs.forEach(({ node, tell, name }) => {
      set(node, { transform: `translate(${waves.x(model.get(name))} 0)` });
      tell();
    });
    DASHES.forEach((_, i) => {
      const c = found.coordinates[i];
      const there = c !== undefined;
      const omega = base ** (-c / width);
      for (const part of [heads[i], rows.turn[i], rows.sin[i], rows.cos[i], clocks[i]]) part.hidden = !there;
      const points = there ? Array.from({ length: 4 * LAST + 1 }, (_, n) =>
        [waves.x(n / 4), waves.y(Math.sin(omega * n / 4))]) : [];
      set(curves[i], { d: path(points) });
      if (!there) return;
      const [sin, cos] = found.row.slice(c, c + 2);
      const turn = 2 * Math.PI / omega;
      heads[i].textContent = `${c}, ${c + 1}`;
      rows.turn[i].textContent = turn.toLocaleString("en",
        { maximumFractionDigits: turn < 1000 ? 1 : 0 });
      rows.sin[i].textContent = fmt(sin, 3);
      rows.cos[i].textContent = fmt(cos, 3);
      set(hands[i], { x2: 20 * sin, y2: -20 * cos }); // starts at twelve, turns clockwise
    });
    const half = width / 2;
    dots.sides.forEach((text, i) => { text.textContent = fmt((1 - i) * half, 0); });
    set(curve, { d: path(found.products.map((v, q) => [dots.x(q - place), dots.y(v / half)])) });
    set(mark, { cx: dots.x(other - place), cy: dots.y(found.products[other] / half) });
    const step = 680 / width;
    bars.replaceChildren(
      s("line", { class: "axis", x1: 0, x2: 680, y1: RH / 2, y2: RH / 2 }),
      ...found.row.map((value, c) => s("rect", { class: `fill s${c % 2}`, x: c * step + step * 0.1,
        width: step * 0.8, y: RH / 2 - Math.max(0, value) * 40, height: Math.abs(value) * 40 })));
    const distance = other - place;
    product.textContent = `place ${place} · place ${other} = ${fmt(found.products[other])}, ` +
      `distance ${fmt(distance, 0)}; place ${place} · itself = ${fmt(found.products[place])}`;
    return `Place ${place} and place ${other}, distance ${fmt(distance, 0)}: ` +
      `dot product ${fmt(found.products[other], 2)} of ${half}`;
  });
}

export default { render };
