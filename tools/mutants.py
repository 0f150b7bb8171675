"""Break the package in plausible ways, one at a time; the tests must notice every one.

    python tools/mutants.py                 all of them
    python tools/mutants.py attention       those of a module
    python tools/mutants.py --write         all, and write the table data/runs/mutants.md

A mutant replaces one exact text of one module, in a copy of the package. The tests of that module
run first, then the others, until one fails. A mutant that no test notices is a missing test: the
exit code is 1. At the end the tests that noticed something run on the sound package, and must pass.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "data" / "runs" / "mutants.md"
# tests of the package, the quick ones first; the others look at the book
TESTS = (
    "attention", "embedding", "positional_encoding", "multi_head", "residual_norm", "feed_forward",
    "encoder", "decoder", "loss", "decoding", "sliding_window", "tokens", "variants", "training",
    "peers", "command_line", "end_to_end",
)  # fmt: skip
# What the tests load and is slow to load: once, before the forks; nothing of the package
SLOW = ("torch._dynamo", "sacrebleu", "tokenizers", "nbformat.v4", "ipywidgets.embed",
        "playwright.sync_api")  # fmt: skip
TIMEOUT_S = 300  # a search that never ends is noticed too


class Mutant(NamedTuple):
    """`old` stands in `module` exactly once; with `new` in its place the package has the fault."""

    module: str
    fault: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The module's text with the fault; ValueError unless `old` is there exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.module}, {self.fault}: old text {source.count(self.old)} times"
            )
        return source.replace(self.old, self.new)


MUTANTS = [
    # attention
    Mutant(
        "attention",
        "no scale in the plain formula",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        "scores = q @ k.transpose(-2, -1)",
    ),
    Mutant(
        "attention",
        "scaled by d_k, not its root",
        "/ math.sqrt(q.size(-1))",
        "/ q.size(-1)",
    ),
    Mutant(
        "attention",
        "no scale in the fused kernel",
        "(q, k, v, attn_mask=mask)",
        "(q, k, v, attn_mask=mask, scale=1.0)",
    ),
    Mutant(
        "attention",
        "mask not handed to the fused kernel",
        "(q, k, v, attn_mask=mask)",
        "(q, k, v)",
    ),
    Mutant(
        "attention",
        "padding mask on the queries",
        "[:, None, None, :]",
        "[:, None, :, None]",
    ),
    Mutant("attention", "padding mask inverted", "(ids != PAD)", "(ids == PAD)"),
    Mutant("attention", "causal mask sees one token ahead", ".tril()", ".tril(1)"),
    Mutant("attention", "causal mask hides the token itself", ".tril()", ".tril(-1)"),
    Mutant("attention", "causal mask transposed", ".tril()", ".triu()"),
    Mutant(
        "attention",
        "hidden keys filled with -inf",
        "weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)\n"
        "    return weights.masked_fill(hidden, 0.0)",
        "return scores.masked_fill(hidden, -torch.inf).softmax(-1)",
    ),
    Mutant(
        "attention",
        "hidden keys filled with -100",
        "torch.finfo(scores.dtype).min",
        "-100.0",
    ),
    Mutant(
        "attention",
        "a row that may read nothing reads everything",
        "return weights.masked_fill(hidden, 0.0)",
        "return weights",
    ),
    Mutant(
        "attention",
        "no mask in bfloat16",
        "return attention_weights(q, k, mask) @ v",
        "return attention_weights(q, k) @ v",
    ),
    Mutant(
        "attention",
        "softmax over the queries",
        ".min).softmax(-1)",
        ".min).softmax(-2)",
    ),
    Mutant(
        "attention",
        "masks of numbers accepted",
        "if dtype != torch.bool:",
        "if dtype == torch.float64:",
    ),
    # embedding
    Mutant("embedding", "no √d", " * math.sqrt(d_model)", ""),
    Mutant("embedding", "table starts √d too large", "std=d_model**-0.5", "std=1.0"),
    Mutant("embedding", "id V accepted", "high >= vocab_size", "high > vocab_size"),
    Mutant(
        "embedding",
        "output layer has a table of its own",
        "return F.linear(hidden, self.weight)",
        "return F.linear(hidden, self.weight.detach())",
    ),
    # positional_encoding
    Mutant(
        "positional_encoding",
        "sine and cosine swapped",
        "encoding[:, 0::2] = angle.sin()\n    encoding[:, 1::2] = angle.cos()[:, : d_model // 2]",
        "encoding[:, 0::2] = angle.cos()\n    encoding[:, 1::2] = angle.sin()[:, : d_model // 2]",
    ),
    Mutant(
        "positional_encoding",
        "exponent doubled",
        "base ** (even / d_model)",
        "base ** (2 * even / d_model)",
    ),
    Mutant(
        "positional_encoding",
        "positions count from 1",
        "torch.arange(length, dtype=torch.float64)",
        "torch.arange(1, length + 1, dtype=torch.float64)",
    ),
    Mutant(
        "positional_encoding",
        "start ignored",
        "self.encoding[start:end]",
        "self.encoding[: x.size(1)]",
    ),
    Mutant("positional_encoding", "last position refused", "if end > limit:", "if end >= limit:"),
    Mutant(
        "positional_encoding",
        "dropout before the sum",
        "self.dropout(x + self.encoding[start:end].to(x.dtype))",
        "self.dropout(x) + self.encoding[start:end].to(x.dtype)",
    ),
    # multi_head
    Mutant(
        "multi_head",
        "heads split by reshape alone",
        "x.unflatten(-1, (heads, -1)).transpose(1, 2)",
        "x.reshape(x.size(0), heads, x.size(1), -1)",
    ),
    Mutant(
        "multi_head",
        "heads joined by reshape alone",
        "x.transpose(1, 2).flatten(-2)",
        "x.reshape(x.size(0), x.size(2), -1)",
    ),
    Mutant(
        "multi_head",
        "keys and values swapped",
        "return split_heads(k, self.heads), split_heads(v, self.heads)",
        "return split_heads(v, self.heads), split_heads(k, self.heads)",
    ),
    Mutant(
        "multi_head",
        "no output projection",
        "return self.w_o(join_heads(self.attention(self.project_q(x), k, v, mask)))",
        "return join_heads(self.attention(self.project_q(x), k, v, mask))",
    ),
    Mutant(
        "multi_head",
        "cross-attention reads itself",
        "return self.attend(x, *self.project_kv(x if memory is None else memory), mask)",
        "return self.attend(x, *self.project_kv(x), mask)",
    ),
    Mutant(
        "multi_head",
        "maps without the mask",
        "return attention_weights(self.project_q(x), k, mask)",
        "return attention_weights(self.project_q(x), k)",
    ),
    Mutant(
        "multi_head",
        "hooks left in the model",
        "            handle.remove()",
        "            pass",
    ),
    # residual_norm
    Mutant(
        "residual_norm",
        "variance divides by d − 1",
        "return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)",
        "y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt()\n"
        "        return self.weight * y + self.bias",
    ),
    Mutant(
        "residual_norm",
        "ε outside the root",
        "return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)",
        "y = x - x.mean(-1, keepdim=True)\n"
        "        y = y / (x.std(-1, correction=0, keepdim=True) + self.eps)\n"
        "        return self.weight * y + self.bias",
    ),
    Mutant(
        "residual_norm",
        "Pre-LN and Post-LN swapped",
        "if self.norm_first:",
        "if not self.norm_first:",
    ),
    Mutant(
        "residual_norm",
        "no residual path",
        "return self.norm(x + self.dropout(sublayer(x)))",
        "return self.norm(self.dropout(sublayer(x)))",
    ),
    Mutant(
        "residual_norm",
        "Pre-LN adds the normalised input",
        "return x + self.dropout(sublayer(self.norm(x)))",
        "x = self.norm(x)\n            return x + self.dropout(sublayer(x))",
    ),
    Mutant(
        "residual_norm",
        "dropout in eval",
        "return self.norm(x + self.dropout(sublayer(x)))",
        "return self.norm(x + F.dropout(sublayer(x), self.dropout.p))",
    ),
    Mutant(
        "residual_norm",
        "dropout on the residual path",
        "return self.norm(x + self.dropout(sublayer(x)))",
        "return self.norm(self.dropout(x + sublayer(x)))",
    ),
    Mutant(
        "residual_norm",
        "dropout does not scale what it keeps",
        "return x * (bits >= cut - 2**15) * (2**16 / (2**16 - cut))",
        "return x * (bits >= cut - 2**15)",
    ),
    Mutant(
        "residual_norm",
        "dropout keeps p in place of 1 − p",
        "return x * (bits >= cut - 2**15) * (2**16 / (2**16 - cut))",
        "return x * (bits < cut - 2**15) * (2**16 / cut)",
    ),
    Mutant(
        "residual_norm",
        "one draw decides for four numbers",
        "bits = draws.view(torch.int16)[: x.numel()].view(x.shape)",
        "bits = draws.view(torch.int16)[::4].repeat_interleave(4)[: x.numel()].view(x.shape)",
    ),
    # feed_forward
    Mutant("feed_forward", "no ReLU", "self.w_1(x).relu()", "self.w_1(x)"),
    Mutant(
        "feed_forward",
        "GELU in place of ReLU",
        "self.w_1(x).relu()",
        "nn.functional.gelu(self.w_1(x))",
    ),
    # encoder
    Mutant(
        "encoder",
        "no closing norm in Pre-LN",
        "self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()",
        "self.norm = nn.Identity()",
    ),
    Mutant(
        "encoder",
        "a second norm in Post-LN",
        "self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()",
        "self.norm = LayerNorm(config.d_model)",
    ),
    Mutant(
        "encoder",
        "one layer used L times",
        "nn.ModuleList(EncoderLayer(config, attention) for _ in range(config.layers))",
        "nn.ModuleList([EncoderLayer(config, attention)] * config.layers)",
    ),
    Mutant(
        "encoder",
        "mask lost after the first layer",
        "x = layer(x, mask)",
        "x, mask = layer(x, mask), None",
    ),
    Mutant(
        "encoder",
        "big has the dropout of base",
        "d_ff=4096, dropout=0.3",
        "d_ff=4096, dropout=0.1",
    ),
    # decoder
    Mutant(
        "decoder",
        "labels not shifted",
        "return target[:, :-1], target[:, 1:]",
        "return target[:, 1:], target[:, 1:]",
    ),
    Mutant(
        "decoder",
        "shifted by two",
        "return target[:, :-1], target[:, 1:]",
        "return target[:, :-2], target[:, 2:]",
    ),
    Mutant(
        "decoder",
        "cross-attention reads the target",
        "self.cross_attention(x, memory, mask=cross_mask)",
        "self.cross_attention(x, x, mask=self_mask)",
    ),
    Mutant(
        "decoder",
        "cross-attention reads padding",
        "self.cross_attention(x, memory, mask=cross_mask)",
        "self.cross_attention(x, memory)",
    ),
    Mutant(
        "decoder",
        "causal mask in training only",
        "self.self_attention(x, mask=self_mask)",
        "self.self_attention(x, mask=self_mask if self.training else None)",
    ),
    Mutant(
        "decoder",
        "two sub-layers share a norm",
        "x = self.residuals[1](x, lambda x: self.cross",
        "x = self.residuals[0](x, lambda x: self.cross",
    ),
    # loss
    Mutant("loss", "PAD counted in the loss", "ignore_index=PAD", "ignore_index=-100"),
    Mutant(
        "loss",
        "smoothing spread over the other V − 1",
        "label_smoothing=smoothing",
        "label_smoothing=smoothing * logits.size(-1) / (logits.size(-1) - 1)",
    ),
    Mutant("loss", "no smoothing", "label_smoothing=smoothing", "label_smoothing=0.0"),
    Mutant(
        "loss",
        "loss in half precision",
        ".to(torch.promote_types(logits.dtype, torch.float32))",
        "",
    ),
    Mutant("loss", "PAD counted as a token", "int(real.sum())", "labels.numel()"),
    Mutant("loss", "EOS is never a label", "real = labels != PAD", "real = labels > 2"),
    Mutant(
        "loss",
        "output layer not tied",
        "self.target_embedding = self.output = self.source_embedding",
        "self.target_embedding = self.source_embedding\n"
        "        self.output = Embedding(config.vocab_size, config.d_model)",
    ),
    Mutant(
        "loss",
        "no causal mask",
        "self_mask = padding & causal_mask(target.size(1), target.device)",
        "self_mask = padding",
    ),
    Mutant(
        "loss",
        "decoder reads the source's padding",
        "self_mask, padding_mask(source))",
        "self_mask)",
    ),
    Mutant(
        "loss",
        "encoder reads its padding",
        "self.encoder(self.positions(x), mask)",
        "self.encoder(self.positions(x))",
    ),
    Mutant(
        "loss",
        "frozen parameters counted",
        "if p.requires_grad",
        "if p.numel()",
    ),
    # decoding
    Mutant(
        "decoding",
        "PAD and BOS may come next",
        "    log_probs[:, [PAD, BOS]] = -torch.inf\n",
        "",
    ),
    Mutant(
        "decoding",
        "greedy goes on after EOS",
        "going = (choice != EOS).nonzero().squeeze(1)",
        "going = (choice != PAD).nonzero().squeeze(1)",
    ),
    Mutant(
        "decoding",
        "greedy drops a row too few",
        "decoder.select(going[:, None])",
        "decoder.select(torch.arange(len(going))[:, None])",
    ),
    Mutant(
        "decoding",
        "penalty inverted",
        "Hypothesis(ids, log_prob, log_prob / length_penalty(length, alpha), True)",
        "Hypothesis(ids, log_prob, log_prob * length_penalty(length, alpha), True)",
    ),
    Mutant(
        "decoding",
        "penalty does not count EOS",
        "Hypothesis(ids, log_prob, log_prob / length_penalty(length, alpha), True)",
        "Hypothesis(ids, log_prob, log_prob / length_penalty(length - 1, alpha), True)",
    ),
    Mutant("decoding", "penalty n^α", "((5 + length) / 6) ** alpha", "length**alpha"),
    Mutant(
        "decoding",
        "beam keeps ended prefixes alive",
        "best.masked_fill(ended, -torch.inf)",
        "best",
    ),
    Mutant(
        "decoding", "ended below the beam counted", "ended[:, :beam].nonzero()", "ended.nonzero()"
    ),
    Mutant(
        "decoding", "only the best may end", "ended[:, :beam].nonzero()", "ended[:, :1].nonzero()"
    ),
    Mutant(
        "decoding",
        "stops at the first that ended",
        "return len(scores) < n_best or total / penalty > scores[n_best - 1]",
        "return len(scores) < n_best",
    ),
    Mutant(
        "decoding",
        "never stops before the limit",
        "return len(scores) < n_best or total / penalty > scores[n_best - 1]",
        "return True",
    ),
    Mutant(
        "decoding",
        "bound without the penalty",
        "total / penalty > scores[n_best - 1]",
        "total > scores[n_best - 1]",
    ),
    Mutant(
        "decoding",
        "bound against the best, not the n-th",
        "> scores[n_best - 1]",
        "> scores[0]",
    ),
    Mutant(
        "decoding",
        "too few candidates",
        "wide = min(2 * beam, log_probs.size(-1))",
        "wide = min(beam, log_probs.size(-1))",
    ),
    Mutant(
        "decoding",
        "n-best worst first",
        "key=lambda h: (not h.finished, -h.score)",
        "key=lambda h: (not h.finished, h.score)",
    ),
    Mutant(
        "decoding",
        "cut off before ended",
        "key=lambda h: (not h.finished, -h.score)",
        "key=lambda h: (h.finished, -h.score)",
    ),
    Mutant(
        "decoding",
        "prefixes do not follow their parents",
        "prefixes.gather(1, row[..., None].expand(-1, -1, length - 1))",
        "prefixes[:, :1].expand(-1, row.size(1), -1)",
    ),
    Mutant(
        "decoding",
        "cache does not follow the parents",
        "decoder.select(kept[:, None] * r + row[kept])",
        "decoder.select(kept[:, None] * r + row[kept] * 0)",
    ),
    Mutant(
        "decoding",
        "cached positions off by one",
        "model.positions(x, start=start)",
        "model.positions(x, start=start + 1)",
    ),
    Mutant(
        "decoding",
        "every cached token at position 0",
        "model.positions(x, start=start)",
        "model.positions(x)",
    ),
    Mutant(
        "decoding",
        "cache read without its last key",
        "(past[: self.rows, :, : self.length] for past in self.past[i])",
        "(past[: self.rows, :, : max(1, self.length - 1)] for past in self.past[i])",
    ),
    Mutant(
        "decoding",
        "cache read past what was written",
        "(past[: self.rows, :, : self.length] for past in self.past[i])",
        "(past[: self.rows] for past in self.past[i])",
    ),
    Mutant(
        "decoding",
        "cache emptied when it grows",
        "        wide[:, :, :used] = past[: self.rows, :, :used]\n",
        "",
    ),
    Mutant(
        "decoding",
        "several tokens at once see each other",
        "mask = None if x.size(1) == 1 else causal_mask",
        "mask = None if x.size(1) else causal_mask",
    ),
    Mutant(
        "decoding",
        "cached decoder reads the source's padding",
        "attend(queries, *self.cross[i], self.cross_mask)",
        "attend(queries, *self.cross[i])",
    ),
    Mutant(
        "decoding",
        "sentences dropped, sources kept",
        "            self.cross = [(k[sentences], v[sentences]) for k, v in self.cross]\n",
        "            self.cross = [(k[: len(rows)], v[: len(rows)]) for k, v in self.cross]\n",
    ),
    Mutant(
        "decoding",
        "sentences dropped, masks kept",
        "self.cross_mask = self.cross_mask[sentences]",
        "self.cross_mask = self.cross_mask[: len(rows)]",
    ),
    Mutant(
        "decoding",
        "moved rows left where they were",
        "past[moved, :, : self.length] = past[origin[moved], :, : self.length]",
        "past[moved, :, : self.length] = past[moved, :, : self.length]",
    ),
    Mutant(
        "decoding",
        "rows moved one after the other",
        "past[moved, :, : self.length] = past[origin[moved], :, : self.length]",
        "for m in moved.tolist():\n"
        "                    past[m, :, : self.length] = past[origin[m], :, : self.length]",
    ),
    Mutant("decoding", "translates in training mode", "    model.eval()\n", "    model.train()\n"),
    Mutant(
        "decoding",
        "translations in order of length",
        "for i, ids in zip(batch, found):",
        "for i, ids in zip(sorted(batch), found):",
    ),
    Mutant(
        "decoding",
        "limit past the model's",
        "limit = min(source.size(1) + 50, model.config.max_len)",
        "limit = source.size(1) + 50",
    ),
    Mutant(
        "decoding",
        "hypotheses and references swapped",
        "metric.corpus_score(list(hypotheses), [list(references)])",
        "metric.corpus_score(list(references), [list(hypotheses)])",
    ),
    # sliding_window
    Mutant(
        "sliding_window",
        "window off by one in the mask",
        "(distance < window)",
        "(distance <= window)",
    ),
    Mutant(
        "sliding_window",
        "window off by one in the blocks",
        "before, after = window - 1,",
        "before, after = window,",
    ),
    Mutant(
        "sliding_window",
        "padding is read",
        "(near & real[:, :, None])",
        "(near & torch.ones_like(real)[:, :, None])",
    ),
    Mutant(
        "sliding_window",
        "a window both ways looks back only",
        "0 if causal else window - 1",
        "0",
    ),
    Mutant(
        "sliding_window",
        "first block misplaced",
        "query[:, None] + before - key",
        "query[:, None] + before - 1 - key",
    ),
    # variants
    Mutant(
        "variants",
        "decoder-only sees the future",
        "return causal_mask(ids.size(1), ids.device) & padding_mask(ids)",
        "return padding_mask(ids)",
    ),
    Mutant(
        "variants",
        "decoder-only reads padding",
        "return causal_mask(ids.size(1), ids.device) & padding_mask(ids)",
        "return causal_mask(ids.size(1), ids.device)",
    ),
    # training
    Mutant("training", "exponent of the warm-up", "warmup**-1.5", "warmup**-0.5"),
    Mutant("training", "rate without the width", "factor * d_model**-0.5 *", "factor *"),
    Mutant(
        "training",
        "a batch over the limit",
        "if (len(batch) + 1) * widths[i] > max_tokens:",
        "if len(batch) * widths[i] > max_tokens:",
    ),
    Mutant(
        "training",
        "the last batch of a pool lost",
        "            batch.append(i)\n        batches.append(batch)",
        "            batch.append(i)",
    ),
    Mutant(
        "training",
        "batches in order of length",
        "    rng.shuffle(batches)\n",
        "",
    ),
    Mutant(
        "training",
        "every epoch in the same order",
        "seed=1_000_003 * c.seed + self.epoch",
        "seed=1_000_003 * c.seed",
    ),
    Mutant(
        "training",
        "sum of the losses in place of their mean",
        "weight.grad /= tokens",
        "weight.grad /= 1",
    ),
    Mutant(
        "training",
        "mean over batches, not tokens",
        "weight.grad /= tokens",
        "weight.grad /= len(group)",
    ),
    Mutant(
        "training",
        "gradients of the last update added",
        "self.optimizer.zero_grad(set_to_none=True)",
        "pass",
    ),
    Mutant("training", "no smoothing", "source, target, c.smoothing)", "source, target, 0.0)"),
    Mutant("training", "Adam with its usual β₂", "betas=(0.9, 0.98)", "betas=(0.9, 0.999)"),
    Mutant(
        "training",
        "clip before the division by the tokens",
        "clip_grad_norm_(model.parameters(), c.clip)",
        "clip_grad_norm_(model.parameters(), c.clip / tokens)",
    ),
    Mutant(
        "training",
        "no clip",
        "nn.utils.clip_grad_norm_(model.parameters(), c.clip)",
        "nn.utils.clip_grad_norm_(model.parameters(), math.inf)",
    ),
    Mutant("training", "step counted from 0", "self.step + 1\n", "max(1, self.step)\n"),
    Mutant("training", "trained in eval mode", "model.train()\n", "model.eval()\n"),
    Mutant(
        "training",
        "Adam's moments not restored",
        '{"state": state, "param_groups"',
        '{"state": whole["state"], "param_groups"',
    ),
    Mutant(
        "training",
        "random state not restored",
        'torch.set_rng_state(tensors["rng"])',
        "pass",
    ),
    Mutant(
        "training",
        "resumes at the start of the epoch",
        'facts["step"], facts["epoch"], facts["batch"]',
        'facts["step"], facts["epoch"], 0',
    ),
    Mutant(
        "training",
        "sum of the checkpoints in place of their mean",
        "torch.stack([weights[name] for weights in models]).mean(0)",
        "torch.stack([weights[name] for weights in models]).sum(0)",
    ),
    # tokens
    Mutant(
        "tokens",
        "an unknown word is padding",
        "models.WordLevel(unk_token=SPECIALS[UNK])",
        "models.WordLevel(unk_token=SPECIALS[PAD])",
    ),
    Mutant(
        "tokens",
        "padded on the left",
        "[*s, *[PAD] * (longest - len(s))]",
        "[*[PAD] * (longest - len(s)), *s]",
    ),
    Mutant("tokens", "targets without EOS", "return [BOS, *ids, EOS]", "return [BOS, *ids]"),
    Mutant("tokens", "byte-order mark kept", 'raw.decode("utf-8-sig")', 'raw.decode("utf-8")'),
    Mutant("tokens", "EOS shown in the text", "i not in (PAD, BOS, EOS)", "i not in (PAD, BOS)"),
    Mutant(
        "tokens",
        "a pair with one blank side kept",
        "if source and target]",
        "if source or target]",
    ),
]


class AnyExample:
    """A plugin of pytest: an example that fails is enough, hypothesis need not make it small."""

    def pytest_configure(self) -> None:
        """After the tests' own configuration."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("any", settings.get_profile("book"), phases=phases)
        settings.load_profile("any")


