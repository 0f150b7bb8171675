// Mask explorer (chapters 9 and 12).

const WORDS = 10, PADS = 3, SIDE = WORDS + PADS, DEEPEST = 6;
const PAD = "<pad>";
const NAMES = ["cross", "target", "target_pads", "source", "source_pads", "left", "causal",
  "padding", "windowed", "window", "layers", "cell"];

/** The tokens of a sentence: words, "" where none is given, and padding on one side. */
function tokens(given, words, pads, left) {
  const real = Array.from({ length: words }, (_, k) => given[k] ?? "");
  const filling = Array(pads).fill(PAD);
  return left ? [...filling, ...real] : [...real, ...filling];
}

/** Places in short: 0 to 3, 7, 8. */
function runs(reached) {
  const found = [];
  reached.forEach((there, i) => {
    if (!there) return;
    if (i && reached[i - 1]) found[found.length - 1][1] = i;
    else found.push([i, i]);
  });
  return found.map(([a, b]) => (a === b ? `${a}` : b - a === 1 ? `${a}, ${b}` : `${a} to ${b}`)).join(", ");
}

const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/**
 * The masks in use, what they allow together (T × S), the picked cell in words, and what its
 * query's output can depend on, from the top layer to the inputs (self-attention only).
 */
export function explore(state) {
  const { cross, left, causal, padding, windowed, window, layers, cell } = state;
  const rows = tokens(state.target_words, state.target, state.target_pads, left);
  const columns = cross ? tokens(state.source_words, state.source, state.source_pads, left) : rows;
  const i = Math.min(cell[0], rows.length - 1);
  const j = Math.min(cell[1], columns.length - 1);
  const rules = {}; // the masks in use
  if (causal && !cross) rules.causal = (q, k) => k <= q;
  if (padding) rules.padding = (q, k) => columns[k] !== PAD;
  if (windowed && !cross) rules.window = (q, k) => Math.abs(q - k) < window;
  const mask = rows.map((_, q) => columns.map((_, k) =>
    Object.values(rules).every((allows) => allows(q, k))));

  const away = `it is ${many(Math.abs(i - j), "place")} away`;
  const words = {
    causal: ["it stands later", "it does not stand later"],
    padding: ["it is padding", "it is not padding"],
    window: [`${away}, and the window reaches ${window - 1}`, `${away}, the window reaches ${window - 1}`],
  };
  const unused = { causal: cross ? "the source is known to its end" : "off", padding: "off",
    window: cross ? "two sequences, no neighbours" : "off" };
  const why = Object.keys(words).map((name) => {
    const may = rules[name] ? rules[name](i, j) : null;
    return { name, may, because: may === null ? unused[name] : words[name][Number(may)] };
  });
  const called = (what, n, token) => `${what} ${n}${token && ` (${token})`}`;
  const [query, key] = [called("Query", i, rows[i]), called("key", j, columns[j])];
  const against = why.filter(({ may }) => may === false).map(({ because }) => because);
  let verdict = against.length ? `${query} may not read ${key}: ${against.join("; ")}.`
    : `${query} may read ${key}.`;
  if (!mask[i].some(Boolean)) verdict += " This query may read nothing: attention gives it zeros.";

  const field = [rows.map((_, q) => q === i)];
  let hearing;
  if (cross) {
    const heard = mask[i].filter(Boolean).length;
    hearing = `Every layer reads the encoder's output: after one, output ${i} can depend on ` +
      `${heard} of ${columns.length} source positions.`;
  } else {
    for (let layer = 0; layer < layers; layer++) {
      const above = field[layer]; // a residual connection brings every position its own input
      field.push(rows.map((_, k) => above.some((there, q) => there && (q === k || mask[q][k]))));
    }
    const inputs = field[layers];
    hearing = `After ${many(layers, "layer")}, output ${i} can depend on ` +
      `${inputs.filter(Boolean).length} of ${inputs.length} inputs: ${runs(inputs)}.`;
  }
  return { rows, columns, i, j, mask, why, verdict, field, hearing };
}

