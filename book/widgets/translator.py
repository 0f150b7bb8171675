"""The front page and chapter 15: the trained translator, running in the page."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import figures
import torch
import traitlets
from matplotlib.figure import Figure
from torch import Tensor
from widgets.frame import HERE, Widget, script

from transformer.decoding import CachedDecoder, beam_search, greedy_search
from transformer.loss import Transformer
from transformer.multi_head import attention_maps
from transformer.tokens import BOS, EOS, PAD, Tokenizer, pad, read_lines
from transformer.training import load

MODEL = HERE.parent / "model"
PARTS = ("config.json", "vocabulary.json", "weights.safetensors")
RUNNING = ["小明 开始 工作", "我 爱 中国", "我 把 猫 抱 起来 ， 它 很 乖"]
LONGEST, WIDEST = 40, 8  # words of a sentence, prefixes of a beam
READINGS = ("cross", "encoder", "decoder")
CONFIG = json.loads((MODEL / PARTS[0]).read_text(encoding="utf-8"))


@cache
def trained() -> tuple[Transformer, Tokenizer]:
    """The model that ships with the book."""
    return load(MODEL)


def glosses() -> list[list[str]]:
    """The Chinese words of the corpus: kind, word, what it means."""
    return [line.split("\t") for line in read_lines(HERE / "translator.tsv")]


def held_out() -> list[str]:
    """Forty sentences that the model was not taught, the book's running ones first."""
    lines = read_lines(HERE.parents[1] / "data" / "zh-en" / "test.tsv")
    drawn = [line.split("\t")[0] for line in lines[::27]]
    return [*RUNNING, *(sentence for sentence in drawn if sentence not in RUNNING)][:40]