def copy_project(folder: Path) -> None:
    """What the tests need: the package, themselves, the tools; the rest is linked."""
    for name in ("transformer", "tests", "tools"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("chapters", "data"):
        (folder / name).symlink_to(ROOT / name)


def pytest_here(folder: Path, tests: list[str]) -> None:
    """In a process of its own: run pytest in `folder`, which is first on every path."""
    if "transformer" in sys.modules:
        raise RuntimeError("the package is loaded already: its copy would never be")
    os.setsid()  # so that what the tests start ends with them
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    paths = [str(folder), str(folder / "tools")]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    arguments = ["-x", "-q", "-rfE", "--tb=no", "--color=no", "-p", "no:cacheprovider", *tests]
    code = pytest.main(arguments, plugins=[AnyExample()])
    sys.stdout.flush()
    os._exit(code)


def run_tests(folder: Path, tests: list[str]) -> tuple[int, str]:
    """Run pytest in `folder`, in a fork, until something fails: exit code and output."""
    process = multiprocessing.get_context("fork").Process(target=pytest_here, args=(folder, tests))
    process.start()
    process.join(TIMEOUT_S)
    if process.exitcode is None:
        assert process.pid
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return 1, "FAILED (no end)"
    return process.exitcode, (folder / "output").read_text(encoding="utf-8")


def try_mutant(folder: Path, mutant: Mutant, tests: tuple[str, ...] = TESTS) -> str | None:
    """The test that notices the mutant, or None; RuntimeError if the tests do not even start."""
    path = folder / "transformer" / f"{mutant.module}.py"
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(source), encoding="utf-8")
    try:
        code, output = run_tests(folder, [f"tests/test_{mutant.module}.py"])
        others = [f"tests/test_{name}.py" for name in tests if name != mutant.module]
        if code == 0 and others:
            code, output = run_tests(folder, others)
    finally:
        path.write_text(source, encoding="utf-8")
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    if code == 0:
        return None
    if code != 1 or not found:
        raise RuntimeError(f"{mutant.module}, {mutant.fault}: pytest ended with {code}\n{output}")
    return found[1]


