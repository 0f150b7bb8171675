// The live translator (front page and chapter 15); the model itself is translator_model.js.

const LONGEST = 40, WIDEST = 8; // words of a sentence, prefixes of a beam
const PACE = 450; // milliseconds from one token to the next
const TRAITS = ["sentence", "beam", "reading", "layer", "head", "step", "asked", "translation"];
const chinese = { lang: "zh-Hans" };
const percent = (share) => (share >= 0.9995 ? "100" : fmt(100 * share, 1)) + " %";

// --- the model, fetched once, when first asked for ------------------------------------------------

let loading;

/** The trained model: from the site's own folder, or in Jupyter from the kernel. */
export function loadModel(widget) {
  const root = document.documentElement.dataset.content_root; // only pages of the site have one
  loading ??= (root === undefined ? fromKernel(widget) : fromSite(root)).catch((error) => {
    loading = undefined; // so that one may try again
    throw error;
  });
  return loading;
}

function fromSite(root) {
  return new Promise((done, fail) => {
    const tag = h("script", { src: `${root}translator/model.js`,
      onload: () => {
        const { config, vocabulary, weights } = window.bookTranslator;
        delete window.bookTranslator;
        const bytes = Uint8Array.from(atob(weights), (sign) => sign.charCodeAt(0));
        done(new Model(config, vocabulary, bytes.buffer));
      },
      onerror: () => fail(new Error("The model does not load: translator/model.js is missing.")) });
    document.head.append(tag);
  });
}

function fromKernel(widget) {
  return new Promise((done, fail) => {
    const late = setTimeout(() => fail(new Error("No answer from the kernel: run the cell.")), 15000);
    widget.on("msg:custom", ({ have }, buffers) => {
      if (have !== "model") return;
      clearTimeout(late);
      const text = new TextDecoder();
      const [config, vocabulary] = buffers.slice(0, 2).map((part) => JSON.parse(text.decode(part)));
      const { buffer, byteOffset, byteLength } = buffers[2];
      done(new Model(config, vocabulary, buffer.slice(byteOffset, byteOffset + byteLength)));
    });
    widget.send({ want: "model" });
  });
}

// --- the widget -----------------------------------------------------------------------------------

