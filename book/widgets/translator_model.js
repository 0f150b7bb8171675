// The encoder–decoder of the book and its two searches, for one sentence, without a library.
// What stands in transformer/*.py stands here again, row by row over Float32Array, and
// tests/test_translator.py holds the two together: same tokens, same logits, same weights.

const PAD = 0, BOS = 1, EOS = 2;
// The rows of these matrices, one below the other, are: queries, keys, values (chapter 5).
const PROJECTIONS = ["w_q", "w_kv"];

// --- reading the file -----------------------------------------------------------------------------

const HALVES = new Float32Array(65536); // every float16 there is
for (let bits = 0; bits < 65536; bits++) {
  const exponent = (bits >> 10) & 31, fraction = (bits & 1023) / 1024;
  const size = exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14;
  HALVES[bits] = exponent === 31 ? NaN : bits & 32768 ? -size : size;
}

/** Tensors by name from the bytes of a safetensors file: {shape, values}. */
function readTensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  delete header.__metadata__;
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [start, end] }] of Object.entries(header)) {
    if (dtype !== "F16") throw new Error(`${name} is ${dtype}, need F16`);
    const raw = new DataView(buffer, 8 + length + start, end - start);
    const values = new Float32Array((end - start) / 2);
    for (let i = 0; i < values.length; i++) values[i] = HALVES[raw.getUint16(2 * i, true)];
    tensors[name] = { shape, values };
  }
  return tensors;
}

// --- the parts ------------------------------------------------------------------------------------

/** x → Wx + b for the rows of W from `start`, `size` of them. */
function linear(weight, bias, start, size) {
  const width = weight.shape[1], w = weight.values;
  return (x) => {
    const y = new Float32Array(size);
    for (let i = 0, at = start * width; i < size; i++) {
      let sum = bias ? bias.values[start + i] : 0;
      for (let j = 0; j < width; j++) sum += w[at++] * x[j];
      y[i] = sum;
    }
    return y;
  };
}

function softmax(scores) {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = scores.map((score) => Math.exp(score - top));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / sum);
}

function logSoftmax(logits) {
  const top = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const sum = logits.reduce((total, logit) => total + Math.exp(logit - top), 0);
  return logits.map((logit) => logit - top - Math.log(sum));
}

/** Where the `count` largest values stand, the largest first. */
function largest(values, count) {
  const kept = [];
  values.forEach((value, i) => {
    if (kept.length === count && !(value > values[kept.at(-1)])) return;
    let at = kept.length;
    while (at && value > values[kept[at - 1]]) at--;
    kept.splice(at, 0, i);
    kept.length = Math.min(kept.length, count);
  });
  return kept;
}

/** LN(x + y) of chapter 6, Post-LN; the variance divides by d. */
function addAndNorm({ weight, bias }) {
  return (x, y) => {
    const sum = x.map((value, i) => value + y[i]);
    const mean = sum.reduce((a, b) => a + b, 0) / sum.length;
    const variance = sum.reduce((a, b) => a + (b - mean) ** 2, 0) / sum.length;
    const scale = 1 / Math.sqrt(variance + 1e-5);
    return sum.map((value, i) => (value - mean) * scale * weight.values[i] + bias.values[i]);
  };
}

/** A trained translator: config.json and vocabulary.json, parsed, and the bytes of the weights. */
export class Model {
  constructor(config, { kind, tokenizer }, buffer) {
    if (config.norm_first || !config.tied || kind !== "word") {
      throw new Error("this page runs Post-LN models of words with one tied table");
    }
    this.config = config;
    this.ids = new Map(Object.entries(tokenizer.model.vocab));
    this.vocabulary = [];
    for (const [token, id] of this.ids) this.vocabulary[id] = token;
    this.tensors = readTensors(buffer);
    const width = config.d_model, layers = [...Array(config.layers).keys()];
    this.dk = config.d_k ?? width / config.heads;
    this.dv = config.d_v ?? width / config.heads;
    this.table = this.tensors["source_embedding.weight"];
    this.output = linear(this.table, null, 0, config.vocab_size);
    this.encoder = layers.map((i) => this.layer(`encoder.layers.${i}`, ["self_attention"]));
    this.decoder = layers.map((i) =>
      this.layer(`decoder.layers.${i}`, ["self_attention", "cross_attention"]));
  }

  parameters(name) {
    return { weight: this.tensors[`${name}.weight`], bias: this.tensors[`${name}.bias`] };
  }

