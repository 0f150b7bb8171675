// Beam tree (chapter 11).

const BOS = 1, EOS = 2;
const LIMIT = 5; // tokens, EOS included
const WIDEST = 4;
const LISTED = 5; // finished hypotheses that are listed
const NAMES = ["table", "beam", "alpha", "step"];

/** What a log-probability is divided by. */
export const penalty = (length, alpha) => ((5 + length) / 6) ** alpha;

/** Tokens that may follow, with their log-probabilities; PAD and BOS never do. */
const logs = (rows, last) => rows[last].map((p, token) => [token, Math.log(p)])
  .filter(([token, log]) => token > BOS && log > -Infinity);

function hypothesis(ids, total, length, alpha) {
  const finished = ids[ids.length - 1] === EOS;
  return { ids: finished ? ids.slice(0, -1) : ids, total, score: total / penalty(length, alpha), finished, length };
}

/**
 * Beam search on a table of probabilities (V, V), all of it: the candidates of each step with what
 * became of them, the hypotheses from best to worst, and why it ended. The rules are those of
 * transformer.decoding.beam_search.
 */
export function search({ rows, beam, alpha, limit = LIMIT, wanted = Math.min(2, beam) }) {
  const steps = [], best = (a, b) => b.score - a.score;
  let alive = [{ ids: [], total: 0, rank: 0 }], done = [], end = "", hope;
  while (!end) {
    const length = steps.length + 1;
    const candidates = alive.flatMap(({ ids, total, rank }) =>
      logs(rows, length > 1 ? ids[ids.length - 1] : BOS).map(([token, log]) =>
        ({ ids: [...ids, token], total: total + log, parent: rank })))
      .sort((a, b) => b.total - a.total).slice(0, 2 * beam); // at most `beam` of them end
    let going = 0;
    candidates.forEach((each, rank) => {
      const ended = each.ids[length - 1] === EOS;
      const kept = ended ? rank < beam : going++ < beam;
      each.state = kept ? (ended ? "finished" : "alive") : "pruned";
      each.rank = rank;
    });
    steps.push(candidates);
    alive = candidates.filter(({ state }) => state === "alive");
    done.push(...candidates.filter(({ state }) => state === "finished")
      .map(({ ids, total }) => hypothesis(ids, total, length, alpha)));
    done.sort(best);
    hope = alive.length ? alive[0].total / penalty(limit, alpha) : -Infinity;
    if (!alive.length) end = "nothing alive";
    else if (done.length >= wanted && !(hope > done[wanted - 1].score)) end = "nothing can win";
    else if (length === limit) {
      end = "limit";
      done = [...done, ...alive.map(({ ids, total }) => hypothesis(ids, total, limit, alpha)).sort(best)];
    }
  }
  return { steps, found: done, wanted, end, hope };
}

/** The likeliest token at each step. */
export function greedy({ rows, alpha, limit = LIMIT }) {
  const ids = [];
  let last = BOS, total = 0;
  while (last !== EOS && ids.length < limit) {
    const [token, log] = logs(rows, last).reduce((a, b) => (b[1] > a[1] ? b : a));
    ids.push(token);
    [last, total] = [token, total + log];
  }
  return { path: ids, ...hypothesis(ids, total, ids.length, alpha) };
}

// The tree: one column a step, in it the candidates by rank.
const W = 340, LEFT = 15, WIDE = 52, HIGH = 34, ROW = 41, TOP = 24, FURTHEST = 96;
const FATE = { alive: "goes on", finished: "finished", pruned: "pruned" };

/** The frame of a node; the states differ in shape. */
function box(state, x, y, wide, high, best) {
  const rect = (inset, rx, more) => s("rect", { x: x + inset, y: y + inset, width: wide - 2 * inset,
    height: high - 2 * inset, rx, fill: "var(--ground)", stroke: "var(--hue)", "stroke-width": 1.5, ...more });
  const round = high / 2;
  if (state === "finished") {
    const hue = { class: best ? "s1" : "s2", "stroke-width": best ? 2.5 : 1.5 };
    return [rect(0, round, hue), rect(3, round - 3, { ...hue, "stroke-width": 1 })];
  }
  if (state === "alive") return [rect(0, 6, { class: "s0", "stroke-width": 2 })];
  return [rect(0, 0, { stroke: "var(--quiet)", "stroke-dasharray": "5 3" })];
}

const dots = (d) => s("path", { d, fill: "none", stroke: "var(--ink)", "stroke-width": 3.5,
  "stroke-dasharray": "0.1 6", "stroke-linecap": "round" });

