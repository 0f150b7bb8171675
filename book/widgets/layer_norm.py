"""Chapter 6: one row normalised, and what two orders of norm and sum do through depth."""

from __future__ import annotations

import functools
from typing import Any

import figures
import numpy as np
import traitlets
from matplotlib.figure import Figure
from widgets.frame import Widget, script

ROW = [1.8983, 3.7981, 1.0, 5.0, -2.0, 0.0]  # the chapter's pair, and what a longer row adds
LIMIT = 6.0
EPS = 1e-5
WIDTH, INNER, ROWS, DEPTH = 64, 256, 8, 24  # the stack
LIMITS = {"size": (2, len(ROW)), "block": (1, DEPTH)}


class LayerNormExplorer(Widget):
    """A row of two to six numbers under LayerNorm; Post-LN and Pre-LN through 24 blocks."""

    _esm = script("layer_norm")
    row = traitlets.List(traitlets.Float(), ROW).tag(sync=True)
    size = traitlets.Int(2).tag(sync=True)
    block = traitlets.Int(12).tag(sync=True)

    @traitlets.validate("row")
    def _check_row(self, proposal: Any) -> list[float]:
        row = proposal["value"]
        if len(row) != len(ROW):
            raise ValueError(
                f"row of {len(row)} numbers, need {len(ROW)}: size says how many count"
            )
        if not (np.abs(row) <= LIMIT).all():  # also where a number is NaN
            raise ValueError(f"row {row}, each number must be −6 to 6")
        return row

    @traitlets.validate(*LIMITS)
    def _check_number(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        low, high = LIMITS[name]
        if not low <= value <= high:
            raise ValueError(f"{name} {value}, need {low} to {high}")
        return value

    def values(self) -> dict[str, Any]:
        """Mean, variance, deviation and result (d,) of the row."""
        row = np.array(self.row[: self.size])
        mean, variance = row.mean(), row.var()
        deviation = np.sqrt(variance + EPS)
        return {
            "mean": mean,
            "variance": variance,
            "deviation": deviation,
            "result": (row - mean) / deviation,
        }

    def depth(self) -> dict[str, dict[str, np.ndarray]]:
        """Per order, after each block (24,): variance of a row, factor of the input."""
        return stack()

    def text(self) -> str:
        found = self.values()
        result = ", ".join(f"{value:.4f}" for value in found["result"])
        lines = [
            f"row [{', '.join(f'{value:g}' for value in self.row[: self.size])}]",
            f"mean {found['mean']:.4f}, variance {found['variance']:.4f}, "
            f"deviation {found['deviation']:.4f}",
            f"result [{result}]",
            f"after block {self.block} of {DEPTH}:",
        ]
        for order, name in NAMES.items():
            variance, side = (self.depth()[order][key][self.block - 1] for key in KEYS)
            lines.append(f"{name}: variance {variance:.3f}, input × {side:.3f}")
        return "\n".join(lines)

    def still(self) -> Figure:
        found, depth = self.values(), self.depth()
        names = [f"$x_{r + 1}$" for r in range(self.size)]
        fig, axes = figures.panels(2, 2, width=7, height=4.6)
        row = self.row[: self.size]
        figures.bars(names, row, ax=axes[0], title="row", format="{:.4f}")
        figures.bars(names, found["result"], ax=axes[1], title="result", format="{:.4f}")
        axes[0].set_xlim(-8, 8)
        axes[1].set_xlim(-3, 3)
        titles = ("variance of a row", "what the side path leaves of the input")
        for ax, key, title in zip(axes[2:], KEYS, titles, strict=True):
            curves = {NAMES[o]: np.concatenate([[1], depth[o][key]]) for o in ("post", "pre")}
            figures.lines(range(DEPTH + 1), curves, ax=ax, xlabel="block ℓ", title=title)
        return fig


NAMES = {"post": "Post-LN", "pre": "Pre-LN", "closed": "Pre-LN, closing norm"}
KEYS = ("variance", "side")


def uniform(count: int, state: int) -> tuple[np.ndarray, int]:
    """Numbers from −1 to 1, the same as in the page, and the last state of their generator.

    A state follows from the one before by a linear congruence, s → a s + c modulo 2³².
    """
    a, c = 1664525, 1013904223
    states = np.array([(a * state + c) % 2**32], dtype=np.uint64)
    while len(states) < count:  # a and c lead from each state to the one len(states) further on
        states = np.concatenate([states, (a * states + c) % 2**32])
        a, c = a * a % 2**32, (a * c + c) % 2**32
    return states[:count] / 2**31 - 1, int(states[count - 1])


@functools.cache
def numbers() -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Input rows (8, 64) of variance 1, and for each block W₁ (256, 64) and W₂ (64, 256)."""
    drawn, state = uniform(ROWS * WIDTH, 1)
    matrices = []
    for _ in range(DEPTH):
        weights, state = uniform(2 * WIDTH * INNER, state)
        first, second = (weights * np.sqrt(6 / (WIDTH + INNER))).reshape(2, -1)
        matrices.append((first.reshape(INNER, WIDTH), second.reshape(WIDTH, INNER)))
    return normalise(drawn.reshape(ROWS, WIDTH))[0], matrices


def normalise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """LN of each row of x (n, d), and what it divided by (n,)."""
    deviation = np.sqrt(x.var(-1) + EPS)
    return (x - x.mean(-1, keepdims=True)) / deviation[:, None], deviation


@functools.cache
def stack() -> dict[str, dict[str, np.ndarray]]:
    """What a fresh stack does to its input in either order, and with Pre-LN's closing norm."""
    inputs, matrices = numbers()
    post, pre, kept = inputs, inputs, np.ones(ROWS)
    notes: dict[str, list[tuple[float, float]]] = {order: [] for order in NAMES}
    for first, second in matrices:

        def network(x: np.ndarray, first: np.ndarray = first, second: np.ndarray = second) -> Any:
            return np.maximum(x @ first.T, 0) @ second.T

        post, deviation = normalise(post + network(post))
        kept = kept / deviation
        pre = pre + network(normalise(pre)[0])
        closed, deviation = normalise(pre)
        notes["post"].append((post.var(-1).mean(), kept.mean()))
        notes["pre"].append((pre.var(-1).mean(), 1.0))
        notes["closed"].append((closed.var(-1).mean(), (1 / deviation).mean()))
    return {order: dict(zip(KEYS, np.array(rows).T, strict=True)) for order, rows in notes.items()}