const WIDTH = 330, LEFT = 62, STEP = 36, RADIUS = 7; // the picture of the layers

function render({ model, el }) {
  const { root, start } = frame({ model, el }, {
    label: "Mask explorer: which query may read which key, why, and what an output can depend on",
    names: NAMES,
  });
  const pick = (i, j) => put(model, { cell: [i, j] });
  let now; // what explore found last

  // --- controls ---
  const count = (name, label, low, high) =>
    slider(model, name, { label, low, high, step: 1, digits: 0 });
  const forSelf = [toggle(model, "causal", "causal mask"), toggle(model, "windowed", "window"),
    count("window", "w", 1, SIDE)];
  const forCross = [count("source", "source words", 1, WORDS),
    count("source_pads", "source padding", 0, PADS)];

  // --- the grid: one stop for the Tab key, arrow keys from there ---
  const heads = Array.from({ length: SIDE }, () => h("span", { class: "tw-upright" }));
  const headCells = heads.map((head, k) => h("th", { scope: "col" }, head, h("br"), String(k)));
  const sides = heads.map(() => h("th", { scope: "row" }));
  const cells = heads.map((_, i) => heads.map((_, j) =>
    h("button", { type: "button", class: "tw-cell", tabindex: -1, onclick: () => pick(i, j) })));
  const fields = cells.map((line) => line.map((cell) => h("td", {}, cell)));
  const lines = fields.map((line, i) => h("tr", {}, sides[i], ...line));
  const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const grid = h("table", { class: "tw-grid", role: "grid",
    "aria-label": "The mask: a row asks, a column is read",
    onkeydown: (event) => {
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      const [i, j] = [now.i + move[0], now.j + move[1]];
      if (!now.mask[i] || now.mask[i][j] === undefined) return;
      pick(i, j);
      cells[i][j].focus();
    } },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "asks ↓", h("br"), "is read →"), ...headCells)),
    h("tbody", {}, ...lines));

  // --- the picked cell in words ---
  const verdict = h("p", { class: "tw-verdict" });
  const reasons = ["causal", "padding", "window"].map((name) => {
    const [may, because] = [h("td"), h("td")];
    return { may, because, row: h("tr", {}, h("th", { scope: "row" }, name), may, because) };
  });

  // --- the layers ---
  const svg = s("svg", { role: "img" });
  const reads = svg.appendChild(s("path", { class: "stroke s0", style: "stroke-width: 1.2" }));
  const keeps = svg.appendChild(s("path", { class: "stroke dashed s0", style: "stroke-width: 1.2" }));
  const levels = Array.from({ length: DEEPEST + 1 }, () => ({
    name: svg.appendChild(s("text", { class: "quiet", x: 0 })),
    dots: heads.map(() => svg.appendChild(s("circle", { "stroke-width": 1.5 }))),
  }));
  const places = heads.map((_, k) =>
    svg.appendChild(s("text", { class: "quiet", "text-anchor": "middle" }, String(k))));
  const hearing = h("p", { class: "tw-hearing" });
  const depth = count("layers", "layers", 1, DEEPEST);

  root.append(h("div", { class: "tw-masks" },
    h("div", { class: "tw-controls" },
      choice(model, "cross", { label: "attention",
        options: [[false, "self-attention"], [true, "cross-attention"]] }),
      count("target", "target words", 1, WORDS), count("target_pads", "target padding", 0, PADS),
      ...forCross, toggle(model, "left", "padding on the left")),
    h("div", { class: "tw-controls" }, toggle(model, "padding", "padding mask"), ...forSelf),
    h("div", { class: "tw-columns" },
      h("div", {}, grid, h("p", { class: "tw-note" },
        "Filled: may be read. Hatched: hidden. Pick a cell, or move with the arrow keys.")),
      h("div", {}, verdict,
        h("table", { class: "tw-why" },
          h("thead", {}, h("tr", {}, ...["mask", "may", "because"].map((head) =>
            h("th", { scope: "col" }, head)))),
          h("tbody", {}, ...reasons.map(({ row }) => row))),
        h("div", { class: "tw-controls", style: "margin: 0.75rem 0 0" }, depth),
        svg, hearing))));

  return start(() => {
    const state = Object.fromEntries([...NAMES, "target_words", "source_words"]
      .map((name) => [name, model.get(name)]));
    now = explore(state);
    const { rows, columns, i, j, mask, field } = now;
    for (const part of forSelf) part.hidden = state.cross;
    for (const part of forCross) part.hidden = !state.cross;

    grid.style.maxWidth = `${4.9 + 2.3 * columns.length}rem`;
    const title = (tokens, n) => `${n} ${tokens[n]}`.trim();
    lines.forEach((line, q) => {
      line.hidden = q >= rows.length;
      if (line.hidden) return;
      sides[q].textContent = title(rows, q);
      fields[q].forEach((part, k) => {
        part.hidden = k >= columns.length;
        if (part.hidden) return;
        const cell = cells[q][k];
        const here = q === i && k === j;
        cell.classList.toggle("tw-open", mask[q][k]);
        set(cell, { "aria-current": here, tabindex: here ? 0 : -1, "aria-label":
          `query ${title(rows, q)}, key ${title(columns, k)}: ${mask[q][k] ? "may be read" : "hidden"}` });
      });
    });
    headCells.forEach((part, k) => {
      part.hidden = k >= columns.length;
      heads[k].textContent = columns[k] ?? "";
      heads[k].classList.toggle("tw-stacked", /\p{Script=Han}/u.test(heads[k].textContent));
    });

    verdict.textContent = now.verdict;
    now.why.forEach(({ may, because }, n) => {
      reasons[n].may.textContent = may === null ? "–" : may ? "yes" : "no";
      reasons[n].because.textContent = because;
    });

    for (const part of [depth, svg]) part.toggleAttribute("hidden", state.cross);
    hearing.textContent = now.hearing;
    if (!state.cross) draw(field, mask);
    return now.verdict;
  });

  /** The layers from the picked output, at the top, to the inputs; what it hears is filled. */
  function draw(field, mask) {
    const bottom = STEP * (field.length - 1) + 14;
    const x = (k) => LEFT + (k + 0.5) * Math.min(40, (WIDTH - LEFT) / mask.length);
    const y = (level) => 14 + STEP * level;
    set(svg, { viewBox: `0 0 ${WIDTH} ${bottom + 26}`, "aria-label": now.hearing });
    const drawn = { reads: "", keeps: "" };
    field.slice(0, -1).forEach((above, level) => above.forEach((there, q) => {
      if (there) mask[q].forEach((may, k) => {
        if (may || q === k) drawn[may ? "reads" : "keeps"] +=
          `M${x(q)} ${y(level)}L${x(k)} ${y(level + 1)}`;
      });
    }));
    set(reads, { d: drawn.reads });
    set(keeps, { d: drawn.keeps });
    levels.forEach(({ name, dots }, level) => {
      const layer = field.length - 1 - level;
      name.textContent = layer < 0 ? "" : layer ? `layer ${layer}` : "input";
      set(name, { y: y(level) + 4 });
      dots.forEach((dot, k) => {
        const there = level < field.length && k < mask.length;
        dot.toggleAttribute("hidden", !there);
        if (!there) return;
        set(dot, { cx: x(k), cy: y(level), r: RADIUS, stroke: field[level][k] ? "var(--c0)" : "var(--quiet)",
          fill: field[level][k] ? "var(--c0)" : "var(--ground)" });
      });
    });
    places.forEach((text, k) => {
      text.toggleAttribute("hidden", k >= mask.length);
      set(text, { x: x(k), y: bottom + 24 });
    });
  }
}

export default { render };
