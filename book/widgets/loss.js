// Loss and gradient (chapter 10).

const PAD = 0;
const LIMIT = 8; // a logit lies between −8 and 8
const STEP = 0.1;
const NAMES = ["logits", "labels", "position", "smoothing", "rate", "history"];

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** Probabilities, wanted shares, losses and slopes of each position, and the means over labels. */
export function cost({ logits, labels, smoothing }) {
  const real = labels.filter((label) => label !== PAD).length;
  const rows = logits.map((z, t) => {
    const counts = labels[t] !== PAD;
    const highest = Math.max(...z);
    const all = highest + Math.log(sum(z.map((v) => Math.exp(v - highest))));
    const logs = z.map((v) => v - all);
    const p = logs.map(Math.exp);
    const q = z.map((_, v) =>
      (counts ? (v === labels[t] ? 1 - smoothing : 0) + smoothing / z.length : 0));
    return {
      p, q,
      nll: counts ? -logs[labels[t]] : 0,
      loss: -sum(logs.map((log, v) => (q[v] ? q[v] * log : 0))),
      slope: p.map((share, v) => (counts ? (share - q[v]) / real : 0)),
    };
  });
  const mean = (key) => sum(rows.map((row) => row[key])) / real;
  const one = rows[labels.findIndex((label) => label !== PAD)].q;
  return {
    rows, nll: mean("nll"), loss: mean("loss"),
    floor: Math.abs(sum(one.map((share) => (share ? share * Math.log(share) : 0)))),
  };
}

/** The logits after one step of gradient descent. */
export function descend({ logits, labels, smoothing, rate }) {
  const { rows } = cost({ logits, labels, smoothing });
  return logits.map((z, t) => z.map((v, word) => v - rate * rows[t].slope[word]));
}

const inside = (value) =>
  Math.max(-LIMIT, Math.min(LIMIT, Number((Math.round(value / STEP) * STEP).toFixed(4))));

// The chart: names, then three panels side by side, one row a word.
const W = 330, ROW = 24, TOP = 22;
const Z = [84, 158], P = [176, 242], G = [258, 328]; // left and right end of each panel
const across = ([left, right], low, high) => (v) => left + ((v - low) / (high - low)) * (right - left);
const zx = across(Z, -LIMIT, LIMIT), px = across(P, 0, 1);

// The course of the loss.
const CH = 118, LEFT = 40, RIGHT = 320, HIGH = 10, LOW = 94;