def table(rows: list[tuple[Mutant, str, float]]) -> str:
    """Markdown: fault, the test that noticed it, seconds."""
    lines = [
        "# What the tests notice",
        "",
        f"`make mutants` broke the package in {len(rows)} ways; the first test that failed, each.",
        "",
        "| module | fault | noticed by | s |",
        "|---|---|---|---|",
    ]
    for mutant, test, seconds in rows:
        lines.append(f"| {mutant.module} | {mutant.fault} | `{test}` | {seconds:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Try the mutants; 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="only these modules")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.relative_to(ROOT)}")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.modules or m.module in options.modules]
    if not chosen or options.write and options.modules:
        parser.error("no such module, or --write for a part of the list")
    for name in SLOW:
        importlib.import_module(name)
    rows: list[tuple[Mutant, str, float]] = []
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = Path(temporary)
        copy_project(folder)
        for mutant in chosen:
            start = time.perf_counter()
            test = try_mutant(folder, mutant)
            seconds = time.perf_counter() - start
            survivors += test is None
            rows.append((mutant, test or "SURVIVED", seconds))
            print(
                f"{mutant.module:20} {mutant.fault:48} {seconds:5.0f} s  {rows[-1][1]}", flush=True
            )
        caught = sorted({test for _, test, _ in rows if test.startswith("tests/")})
        code, output = run_tests(folder, caught)
        if code:
            print(f"tests that noticed a fault fail without any too:\n{output}")
            return 1
    print(f"{len(rows) - survivors} of {len(rows)} noticed")
    if options.write:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(table(rows), encoding="utf-8")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