function render({ model, el }) {
  const kinds = Map.groupBy(model.get("words"), ([kind]) => kind);
  const meaning = new Map(model.get("words").map(([, word, gloss]) => [word, gloss]));
  const { root, start } = frame({ model, el }, {
    label: "Live translator: the book's trained model translates a Chinese sentence in this page",
    names: TRAITS,
  });
  const gloss = (word) => meaning.get(word) ?? "";
  const glossed = (word) => h("span", { class: "tt-word" },
    h("span", chinese, word), h("small", {}, gloss(word)));

  // --- the sentence ---
  const hint = h("p", { class: "tw-hint", role: "alert", id: fresh("hint") });
  const read = h("p", { class: "tt-read", "aria-hidden": "true" });
  const field = h("input", { type: "text", class: "tt-field", ...chinese, autocomplete: "off",
    spellcheck: "false", "aria-label": "Chinese sentence", "aria-describedby": hint.id,
    oninput: () => look() });
  const form = h("form", { class: "tt-ask", onsubmit: (event) => {
    event.preventDefault();
    translate(field.value);
  } }, field, h("button", { class: "tt-go" }, "Translate"));

  /** Show what each word means, or which are unknown; the words, or null. */
  function look(complain = false) {
    const { words, unknown } = segment(field.value, meaning);
    read.replaceChildren(...words.map(glossed));
    const many = words.length > LONGEST;
    let fault = "";
    if (unknown.length) {
      fault = `${unknown.map((word) => `“${word}”`).join(", ")}: not among the ${meaning.size} ` +
        "words that this model was taught.";
    } else if (many) fault = `${words.length} words: at most ${LONGEST} fit here.`;
    else if (!words.length) fault = "Type a sentence, or choose one.";
    if (complain || hint.textContent) hint.textContent = fault;
    field.setAttribute("aria-invalid", hint.textContent !== "");
    return fault ? null : words;
  }

  function translate(text) {
    field.value = text;
    const words = look(true);
    if (!words) return field.focus();
    put(model, { sentence: words.join(" "), step: -1, asked: true });
  }

  const sentences = model.get("sentences");
  let drawn = 2; // the last of the running ones
  const chips = h("div", { class: "tt-chips", role: "group", "aria-label": "Sentences to choose" },
    ...sentences.slice(0, 3).map((text) => h("button", { type: "button", class: "tt-chip",
      ...chinese, onclick: () => translate(text) }, text)),
    h("button", { type: "button", class: "tt-chip", "aria-label": "another sentence",
      onclick: () => {
        drawn = drawn + 1 < sentences.length ? drawn + 1 : 0;
        translate(sentences[drawn]);
      } }, "another"));
  const lists = h("div", { class: "tt-lists" });
  const vocabulary = h("details", { class: "tt-vocabulary", ontoggle: () => {
    if (lists.childElementCount) return;
    for (const [kind, words] of kinds) {
      lists.append(h("div", { role: "group", "aria-label": kind }, h("h4", {}, kind),
        ...words.map(([, word]) => h("button", { type: "button", class: "tt-pick",
          "aria-label": `${word} ${gloss(word)}`,
          onclick: () => {
            field.value = `${field.value.trim()} ${word}`.trim();
            look();
          } }, glossed(word)))));
    }
  } }, h("summary", {}, `Build a sentence from the ${meaning.size} words it knows`), lists);
  root.append(form, read, hint, chips, vocabulary);

  // --- the translation ---
  const waiting = h("p", { class: "tw-note tt-waiting" });
  const group = fresh("step");
  const output = h("div", { class: "tt-output", role: "radiogroup", lang: "en",
    "aria-label": "Translation; each word can be looked at" });
  const likely = h("table", { class: "tt-likely" });
  const after = h("p", { class: "tt-head" });
  const searches = h("div", { class: "tw-controls tt-search" },
    choice(model, "beam", { label: "search", options: [...Array(WIDEST).keys()].map((i) =>
      [i + 1, i ? `beam of ${i + 1}` : "greedy"]) }));
  const finished = h("p", { class: "tw-note", hidden: true }, "Finished in the beam, by score:");
  const found = h("ol", { class: "tt-found" });
  const grid = h("table", { class: "tt-grid", role: "grid" });
  const said = h("p", { class: "tw-note tt-said" });
  const reads = h("div", { class: "tw-controls" });
  const body = h("div", { class: "tt-result" }, h("div", { class: "tt-line" }, output, searches),
    h("div", { class: "tt-parts" },
      h("section", { "aria-label": "The five likeliest next words" }, after, likely, finished, found),
      h("section", { "aria-label": "Attention" }, reads, h("div", { class: "tt-scroll" }, grid), said)));
  root.append(waiting, body);

  let translator, shown = 0, timer, result, made = "", drawnGrid = "";
  const name = (id) => (id === EOS ? "end" : translator.vocabulary[id]);
  const word = (t) => name(result.steps[t].id);
  const chosen = () => {
    const step = model.get("step"), last = result.steps.length - 1;
    return shown <= last ? shown - 1 : step < 0 ? result.boldest : Math.min(step, last);
  };

  /** Translate, once for each sentence and search. */
  function compute() {
    const words = model.get("sentence").split(/\s+/), beam = model.get("beam");
    const key = `${beam} ${words.join(" ")}`;
    if (key === made) return;
    made = key;
    result = { words, ...translator.translate(words.map((each) => translator.ids.get(each)), beam) };
    const sure = result.steps.map(({ id, logits }) => translator.logProbs(logits)[id]);
    const unsure = sure.slice(0, result.finished ? -1 : undefined);
    result.boldest = unsure.indexOf(Math.min(...unsure)); // the word taken with the least probability
    if (result.boldest < 0) result.boldest = 0; // not one word before the end
    el.result = result; // for those who look with the browser's tools
    output.replaceChildren(...result.steps.map((_, t) => h("label", {
      class: /^\W$/.test(word(t)) ? "tt-token tt-mark" : "tt-token" },
      h("input", { type: "radio", name: group, onchange: () => put(model, { step: t }) }),
      h("span", {}, word(t)))));
    finished.hidden = beam === 1;
    found.replaceChildren(...(beam === 1 ? [] : result.found.slice(0, 5).map(({ text, score }) =>
      h("li", {}, h("span", {}, text), h("span", { class: "tt-number" }, fmt(score, 2))))));
    clearInterval(timer);
    shown = matchMedia("(prefers-reduced-motion: reduce)").matches ? result.steps.length : 1;
    const next = () => {
      if (shown >= result.steps.length) {
        clearInterval(timer);
        put(model, { translation: result.text });
      } else {
        shown++;
        draw();
      }
    };
    timer = setInterval(next, PACE);
    if (shown === result.steps.length) next();
  }

  /** The weights chosen: rows that read, columns that are read; 0 weights where none may be. */
  function weights() {
    const [reading, layer, head] = ["reading", "layer", "head"].map((trait) => model.get(trait));
    const rows = reading === "encoder"
      ? result.words.map((_, i) => result.encoder[layer].map((each) => each[i]))
      : result.steps.map((step) => (reading === "cross" ? step.cross : step.self)[layer]);
    const mean = (heads) => heads[0].map((_, j) =>
      heads.reduce((sum, each) => sum + each[j], 0) / heads.length);
    const tokens = result.steps.map((_, t) => word(t));
    const [by, of] = { cross: [tokens, result.words], encoder: [result.words, result.words],
      decoder: [tokens, ["start", ...tokens.slice(0, -1)]] }[reading];
    return { by, of, shares: rows.map((heads) => (head < 0 ? mean(heads) : heads[head])), reading };
  }

  const label = (text) => (meaning.has(text)
    ? h("span", { class: "tt-word" }, h("span", chinese, text), h("small", {}, gloss(text)))
    : h("span", { lang: "en" }, text));

  /** Build the table for these words; afterwards only its cells change. */
  function build({ by, of, reading }) {
    const key = `${made} ${reading}`;
    if (key === drawnGrid) return;
    drawnGrid = key;
    grid.style.setProperty("--columns", of.length);
    set(grid, { "aria-label": { cross: "Cross-attention: each row is a word being written, each " +
      "column a Chinese word that it reads", encoder: "Encoder self-attention: each row is a " +
      "Chinese word, each column a word that it reads", decoder: "Decoder self-attention: each " +
      "row is a word being written, each column a word written before" }[reading] });
    grid.replaceChildren(
      h("thead", {}, h("tr", {}, h("td", { class: "tt-corner" },
        reading === "encoder" ? "reads" : "writes"),
      ...of.map((text) => h("th", { scope: "col" }, label(text))))),
      h("tbody", {}, ...by.map((text, t) => h("tr", {}, h("th", { scope: "row" }, label(text)),
        ...of.map((_, j) => h("td", { tabindex: t + j ? -1 : 0, role: "gridcell",
          onfocus: (event) => point(event.target), onpointerenter: (event) => tell(event.target) }))))));
    fit();
  }

  const tell = (cell) => { said.textContent = cell.getAttribute("aria-label"); };
  function point(cell) {
    for (const old of grid.querySelectorAll("td[tabindex='0']")) old.tabIndex = -1;
    cell.tabIndex = 0;
    tell(cell);
  }
  grid.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
      ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const row = event.target.parentElement, rows = row.parentElement.children;
    if (!(down || right)) return;
    event.preventDefault();
    const to = rows[row.rowIndex - 1 + down]?.cells[event.target.cellIndex + right];
    if (to?.tagName === "TD") to.focus();
  });

  /** Numbers in the cells where they have room, words beside or above each other. */
  function fit() {
    const cell = grid.tBodies[0]?.rows[0]?.cells[1];
    if (!cell) return;
    const { width } = cell.getBoundingClientRect();
    grid.classList.toggle("tt-tight", width < 30);
    grid.classList.toggle("tt-narrow", width < 58);
  }
  new ResizeObserver(fit).observe(grid);

  function draw() {
    const at = chosen();
    [...output.children].forEach((token, t) => {
      token.classList.toggle("tt-later", t >= shown);
      token.firstChild.checked = t === at;
      token.firstChild.disabled = t >= shown;
    });

    const past = result.steps.slice(Math.max(0, at - 4), at).map(({ id }) => id);
    const written = (at > 4 ? "… " : "") + translator.decode(past);
    after.replaceChildren(...(at ? ["What comes after ", h("i", { lang: "en" }, written), "?"]
      : ["What comes first?"]));
    const best = translator.best(result.steps[at].logits);
    while (likely.rows.length < best.length) {
      likely.append(h("tr", {}, h("th", { scope: "row", lang: "en" }), h("td", {},
        h("span", { class: "tt-bar glide" })), h("td", { class: "tt-number" })));
    }
    best.forEach(({ id, p }, i) => {
      const [head, bar, number] = likely.rows[i].cells;
      head.textContent = name(id);
      bar.firstChild.style.width = `${100 * p}%`;
      number.textContent = percent(p);
      likely.rows[i].classList.toggle("tt-taken", id === result.steps[at].id);
    });

    const { by, of, shares, reading } = weights();
    build({ by, of, reading });
    [...grid.tBodies[0].rows].forEach((row, t) => {
      row.classList.toggle("tt-later", reading !== "encoder" && t >= shown);
      row.classList.toggle("tt-now", reading !== "encoder" && t === at);
      [...row.cells].slice(1).forEach((cell, j) => {
        const share = shares[t][j], hidden = share === undefined;
        cell.classList.toggle("tt-hidden", hidden);
        cell.style.setProperty("--share", hidden ? 0 : share);
        cell.dataset.level = share > 0.925 ? "high" : share > 0.55 ? "middle" : "low";
        cell.textContent = hidden ? "" : fmt(100 * share, 0);
        const verb = reading === "encoder" ? "" : "writing ";
        const means = gloss(of[j]) ? ` (${gloss(of[j])})` : "";
        set(cell, { "aria-label": hidden ? `${verb}${by[t]} may not read ${of[j]}: not written yet`
          : `${verb}${by[t]} reads ${of[j]}${means}: ${percent(share)}` });
      });
    });
    const focus = grid.querySelector("td[tabindex='0']");
    if (focus === document.activeElement) tell(focus);
    else said.textContent = "Each row adds up to 100 %. Point at a cell, or move by arrow keys.";
    return best;
  }

  let ready = false;
  const update = () => {
    const sentence = model.get("sentence"), asked = model.get("asked");
    if (document.activeElement !== field || !asked) {
      field.value = sentence;
      look();
    }
    [...chips.children].forEach((chip) => set(chip, { "aria-pressed": chip.textContent === sentence }));
    body.hidden = !asked || !translator;
    waiting.hidden = !asked || !!translator;
    if (!asked) {
      clearInterval(timer);
      made = "";
      return `${sentence}: press Translate`;
    }
    if (!translator) {
      waiting.textContent = "Loading the model …";
      loadModel(model).then((loaded) => {
        translator = loaded;
        if (!ready) controls();
        ready = true;
        put(model, { translation: "" });
        if (model.get("asked")) update();
      }, (error) => {
        waiting.textContent = "";
        hint.textContent = error.message;
      });
      return `${sentence}: loading the model`;
    }
    compute();
    const best = draw();
    if (shown < result.steps.length) return `${sentence}: translating`;
    return `${sentence}: ${result.text}. ${written()} ` +
      best.slice(0, 2).map(({ id, p }) => `${name(id)} ${percent(p)}`).join(", ");
  };
  const written = () => `Word ${chosen() + 1}:`;

  function controls() {
    const { layers, heads } = translator.config;
    const place = (i) => (layers === 1 ? "" : i === 0 ? " (first)" : i === layers - 1 ? " (last)" : "");
    reads.append(
      choice(model, "reading", { label: "attention", options: [["cross", "English reads Chinese"],
        ["encoder", "Chinese reads Chinese"], ["decoder", "English reads English"]] }),
      choice(model, "layer", { label: "layer",
        options: [...Array(layers).keys()].map((i) => [i, `${i}${place(i)}`]) }),
      choice(model, "head", { label: "head",
        options: [[-1, `mean of ${heads}`], ...[...Array(heads).keys()].map((i) => [i, `${i}`])] }));
  }
  return start(update);
}

export default { render };