function render({ model, el }) {
  const words = model.get("words");
  const count = model.get("labels").length;
  const { root, start } = frame({ model, el }, {
    label: "Loss and gradient: the logits of four positions, what they cost, and steps downhill",
    names: NAMES,
  });
  const edit = (values) => put(model, { ...values, history: [] });
  const logit = (v) => model.get("logits")[model.get("position")][v];
  const change = (v, value) => {
    const logits = model.get("logits").map((row) => [...row]);
    logits[model.get("position")][v] = value;
    edit({ logits });
  };
  model.on("change:smoothing", () => { // another loss: its course begins here
    if (model.get("history").length) put(model, { history: [] });
  });

  // --- descent ---
  const hint = h("span", { class: "tw-hint", role: "alert" });
  const walk = (steps) => {
    let { logits, history, ...rest } = Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
    let refused = "";
    for (let i = 0; i < steps && !refused; i++) {
      const next = descend({ logits, ...rest });
      if (next.flat().some((v) => Math.abs(v) > LIMIT)) {
        refused = `The next step would take a logit beyond ${fmt(-LIMIT, 0)} to ${LIMIT}: ` +
          "lower the rate or move the logits.";
      } else {
        history = [...history, cost({ logits, ...rest }).loss];
        logits = next;
      }
    }
    put(model, { logits, history });
    hint.textContent = refused;
  };

  // --- the four labels ---
  const group = fresh("position");
  const columns = Array.from({ length: count }, (_, t) => ({
    radio: h("input", { type: "radio", name: group, onchange: () => put(model, { position: t }) }),
    head: h("th", { scope: "col" }),
    p: h("td", { class: "tw-p" }), nll: h("td", { class: "tw-nll" }), loss: h("td", { class: "tw-loss" }),
  }));
  const row = (head, cells) => h("tr", {}, h("th", { scope: "row" }, head), ...cells);
  const labels = h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "label"), ...columns.map((c) => c.head))),
    h("tbody", {}, row("look at", columns.map((c) => h("td", {}, c.radio))),
      row("p", columns.map((c) => c.p)), row("−ln p", columns.map((c) => c.nll)),
      row("loss", columns.map((c) => c.loss))));
  const means = h("p", { class: "tw-means" });

  // --- the course of the loss ---
  const course = s("svg", { viewBox: `0 0 ${W} ${CH}`, role: "img" });
  const line = (kind, y) => course.appendChild(s("line", { class: kind, x1: LEFT, x2: RIGHT, y1: y, y2: y }));
  line("axis", LOW);
  const floor = line("stroke dashed s1", LOW);
  const path = course.appendChild(s("path", { class: "stroke s0" }));
  const now = course.appendChild(s("circle", { r: 4, class: "fill s0" }));
  const [zero, top, first, last] = [
    { x: LEFT - 6, y: LOW + 4, "text-anchor": "end" }, { x: LEFT - 6, y: HIGH + 8, "text-anchor": "end" },
    { x: LEFT, y: LOW + 16, "text-anchor": "middle" }, { x: RIGHT, y: LOW + 16, "text-anchor": "middle" },
  ].map((place) => course.appendChild(s("text", { class: "quiet", ...place })));
  course.append(s("text", { class: "quiet", x: (LEFT + RIGHT) / 2, y: LOW + 16, "text-anchor": "middle" },
    "steps"));
  [zero.textContent, first.textContent] = ["0", "0"];

  // --- the chart of the position looked at ---
  const bottom = TOP + ROW * words.length;
  const svg = s("svg", { viewBox: `0 0 ${W} ${bottom + 18}`, role: "group" });
  const text = (x, y, content, anchor = "middle") => svg.appendChild(
    s("text", { class: "quiet", x, y, "text-anchor": anchor }, content));
  for (const [panel, name] of [[Z, "logit"], [P, "p and q"], [G, "slope"]])
    text((panel[0] + panel[1]) / 2, 13, name);
  for (const x of [zx(-LIMIT), zx(LIMIT), px(1), G[0], G[1]])
    svg.append(s("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: bottom }));
  for (const x of [zx(0), px(0), (G[0] + G[1]) / 2])
    svg.append(s("line", { class: "axis", x1: x, x2: x, y1: TOP, y2: bottom }));
  for (const v of [-LIMIT, 0, LIMIT]) text(zx(v), bottom + 14, fmt(v, 0));
  for (const v of [0, 1]) text(px(v) - 3 * v, bottom + 14, fmt(v, 0));
  const ends = [text(G[0] - 4, bottom + 14, "", "start"), text(G[1], bottom + 14, "", "end")];
  const bars = words.map((word, v) => {
    const y = TOP + ROW * v + ROW / 2;
    const name = svg.appendChild(s("text", { x: 78, y: y + 4, "text-anchor": "end", style: "font-size: 12px" }));
    const stem = svg.appendChild(s("line", { class: "stroke s0", x1: zx(0), y1: y, y2: y }));
    const share = svg.appendChild(s("rect", { class: "fill s0", x: px(0), y: y - 9, height: 9 }));
    const want = svg.appendChild(s("rect", { x: px(0), y: y + 1.5, height: 6, fill: "none",
      stroke: "var(--c1)", "stroke-width": 1.5 }));
    const slope = svg.appendChild(s("rect", { class: "fill s2", y: y - 6, height: 12 }));
    return { name, stem, share, want, slope, y };
  });
  const points = words.map((word, v) => {
    const node = s("g", { class: "s0" },
      s("rect", { x: -12, y: -ROW / 2, width: 24, height: ROW, fill: "transparent" }),
      s("circle", { r: 5.5, class: "ring", fill: "var(--ground)", stroke: "var(--hue)", "stroke-width": 2.5 }));
    const tell = movable(svg, node, `Logit of ${word}`, {
      step: STEP,
      get: () => [logit(v), 0],
      put: ([value]) => change(v, inside(value)),
      fromPixels: (x) => [((x - zx(0)) / (zx(1) - zx(0))), 0],
      text: () => brief(logit(v)),
    });
    set(node, { "aria-valuemin": -LIMIT, "aria-valuemax": LIMIT });
    svg.append(node);
    return { node, tell };
  });

  // --- the numbers of the position looked at, one row a word ---
  const right = fresh("right");
  const numbers = words.map((word, v) => ({
    radio: h("input", { type: "radio", name: right, "aria-label": `${word} is right`, onchange: () =>
      edit({ labels: model.get("labels").map((old, t) => (t === model.get("position") ? v : old)) }) }),
    box: numberBox(model, { label: `Logit of ${word}, typed`, low: -LIMIT, high: LIMIT, step: STEP,
      names: ["logits", "position"], get: () => logit(v), put: (value) => change(v, value) }),
    p: h("td", { class: "tw-share" }), q: h("td", { class: "tw-wanted" }), slope: h("td", { class: "tw-slope" }),
  }));
  const table = h("table", {},
    h("thead", {}, h("tr", {}, ...["right", "logit", "p", "q", "slope"].map((name, i) =>
      h("th", { scope: "col", style: `width: ${[28, 20.5, 16, 16, 19.5][i]}%` }, name)))),
    h("tbody", {}, ...numbers.map(({ radio, box, p, q, slope }, v) => h("tr", {},
      h("th", { scope: "row" }, h("label", {}, radio, h("span", {}, words[v]))),
      h("td", {}, box), p, q, slope))));
  const heads = [0, 1].map(() => h("p", { class: "tw-head" }));
  const button = (steps, name) => h("button", { type: "button", onclick: () => walk(steps) }, name);
  root.append(
    h("div", { class: "tw-controls" },
      slider(model, "smoothing", { label: "smoothing ε", low: 0, high: 0.9, step: 0.05, digits: 2 }),
      slider(model, "rate", { label: "rate", low: 0.1, high: 10, step: 0.1 }),
      button(1, "One step"), button(10, "Ten steps"), hint),
    h("div", { class: "tw-columns" },
      h("div", {}, labels, means, h("p", { class: "tw-head" }, "The loss, step by step; dashed, its floor"), course),
      h("div", {}, heads[0], svg)),
    heads[1], table,
    h("p", { class: "tw-note" }, "Drag a point, or select it and use the arrow keys, or type. Filled bars are p, " +
      "what the model says; hollow ones are q, what is wanted. A logit moves against its slope, by rate times slope."));

  return start(() => {
    const state = Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
    const found = cost(state);
    const { p, q, slope } = found.rows[state.position];
    const label = state.labels[state.position];
    const real = state.labels.filter((each) => each !== PAD).length;
    hint.textContent = "";
    columns.forEach((column, t) => {
      const its = state.labels[t], counts = its !== PAD;
      column.head.textContent = words[its];
      column.radio.checked = t === state.position;
      column.radio.setAttribute("aria-label", `Look at position ${t + 1}, label ${words[its]}`);
      column.p.textContent = counts ? fmt(found.rows[t].p[its]) : "–";
      column.nll.textContent = counts ? fmt(found.rows[t].nll) : "–";
      column.loss.textContent = counts ? fmt(found.rows[t].loss) : "–";
    });
    means.textContent = `Mean of ${real}: −ln p ${fmt(found.nll)}, loss ${fmt(found.loss)}; ` +
      `it cannot fall below ${fmt(found.floor)}.`;

    const where = `Position ${state.position + 1}`;
    heads[0].textContent = `${where}: ` +
      (label === PAD ? "padding, it does not count" : `${words[label]} is right`);
    heads[1].textContent = `${where} in numbers`;
    svg.setAttribute("aria-label", `Logits, probabilities and slopes of position ${state.position + 1}`);
    const steep = 1 / real, gx = across(G, -steep, steep);
    [ends[0].textContent, ends[1].textContent] = [fmt(-steep, 2), fmt(steep, 2)];
    words.forEach((word, v) => {
      const bar = bars[v], chosen = v === label;
      bar.name.textContent = (chosen ? "▸ " : "") + word;
      bar.name.setAttribute("style", `font-size: 12px; font-weight: ${chosen ? 650 : 400}`);
      set(bar.stem, { x2: zx(logit(v)) });
      set(bar.share, { width: px(p[v]) - px(0) });
      set(bar.want, { width: px(q[v]) - px(0), visibility: q[v] ? "visible" : "hidden" });
      set(bar.slope, { x: gx(Math.min(0, slope[v])), width: Math.abs(gx(slope[v]) - gx(0)) });
      set(points[v].node, { transform: `translate(${zx(logit(v))} ${bar.y})` });
      points[v].tell();
      const cells = numbers[v];
      cells.radio.checked = chosen;
      cells.radio.disabled = v === PAD && !chosen && real === 1; // one label must count
      cells.p.textContent = fmt(p[v]);
      cells.q.textContent = fmt(q[v]);
      cells.slope.textContent = fmt(slope[v]);
    });

    const steps = state.history.length, losses = [...state.history, found.loss];
    const highest = Math.max(1, Math.ceil(Math.max(...losses)));
    const x = across([LEFT, RIGHT], 0, Math.max(10, steps)), y = across([LOW, HIGH], 0, highest);
    set(path, { d: losses.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(2)} ${y(v).toFixed(2)}`).join("") });
    set(now, { cx: x(steps), cy: y(found.loss) });
    set(floor, { y1: y(found.floor), y2: y(found.floor) });
    [top.textContent, last.textContent] = [String(highest), String(Math.max(10, steps))];
    const told = steps ? `Loss ${fmt(losses[0])} before ${steps} step${steps > 1 ? "s" : ""}, now ` : "Loss ";
    course.setAttribute("aria-label", `${told}${fmt(found.loss)}; floor ${fmt(found.floor)}`);
    return `${told}${fmt(found.loss)}` + (label === PAD ? `; ${where} is padding` :
      `; ${where}: ${words[label]} has probability ${fmt(p[label])}, slope ${fmt(slope[label])}`);
  });
}

export default { render };