  layer(name, attentions) {
    const parts = {};
    for (const attention of attentions) parts[attention] = this.attention(`${name}.${attention}`);
    const [inner, outer] = [1, 2].map((i) => {
      const { weight, bias } = this.parameters(`${name}.feed_forward.w_${i}`);
      return linear(weight, bias, 0, weight.shape[0]);
    });
    parts.feedForward = (x) => outer(inner(x).map((value) => Math.max(value, 0)));
    parts.residuals = [...attentions, "feed_forward"].map((_, i) =>
      addAndNorm(this.parameters(`${name}.residuals.${i}.norm`)));
    return parts;
  }

  /** The three projections of one attention, and its way out. */
  attention(name) {
    const { heads } = this.config, sizes = [heads * this.dk, heads * this.dk, heads * this.dv];
    const blocks = PROJECTIONS.map((part) => this.parameters(`${name}.${part}`));
    const [q, k, v] = sizes.map((size, i) => {
      let start = sizes.slice(0, i).reduce((a, b) => a + b, 0);
      for (const { weight, bias } of blocks) {
        if (start < weight.shape[0]) return linear(weight, bias, start, size);
        start -= weight.shape[0];
      }
    });
    const { weight, bias } = this.parameters(`${name}.w_o`);
    return { q, k, v, o: linear(weight, bias, 0, weight.shape[0]) };
  }

  /** Let the vector x read keys and values; returns the vector and each head's weights. */
  attend(attention, x, keys, values) {
    const { heads } = this.config, { dk, dv } = this;
    const q = attention.q(x), joined = new Float32Array(heads * dv), weights = [];
    for (let head = 0; head < heads; head++) {
      const scores = new Float32Array(keys.length);
      keys.forEach((key, j) => {
        let dot = 0;
        for (let c = head * dk; c < (head + 1) * dk; c++) dot += q[c] * key[c];
        scores[j] = dot / Math.sqrt(dk);
      });
      const shares = softmax(scores);
      values.forEach((value, j) => {
        for (let c = head * dv; c < (head + 1) * dv; c++) joined[c] += shares[j] * value[c];
      });
      weights.push(shares);
    }
    return [attention.o(joined), weights];
  }

  /** √d · E[id] + PE[position], chapters 2 and 3. */
  embed(id, position) {
    const width = this.config.d_model, scale = Math.sqrt(width);
    return Float32Array.from({ length: width }, (_, i) => {
      const angle = position / 10000 ** ((i - (i % 2)) / width);
      return this.table.values[id * width + i] * scale + (i % 2 ? Math.cos : Math.sin)(angle);
    });
  }

  /** The source, read: memory, a vector a word; weights by layer, head, reader, word read. */
  encode(source) {
    const weights = [];
    let rows = source.map((id, position) => this.embed(id, position));
    for (const layer of this.encoder) {
      const { k, v } = layer.self_attention, keys = rows.map(k), values = rows.map(v);
      const read = rows.map((x) => this.attend(layer.self_attention, x, keys, values));
      weights.push(this.byHead(read.map(([, shares]) => shares)));
      rows = rows.map((x, i) => layer.residuals[0](x, read[i][0]));
      rows = rows.map((x) => layer.residuals[1](x, layer.feedForward(x)));
    }
    return { memory: rows, weights };
  }

  /** From one list of heads a row to one list of rows a head. */
  byHead(rows) {
    return [...Array(this.config.heads).keys()].map((head) => rows.map((row) => row[head]));
  }

  /** What a translation starts from: the source's keys and values, and no past. */
  start(source) {
    const { memory, weights } = this.encode(source);
    const cross = this.decoder.map(({ cross_attention: { k, v } }) =>
      ({ keys: memory.map(k), values: memory.map(v) }));
    const past = this.decoder.map(() => ({ keys: [], values: [] }));
    return { cross, past, length: 0, weights };
  }

  /** Feed one token to a prefix; the state given stays as it was, so that prefixes may fork. */
  step(state, token) {
    const past = [], self = [], cross = [];
    let x = this.embed(token, state.length);
    this.decoder.forEach((layer, i) => {
      const { k, v } = layer.self_attention;
      const keys = [...state.past[i].keys, k(x)], values = [...state.past[i].values, v(x)];
      past.push({ keys, values });
      let [read, shares] = this.attend(layer.self_attention, x, keys, values);
      self.push(shares);
      x = layer.residuals[0](x, read);
      [read, shares] = this.attend(
        layer.cross_attention, x, state.cross[i].keys, state.cross[i].values);
      cross.push(shares);
      x = layer.residuals[1](x, read);
      x = layer.residuals[2](x, layer.feedForward(x));
    });
    return { state: { ...state, past, length: state.length + 1 }, logits: this.output(x), self, cross };
  }

  /** Log-probabilities of what follows; PAD and BOS never do. */
  logProbs(logits) {
    const logs = logSoftmax(logits);
    logs[PAD] = logs[BOS] = -Infinity;
    return logs;
  }

