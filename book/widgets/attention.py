"""Chapter 4: attention over three vectors in the plane, every number in sight."""

from __future__ import annotations

import math
from typing import Any

import figures
import numpy as np
import traitlets
from matplotlib.figure import Figure
from widgets.frame import Widget, script

WORDS = ["小明", "开始", "工作"]  # Xiaoming, starts, work
LIMIT = 3.0  # the plane ends here
COOLEST, HOTTEST = 0.1, 5.0


class AttentionByHand(Widget):
    """Three words, each its own query, key and value; one of them asks."""

    _esm = script("attention")
    words = traitlets.List(traitlets.Unicode(), WORDS).tag(sync=True)
    vectors = traitlets.List([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]]).tag(sync=True)
    query = traitlets.Int(2).tag(sync=True)
    masked = traitlets.Bool(False).tag(sync=True)
    scaled = traitlets.Bool(True).tag(sync=True)
    temperature = traitlets.Float(1.0).tag(sync=True)

    @traitlets.validate("vectors")
    def _check_vectors(self, proposal: Any) -> list[list[float]]:
        vectors = np.asarray(proposal["value"], dtype=float)
        if vectors.shape != (3, 2):
            raise ValueError(f"vectors of shape {vectors.shape}, need (3, 2)")
        if not (np.abs(vectors) <= LIMIT).all():  # also where a number is NaN
            raise ValueError(f"vectors {vectors.tolist()}, each number must be −3 to 3")
        return vectors.tolist()

    @traitlets.validate("query")
    def _check_query(self, proposal: Any) -> int:
        if not 0 <= proposal["value"] < 3:
            raise ValueError(f"query {proposal['value']}, need 0, 1 or 2")
        return proposal["value"]

    @traitlets.validate("temperature")
    def _check_temperature(self, proposal: Any) -> float:
        if not COOLEST <= proposal["value"] <= HOTTEST:
            raise ValueError(f"temperature {proposal['value']}, need {COOLEST} to {HOTTEST}")
        return proposal["value"]

    def values(self) -> dict[str, np.ndarray]:
        """Dot products, scores, weights (S,) and output (2,) of the word that asks."""
        X = np.array(self.vectors)
        dots = X @ X[self.query]
        scores = dots / (math.sqrt(2) if self.scaled else 1.0) / self.temperature
        if self.masked:
            scores[self.query + 1 :] = -np.inf
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        return {"dots": dots, "scores": scores, "weights": weights, "output": weights @ X}

    def text(self) -> str:
        found = self.values()
        lines = [
            f"{self.words[self.query]} asks; "
            f"{'causal mask' if self.masked else 'no mask'}, "
            f"{'divided by √2' if self.scaled else 'not divided'}, "
            f"temperature {self.temperature:g}"
        ]
        for j, word in enumerate(self.words):
            x, y = self.vectors[j]
            lines.append(
                f"{word}  vector [{x:g}, {y:g}]  q·k {found['dots'][j]:.4g}  "
                f"score {found['scores'][j]:.4f}  weight {found['weights'][j]:.4f}"
            )
        x, y = found["output"]
        return "\n".join([*lines, f"output [{x:.4f}, {y:.4f}]"])

    def still(self) -> Figure:
        found = self.values()
        fig, axes = figures.panels(1, 2)
        tips = [*self.vectors, found["output"].tolist()]
        colours = [*figures.PALETTE[:3], figures.PURPLE]
        figures.vectors(tips, [*self.words, "output"], ax=axes[0], colours=colours)
        figures.bars(self.words, found["weights"], ax=axes[1], xlabel="weight", format="{:.4f}")
        return fig
