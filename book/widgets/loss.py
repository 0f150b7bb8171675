"""Chapter 10: logits, the loss of their labels, its slope, and steps downhill."""

from __future__ import annotations

import math
from typing import Any

import figures
import numpy as np
import traitlets
from matplotlib.figure import Figure
from widgets.frame import Widget, script

PAD = 0
WORDS = ["<pad>", "<bos>", "<eos>", "<unk>"]
WORDS += ["Xiaoming", "starts", "working", "小明", "开始", "工作"]
LABELS = [4, 5, 6, 2]  # Xiaoming starts working <eos>
GIVEN = [0.6, 0.5, 0.25, 0.8]  # their probabilities; the rest is shared evenly
T, V = len(LABELS), len(WORDS)
LIMIT = 8.0  # of a logit
MOST_SMOOTHING = 0.9
SLOWEST, FASTEST = 0.1, 10.0


def given_logits() -> list[list[float]]:
    """Logits of the worked example: the logarithms of its probabilities (T, V)."""
    return [
        [math.log(p if v == label else (1 - p) / (V - 1)) for v in range(V)]
        for label, p in zip(LABELS, GIVEN, strict=True)
    ]


class LossByHand(Widget):
    """Four labels, ten logits for each; one of the four positions is looked at."""

    _esm = script("loss")
    # On a phone a number of seven characters needs the room of the spin buttons.
    _css = Widget._css + (
        ".tw td input[type=number] { appearance: textfield; padding-inline: 0.2rem; "
        "font-size: 0.95em; }\n"
        ".tw th label { gap: 0.25rem; }\n"
        ".tw td input::-webkit-inner-spin-button { display: none; }\n"
    )
    words = traitlets.List(traitlets.Unicode(), WORDS).tag(sync=True)
    logits = traitlets.List(given_logits()).tag(sync=True)
    labels = traitlets.List(traitlets.Int(), LABELS).tag(sync=True)
    position = traitlets.Int(0).tag(sync=True)
    smoothing = traitlets.Float(0.0).tag(sync=True)
    rate = traitlets.Float(1.0).tag(sync=True)
    history = traitlets.List(traitlets.Float()).tag(sync=True)  # the loss before each step taken

    @traitlets.validate("logits")
    def _check_logits(self, proposal: Any) -> list[list[float]]:
        logits = np.asarray(proposal["value"], dtype=float)
        if logits.shape != (T, V):
            raise ValueError(f"logits of shape {logits.shape}, need {(T, V)}")
        if not (np.abs(logits) <= LIMIT).all():  # also where a number is NaN
            worst = logits.flat[np.argmax(~(np.abs(logits) <= LIMIT))]
            raise ValueError(f"logit {worst:g}, each must be −{LIMIT:g} to {LIMIT:g}")
        return logits.tolist()

    @traitlets.validate("labels")
    def _check_labels(self, proposal: Any) -> list[int]:
        labels = proposal["value"]
        if len(labels) != T or not all(0 <= label < V for label in labels):
            raise ValueError(f"labels {labels}, need {T} numbers from 0 to {V - 1}")
        if all(label == PAD for label in labels):
            raise ValueError(f"labels {labels} are all <pad>, need one that is not")
        return labels

    @traitlets.validate("position")
    def _check_position(self, proposal: Any) -> int:
        if not 0 <= proposal["value"] < T:
            raise ValueError(f"position {proposal['value']}, need 0 to {T - 1}")
        return proposal["value"]

    @traitlets.validate("smoothing", "rate")
    def _check_number(self, proposal: Any) -> float:
        name, value = proposal["trait"].name, proposal["value"]
        low, high = {"smoothing": (0.0, MOST_SMOOTHING), "rate": (SLOWEST, FASTEST)}[name]
        if not low <= value <= high:
            raise ValueError(f"{name} {value}, need {low:g} to {high:g}")
        return value

    def values(self) -> dict[str, np.ndarray]:
        """Probabilities p, wanted q and slopes (T, V); −ln p of the label and loss (T,).

        `mean_nll` and `mean_loss` are over the labels that are not PAD; `floor` is the lowest
        loss that there can be, the entropy of q.
        """
        z, labels = np.array(self.logits), np.array(self.labels)
        real = labels != PAD
        shifted = z - z.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        q = (1 - self.smoothing) * np.eye(V)[labels] + self.smoothing / V
        q *= real[:, None]
        nll = -logs[np.arange(T), labels] * real
        loss = -(q * logs).sum(axis=1)
        sure = q[real][0]
        sure = sure[sure > 0]
        return {
            "p": np.exp(logs),
            "q": q,
            "nll": nll,
            "loss": loss,
            "slope": (np.exp(logs) - q) * real[:, None] / real.sum(),
            "mean_nll": nll.sum() / real.sum(),
            "mean_loss": loss.sum() / real.sum(),
            "floor": np.abs((sure * np.log(sure)).sum()),
        }

    def descend(self, steps: int = 1) -> None:
        """Take steps of gradient descent on all logits."""
        for _ in range(steps):
            found = self.values()
            self.logits = (np.array(self.logits) - self.rate * found["slope"]).tolist()
            self.history = [*self.history, float(found["mean_loss"])]

    def text(self) -> str:
        found, at = self.values(), self.position
        lines = [f"ε {self.smoothing:g}, rate {self.rate:g}, steps taken {len(self.history)}"]
        for t, label in enumerate(self.labels):
            if label == PAD:
                lines.append(f"label {t + 1} <pad>  does not count")
                continue
            lines.append(
                f"label {t + 1} {self.words[label]}  p {found['p'][t, label]:.4f}  "
                f"−ln p {found['nll'][t]:.4f}  loss {found['loss'][t]:.4f}"
            )
        lines.append(
            f"mean −ln p {found['mean_nll']:.4f}, loss {found['mean_loss']:.4f}, "
            f"never below {found['floor']:.4f}"
        )
        lines.append(f"position {at + 1}:")
        for v, word in enumerate(self.words):
            lines.append(
                f"{word}  logit {self.logits[at][v]:.4f}  p {found['p'][at, v]:.4f}  "
                f"q {found['q'][at, v]:.4f}  slope {found['slope'][at, v]:.4f}"
            )
        return "\n".join(lines)

    def still(self) -> Figure:
        found, at = self.values(), self.position
        fig, axes = figures.panels(1, 2, width=7, height=3.6)
        right = self.words[self.labels[at]]
        for ax, key, title in zip(axes, ("p", "slope"), ("probability", "slope"), strict=True):
            values = found[key][at]
            figures.bars(self.words, values, ax=ax, title=title, highlight=right, format="{:.4f}")
        left, right = axes[1].get_xlim()
        axes[1].set_xlim(left - 0.25 * (right - left), right)  # room for −0.1000
        return fig