  /** The `count` likeliest next tokens: [{id, token, p}], best first. */
  best(logits, count = 5) {
    const logs = this.logProbs(logits);
    return largest(logs, count).map((id) => ({ id, token: this.vocabulary[id], p: Math.exp(logs[id]) }));
  }

  /** The text of ids, as `Tokenizer.decode` of chapter 1 joins words. */
  decode(ids) {
    return ids.map((id) => this.vocabulary[id]).join(" ").replace(/ (?=[,.;:!?])/g, "");
  }

  /** Translate ids by greedy search (beam 1) or beam search: the rules of chapter 11.
   *
   * Returns {ids, text, steps, encoder, logProb, score, finished, found}. A step is what was
   * known when one token was chosen: {id, logits, self, cross}, weights by layer and head.
   */
  translate(source, beam = 1, alpha = 0.6) {
    const limit = Math.min(source.length + 50, this.config.max_len);
    const start = this.start(source);
    const found = beam === 1 ? this.greedy(start, limit) : this.search(start, limit, beam, alpha);
    const { prefix, ...best } = found[0];
    return {
      ...best, text: this.decode(best.ids), steps: prefix.steps, encoder: start.weights,
      found: found.map(({ ids, score, finished }) => ({ text: this.decode(ids), score, finished })),
    };
  }

  greedy(start, limit) {
    let prefix = { state: start, ids: [], steps: [], total: 0 }, token = BOS;
    while (prefix.ids.length < limit && token !== EOS) {
      const next = this.step(prefix.state, token), logs = this.logProbs(next.logits);
      [token] = largest(logs, 1);
      prefix = this.grow(prefix, next, token, logs[token]);
    }
    const finished = token === EOS, ids = finished ? prefix.ids.slice(0, -1) : prefix.ids;
    return [{ prefix, ids, logProb: prefix.total, score: prefix.total, finished }];
  }

  grow({ ids, steps, total }, { state, logits, self, cross }, id, log) {
    return {
      state, ids: [...ids, id], steps: [...steps, { id, logits, self, cross }],
      total: Math.fround(total + log),
    };
  }

  search(start, limit, beam, alpha) {
    const penalty = (length) => ((5 + length) / 6) ** alpha, done = [];
    const finish = (prefix, ids, finished) => done.push({
      prefix, ids, finished, logProb: prefix.total, score: prefix.total / penalty(prefix.ids.length),
    });
    let living = [{ state: start, ids: [], steps: [], total: 0 }];
    for (let length = 1; length <= limit; length++) {
      const candidates = [];
      for (const prefix of living) {
        const next = this.step(prefix.state, prefix.ids.at(-1) ?? BOS);
        const logs = this.logProbs(next.logits);
        for (const id of largest(logs, 2 * beam)) {
          const total = Math.fround(prefix.total + logs[id]);
          candidates.push({ prefix, next, id, log: logs[id], total });
        }
      }
      // At most `beam` of these end in EOS, so that `beam` go on.
      const best = candidates.sort((a, b) => b.total - a.total).slice(0, 2 * beam);
      best.forEach(({ prefix, next, id, log, total }, rank) => {
        if (id === EOS && rank < beam && total > -Infinity) {
          finish(this.grow(prefix, next, id, log), prefix.ids, true);
        }
      });
      living = best.filter(({ id, total }) => id !== EOS && total > -Infinity).slice(0, beam)
        .map(({ prefix, next, id, log }) => this.grow(prefix, next, id, log));
      // A living prefix can only fall, and no length divides it by more than the limit's penalty.
      const mark = Math.max(...done.map(({ score }) => score));
      if (!living.length || living[0].total / penalty(limit) <= mark) break;
      if (length === limit) living.forEach((prefix) => finish(prefix, prefix.ids, false));
    }
    return done.sort((a, b) => b.finished - a.finished || b.score - a.score);
  }
}

// --- sentences --------------------------------------------------------------------------------------

/**
 * Words of a text by longest match over `known`, a Set or Map, and what no known word begins:
 * {words, unknown}, each in the order they stand.
 */
export function segment(text, known) {
  const longest = Math.max(...[...known.keys()].map((word) => [...word].length));
  const words = [], unknown = [];
  for (const piece of text.replaceAll(",", "，").replaceAll("?", "？").split(/\s+/)) {
    const signs = [...piece];
    let stranger = ""; // signs that begin no known word, so far
    for (let at = 0; at <= signs.length;) {
      let size = Math.min(longest, signs.length - at);
      while (size && !known.has(signs.slice(at, at + size).join(""))) size--;
      if (stranger && (size || at === signs.length)) {
        unknown.push(stranger);
        stranger = "";
      }
      if (size) words.push(signs.slice(at, at + size).join(""));
      else stranger += signs[at] ?? "";
      at += size || 1;
    }
  }
  return { words, unknown };
}