function render({ model, el }) {
  const tables = model.get("tables");
  const { root, start } = frame({ model, el }, {
    label: "Beam tree: beam search on a small table of probabilities, step by step, and greedy search",
    names: NAMES,
  });
  const svg = s("svg", { role: "img" });

  // --- steps ---
  const button = (name, act) => h("button", { type: "button", onclick: () => {
    const [shown, all] = reached();
    const step = Math.max(0, Math.min(all, act(shown, all)));
    if (step !== shown) put(model, { step: step < all ? step : LIMIT }); // the end stays the end
  } }, name);
  const buttons = [button("Back", (shown) => shown - 1), button("Forward", (shown) => shown + 1),
    button("To the end", (_, all) => all)];
  const stand = h("span", { class: "tw-stand" });
  const state = () => ({ rows: tables[model.get("table")].rows, beam: model.get("beam"), alpha: model.get("alpha") });
  const reached = () => {
    const all = search(state()).steps.length;
    return [Math.min(model.get("step"), all), all];
  };

  // --- what the step considered, and what is finished ---
  const line = (columns) => {
    const head = h("th", { scope: "row" }), cells = columns.map((name) => h("td", { class: `tw-${name}` }));
    return { row: h("tr", {}, head, ...cells), head, cells };
  };
  const headed = (names, widths, lines) => h("table", {},
    h("thead", {}, h("tr", {}, ...names.map((name, i) =>
      h("th", { scope: "col", style: `width: ${widths[i]}%` }, name)))),
    h("tbody", {}, ...lines.map(({ row }) => row)));
  const fill = ({ row, head, cells }, values) => {
    row.hidden = !values;
    [head, ...cells].forEach((cell, i) => { cell.textContent = values ? values[i] : ""; });
  };
  const candidates = Array.from({ length: 2 * WIDEST }, () => line(["total", "fate"]));
  const results = Array.from({ length: LISTED + 1 }, () => line(["logprob", "tokens", "score"]));
  const [stepHead, why, rest] = ["tw-head", "tw-why", "tw-note"].map((kind) => h("p", { class: kind }));

  // --- the table of probabilities ---
  const chances = Array.from({ length: Math.max(...tables.map(({ words }) => words.length)) }, () => line(["next"]));
  const legend = (state, name, best = false) => h("span", { class: "tw-keep" },
    s("svg", { viewBox: "0 0 28 18", "aria-hidden": "true",
      style: "display: inline-block; width: 28px; vertical-align: -4px; margin-right: 0.35rem" },
    ...(state ? box(state, 1, 1, 26, 16, best) : [dots("M3 9H27")])), name);
  root.append(
    h("div", { class: "tw-controls" },
      choice(model, "table", { label: "table", options: tables.map(({ name }, i) => [i, name]) }),
      slider(model, "beam", { label: "beam width", low: 1, high: WIDEST, step: 1, digits: 0 }),
      slider(model, "alpha", { label: "length penalty α", low: 0, high: 2, step: 0.1 })),
    h("div", { class: "tw-controls" }, ...buttons, stand),
    h("div", { class: "tw-columns" },
      h("div", {}, svg,
        h("p", { class: "tw-controls tw-legend" }, legend("alive", "goes on"), legend("finished", "finished"),
          legend("finished", "best so far", true), legend("pruned", "pruned"), legend("", "greedy search"))),
      h("div", {}, stepHead, headed(["prefix", "log p", "fate"], [46, 27, 27], candidates),
        why, h("p", { class: "tw-head" }, "Finished so far"),
        headed(["sentence", "log p", "n", "score"], [41, 25, 9, 25], results), rest)),
    h("details", {}, h("summary", {}, "The table of probabilities"),
      headed(["after", "comes"], [25, 75], chances)),
    h("p", { class: "tw-note" }, "Each column is a step and holds its candidates, the likeliest on top. " +
      "Numbers are log-probabilities of the whole prefix; the score divides them by ((5 + n) / 6)^α, where n tokens were written, EOS included."));

  return start(() => {
    const { words, rows } = tables[model.get("table")];
    const { beam, alpha } = state();
    const say = (ids) => ids.map((id) => words[id]).join(" ") || "(nothing)";
    const { steps, found, wanted, end, hope } = search({ rows, beam, alpha });
    const plain = greedy({ rows, alpha });
    const shown = Math.min(model.get("step"), steps.length), over = shown === steps.length;
    const done = over ? found : found.filter(({ finished, length }) => finished && length <= shown);
    const answer = done.length ? [...done[0].ids, ...(done[0].finished ? [EOS] : [])] : [];

    // --- the tree ---
    const same = (a, b) => a.length === b.length && a.every((id, i) => id === b[i]);
    const onGreedy = (ids) => same(ids, plain.path.slice(0, ids.length));
    const onBest = (ids) => same(ids, answer.slice(0, ids.length));
    const deepest = Math.max(...steps.map((each) => each.length));
    set(svg, { viewBox: `0 0 ${W} ${TOP + ROW * deepest - 4}` });
    const pitch = Math.min(FURTHEST, (W - LEFT - WIDE - 2) / (steps.length - 1));
    const left = (t) => LEFT + pitch * t, middle = (rank) => TOP + ROW * rank + HIGH / 2;
    const edges = [], marks = [], nodes = [];
    const text = (x, y, content, more) => s("text", { class: "quiet", x, y, "text-anchor": "middle", ...more }, content);
    for (let t = 0; t < steps.length; t++) nodes.push(text(left(t) + WIDE / 2, 12, t ? String(t + 1) : "step 1"));
    nodes.push(s("circle", { cx: 5, cy: middle(0), r: 4.5, fill: "var(--ink)" }));
    steps.slice(0, shown).forEach((column, t) => column.forEach(({ ids, total, state, parent }, rank) => {
      const x = left(t), y = TOP + ROW * rank;
      const [x0, y0, y1] = [t ? left(t - 1) + WIDE : 9, middle(parent), middle(rank)];
      const half = (x - x0) / 2;
      const d = `M${x0} ${y0}C${x0 + half} ${y0} ${x - half} ${y1} ${x} ${y1}`;
      const best = onBest(ids), along = onGreedy(ids);
      edges.push(s("path", { d, fill: "none", class: best ? "s1" : "",
        stroke: best ? "var(--hue)" : "var(--quiet)", "stroke-width": best ? 3.5 : 1,
        "stroke-dasharray": state === "pruned" ? "5 3" : "none" }));
      if (along) marks.push(dots(d));
      nodes.push(...box(state, x, y, WIDE, HIGH, best),
        text(x + WIDE / 2, y + 15, words[ids[t]], { style: "font-size: 12px",
          class: state === "pruned" ? "quiet" : "" }),
        text(x + WIDE / 2, y + 28, fmt(total, 2)));
    }));
    svg.replaceChildren(...edges, ...nodes.filter((node) => node.tagName === "rect"), ...marks,
      ...nodes.filter((node) => node.tagName !== "rect"));
    const list = (kind) => {
      const of = shown ? steps[shown - 1].filter(({ state }) => state === kind).map(({ ids }) => say(ids)) : [];
      return of.length ? `${FATE[kind]}: ${of.join("; ")}. ` : "";
    };
    svg.setAttribute("aria-label", `Search tree after step ${shown}. ` +
      list("alive") + list("finished") + list("pruned") + `Greedy: ${say(plain.path.slice(0, shown))}.`);

    // --- the words ---
    stand.textContent = `step ${shown} of ${steps.length}`;
    buttons[0].setAttribute("aria-disabled", shown === 0);
    for (const each of buttons.slice(1)) each.setAttribute("aria-disabled", over);
    stepHead.textContent = shown ? `Candidates of step ${shown}` : "Nothing is chosen yet";
    candidates.forEach((row, rank) => {
      const each = shown ? steps[shown - 1][rank] : undefined;
      fill(row, each && [say(each.ids), fmt(each.total), FATE[each.state]]);
    });
    const going = shown ? steps[shown - 1].filter((each) => each.state === "alive") : [];
    const second = wanted === 1 ? "the best finished score" : "the second best finished score";
    why.textContent = !over ? (shown ? `${going.length} of at most ${beam} prefixes go on.` : "")
      : end === "nothing alive" ? "The search ends: no prefix is alive."
      : end === "limit" ? `The search ends: ${LIMIT} tokens are the limit.`
      : `The search ends: what is alive can reach at most ${fmt(going[0].total)} / ` +
        `${fmt(penalty(LIMIT, alpha))} = ${fmt(hope)}, not above ${second}, ${fmt(found[wanted - 1].score)}.`;
    const listed = ({ ids, total, length, score, finished }, before) =>
      [`${before}${say(ids)}${finished ? "" : " (cut off)"}`, fmt(total), length, fmt(score)];
    results.slice(0, LISTED).forEach((row, i) => fill(row, done[i] && listed(done[i], `${i + 1}. `)));
    fill(results[LISTED], listed(plain, "greedy: "));
    rest.textContent = done.length > LISTED ? `And ${done.length - LISTED} more, with lower scores.` : "";
    chances.forEach((row, id) => {
      const known = id < words.length && (id === BOS || id > EOS + 1); // PAD, EOS and UNK: never asked
      fill(row, known && [words[id], logs(rows, id).sort((a, b) => b[1] - a[1])
        .map(([token, log]) => `${words[token]} ${fmt(Math.exp(log), 2)}`).join(", ")]);
    });
    const told = done.length ? `best ${say(done[0].ids)}, score ${fmt(done[0].score)}` : "nothing finished";
    return `Step ${shown} of ${steps.length}: ${told}; ` +
      `greedy ${say(plain.ids)}, score ${fmt(plain.score)}`;
  });
}

export default { render };