class LiveTranslator(Widget):
    """A Chinese sentence, its translation word by word, and what each attention read.

    `reading` is "cross", "encoder" or "decoder"; layers count from 0, and so do heads, where −1
    is the mean of all; `step` is the word looked at, −1 the one taken with the least probability.
    With `asked` the page translates at once, otherwise when its button is pressed.
    """

    _esm = script("translator_model") + (HERE / "translator.js").read_text(encoding="utf-8")
    _css = Widget._css + (HERE / "translator.css").read_text(encoding="utf-8")
    words = traitlets.List(glosses()).tag(sync=True)
    sentences = traitlets.List(held_out()).tag(sync=True)
    sentence = traitlets.Unicode(RUNNING[0]).tag(sync=True)
    beam = traitlets.Int(1).tag(sync=True)
    reading = traitlets.Enum(READINGS, "cross").tag(sync=True)
    layer = traitlets.Int(CONFIG["layers"] - 1).tag(sync=True)
    head = traitlets.Int(-1).tag(sync=True)
    step = traitlets.Int(-1).tag(sync=True)
    asked = traitlets.Bool(False).tag(sync=True)
    translation = traitlets.Unicode("").tag(sync=True)  # what the page found

    def __init__(self, **traits: Any):
        super().__init__(**traits)
        self.on_msg(self._answer)

    @traitlets.validate("sentence")
    def _check_sentence(self, proposal: Any) -> str:
        known, words = {word for _, word, _ in self.words}, proposal["value"].split()
        unknown = [word for word in words if word not in known]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not among the {len(known)} words of the model")
        if not 1 <= len(words) <= LONGEST:
            raise ValueError(f"a sentence of {len(words)} words, need 1 to {LONGEST}")
        return proposal["value"]

    @traitlets.validate("beam", "layer", "head", "step")
    def _check_number(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        low, high = {
            "beam": (1, WIDEST),
            "layer": (0, CONFIG["layers"] - 1),
            "head": (-1, CONFIG["heads"] - 1),
            "step": (-1, CONFIG["max_len"]),
        }[name]
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}, need {low} to {high}")
        return value

    def _answer(self, _: Any, content: Any, __: Any) -> None:
        """Send the model to a page in Jupyter, which has no site around it to load it from."""
        if content == {"want": "model"}:
            self.send({"have": "model"}, [(MODEL / part).read_bytes() for part in PARTS])

    @torch.inference_mode()
    def values(self) -> dict[str, Any]:
        """The translation by the package: tokens, log-probabilities (T, V), the chosen weights."""
        model, tokenizer = trained()
        source = pad([tokenizer.encode(self.sentence)])
        limit = min(source.size(1) + 50, model.config.max_len)
        decoder = CachedDecoder(model, source)
        if self.beam == 1:
            ids = [i for i in greedy_search(decoder, 1, limit)[0].tolist() if i != EOS]
            whole = len(ids) < limit
        else:
            (best,) = beam_search(decoder, 1, limit, self.beam)[0]
            ids, whole = list(best.ids), best.finished
        target = pad([[BOS, *ids]])[:, : len(ids) + whole]
        logs = model(source, target)[0].log_softmax(-1)
        logs[:, [PAD, BOS]] = -torch.inf
        maps = attention_maps(model, source, target)
        stack, kind = {
            "cross": ("decoder", "cross_attention"),
            "encoder": ("encoder", "self_attention"),
            "decoder": ("decoder", "self_attention"),
        }[self.reading]
        heads = maps[f"{stack}.layers.{self.layer}.{kind}"][0]
        weights = heads.mean(0) if self.head < 0 else heads[self.head]
        chosen = [*ids, EOS] if whole else ids
        name = tokenizer.backend.id_to_token
        return {
            "text": tokenizer.decode(ids),
            "tokens": ["end" if i == EOS else name(i) for i in chosen],
            "best": [
                [("end" if i == EOS else name(i), p) for p, i in zip(*map(Tensor.tolist, top))]
                for top in (row.exp().topk(5) for row in logs)
            ],
            "boldest": min(range(len(ids) or 1), key=lambda t: logs[t, chosen[t]]),
            "log_prob": sum(row[i].item() for row, i in zip(logs, chosen)),
            "weights": weights,
        }

    def labels(self, tokens: list[str]) -> tuple[list[str], list[str]]:
        """What reads and what is read, in the words of the attention chosen."""
        source = self.sentence.split()
        if self.reading == "encoder":
            return source, source
        return tokens, source if self.reading == "cross" else ["start", *tokens[:-1]]

    def text(self) -> str:
        found = self.values()
        search = "greedy" if self.beam == 1 else f"beam of {self.beam}"
        lines = [f"{self.sentence} → {found['text']}"]
        lines.append(f"{search}, log-probability {found['log_prob']:.2f}".replace(" -", " −"))
        for token, best in zip(found["tokens"], found["best"]):
            lines.append(f"{token}: " + ", ".join(f"{word} {p:.1%}" for word, p in best))
        head = "mean of the heads" if self.head < 0 else f"head {self.head}"
        lines.append(f"{self.reading} attention, layer {self.layer}, {head}")
        rows, columns = self.labels(found["tokens"])
        for row, weights in zip(rows, found["weights"]):
            shares = (f"{word} {share:.2f}" for word, share in zip(columns, weights))
            lines.append(f"{row} reads " + ", ".join(shares))
        return "\n".join(lines)

    def still(self) -> Figure:
        found, meaning = self.values(), {word: gloss for _, word, gloss in self.words}
        rows, columns = self.labels(found["tokens"])
        named = columns
        if len(columns) <= 4:  # room for what they mean
            named = [f"{word}\n{meaning[word]}" if word in meaning else word for word in columns]
        step = min(self.step, len(found["best"]) - 1) if self.step >= 0 else found["boldest"]
        words, shares = zip(*found["best"][step])
        fig, axes = figures.panels(1, 2, width=7, height=max(2.9, 1.3 + 0.24 * len(rows)))
        fig.suptitle(f"{self.sentence} → {found['text']}")
        figures.bars(
            words, shares, ax=axes[0], format="{:.1%}", highlight=found["tokens"][step],
            title="five likeliest words",
        )  # fmt: skip
        title = f"{self.reading} attention, layer {self.layer}"
        figures.heatmap(found["weights"], rows, named, ax=axes[1], title=title)
        return fig
