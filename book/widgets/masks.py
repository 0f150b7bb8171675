"""Chapters 9 and 12: who may read whom, why, and how far a message travels through layers."""

from __future__ import annotations

from typing import Any

import figures
import numpy as np
import traitlets
from matplotlib.figure import Figure
from widgets.frame import HERE, Widget, script

TARGET = ["<bos>", "starts", "working"]
SOURCE = ["小明", "开始", "工作"]  # Xiaoming, starts, work
WORDS, PADS = 10, 3  # the longest sentence, the most padding
SIDE = WORDS + PADS
LIMITS = {
    "target": (1, WORDS),
    "target_pads": (0, PADS),
    "source": (1, WORDS),
    "source_pads": (0, PADS),
    "window": (1, SIDE),
    "layers": (1, 6),
}


class MaskExplorer(Widget):
    """Causal, padding and window mask of self- or cross-attention; one cell of it in words."""

    _esm = script("masks")
    _css = Widget._css + (HERE / "masks.css").read_text(encoding="utf-8")
    target_words = traitlets.List(traitlets.Unicode(), TARGET).tag(sync=True)
    source_words = traitlets.List(traitlets.Unicode(), SOURCE).tag(sync=True)
    cross = traitlets.Bool(False).tag(sync=True)
    target = traitlets.Int(3).tag(sync=True)
    target_pads = traitlets.Int(1).tag(sync=True)
    source = traitlets.Int(3).tag(sync=True)
    source_pads = traitlets.Int(2).tag(sync=True)
    left = traitlets.Bool(False).tag(sync=True)
    causal = traitlets.Bool(True).tag(sync=True)
    padding = traitlets.Bool(True).tag(sync=True)
    windowed = traitlets.Bool(False).tag(sync=True)
    window = traitlets.Int(2).tag(sync=True)
    layers = traitlets.Int(2).tag(sync=True)
    cell = traitlets.List(traitlets.Int(), [1, 2]).tag(sync=True)

    @traitlets.validate(*LIMITS)
    def _check_number(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        low, high = LIMITS[name]
        if not low <= value <= high:
            raise ValueError(f"{name} {value}, need {low} to {high}")
        return value

    @traitlets.validate("cell")
    def _check_cell(self, proposal: Any) -> list[int]:
        cell = proposal["value"]
        if len(cell) != 2 or not all(0 <= place < SIDE for place in cell):
            raise ValueError(f"cell {cell}, need two places from 0 to {SIDE - 1}")
        return cell

    def names(self, side: str) -> list[str]:
        """The tokens of "target" or "source": a word, "<pad>", or "" where no word is given."""
        count, filling = getattr(self, side), getattr(self, f"{side}_pads")
        given = getattr(self, f"{side}_words")
        words = [given[k] if k < len(given) else "" for k in range(count)]
        pads = ["<pad>"] * filling
        return pads + words if self.left else words + pads

    def read(self) -> list[str]:
        """The tokens that are read."""
        return self.names("source" if self.cross else "target")

    def picked(self) -> tuple[int, int]:
        """The cell in question; the last one where the grid no longer reaches so far."""
        last = len(self.names("target")) - 1, len(self.read()) - 1
        i, j = (min(pair) for pair in zip(self.cell, last, strict=True))
        return i, j

    def parts(self) -> dict[str, np.ndarray]:
        """The masks in use, each by itself, True = may be read (T, S)."""
        keys = self.read()
        distance = np.arange(len(self.names("target")))[:, None] - np.arange(len(keys))  # i − j
        found = {}
        if self.causal and not self.cross:
            found["causal"] = distance >= 0
        if self.padding:
            found["padding"] = np.broadcast_to([key != "<pad>" for key in keys], distance.shape)
        if self.windowed and not self.cross:
            found["window"] = np.abs(distance) < self.window
        return found

    def mask(self) -> np.ndarray:
        """What all of them allow (T, S)."""
        shape = len(self.names("target")), len(self.read())
        return np.logical_and.reduce([np.ones(shape, dtype=bool), *self.parts().values()])

    def field(self) -> np.ndarray:
        """Positions that the output in question can depend on (L + 1, T): from it to the inputs.

        A residual connection brings every position its own input. Self-attention only.
        """
        own = np.eye(len(self.names("target")), dtype=bool)
        reached = [own[self.picked()[0]]]
        for _ in range(self.layers):
            reached.append(reached[-1] @ (self.mask() | own))
        return np.array(reached)

    def verdict(self) -> str:
        """Whether the query of the picked cell may read its key, and why not."""
        i, j = self.picked()
        away = abs(i - j)
        words = {
            "causal": "it stands later",
            "padding": "it is padding",
            "window": f"it is {away} place{'' if away == 1 else 's'} away, "
            f"and the window reaches {self.window - 1}",
        }
        query, key = self.names("target")[i], self.read()[j]
        query, key = f"Query {i}{query and f' ({query})'}", f"key {j}{key and f' ({key})'}"
        against = [words[name] for name, mask in self.parts().items() if not mask[i, j]]
        line = f"{query} may read {key}."
        if against:
            line = f"{query} may not read {key}: {'; '.join(against)}."
        if not self.mask()[i].any():
            line += " This query may read nothing: attention gives it zeros."
        return line

    def hearing(self) -> str:
        """How far the output of the query in question can hear."""
        i, _ = self.picked()
        if self.cross:
            heard = self.mask()[i].sum()
            return (
                f"Every layer reads the encoder's output: after one, output {i} can depend on "
                f"{heard} of {len(self.read())} source positions."
            )
        reached = self.field()[-1]
        return (
            f"After {self.layers} layer{'' if self.layers == 1 else 's'}, output {i} can depend on "
            f"{reached.sum()} of {len(reached)} inputs: {runs(reached)}."
        )

    def text(self) -> str:
        names = self.names("target")
        used = " and ".join(self.parts()) or "no"
        kind = "cross-attention" if self.cross else "self-attention"
        lines = [f"{kind}, {used} mask, {self.mask().shape[0]} × {self.mask().shape[1]}"]
        lines += [
            f"{' '.join(str(int(may)) for may in row)}  {i}{name and f' {name}'}"
            for i, (row, name) in enumerate(zip(self.mask(), names, strict=True))
        ]
        return "\n".join([*lines, self.verdict(), self.hearing()])

    def still(self) -> Figure:
        rows, columns = (
            [f"{i} {name}".rstrip() for i, name in enumerate(names)]
            for names in (self.names("target"), self.read())
        )
        panels, width = (1, 4) if self.cross else (2, 7)
        fig, axes = figures.panels(1, panels, width=width, height=3.2)
        figures.mask_plot(self.mask(), rows, columns, ax=axes[0], title="may read")
        axes[0].tick_params(axis="x", rotation=90)
        if not self.cross:
            below = [f"layer {n}" for n in range(self.layers, 0, -1)] + ["input"]
            places = [str(i) for i in range(len(rows))]
            title = f"output {self.picked()[0]} can depend on"
            figures.mask_plot(
                self.field(), below, places, ax=axes[1], title=title, xlabel="position", ylabel=""
            )
        return fig


def runs(reached: np.ndarray) -> str:
    """Places in short: 0 to 3, 7, 8."""
    places = np.flatnonzero(reached)
    groups = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return ", ".join(
        f"{group[0]} to {group[-1]}" if len(group) > 2 else ", ".join(map(str, group))
        for group in groups
    )
