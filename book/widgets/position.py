"""Chapter 3: the encoding of a place, its waves, and what two places have in common."""

from __future__ import annotations

from typing import Any

import figures
import numpy as np
import traitlets
from matplotlib.figure import Figure
from widgets.frame import Widget, script

LAST = 60  # places 0 to 60
WIDTHS = [4, 8, 16, 32, 64, 128]
BASES = [10, 100, 1_000, 10_000, 100_000]


class PositionExplorer(Widget):
    """One place of the encoding, beside another: waves, row, dot product against distance."""

    _esm = script("position")
    place = traitlets.Int(7).tag(sync=True)
    other = traitlets.Int(12).tag(sync=True)
    width = traitlets.Int(32).tag(sync=True)
    base = traitlets.Int(10_000).tag(sync=True)

    @traitlets.validate("place", "other")
    def _check_place(self, proposal: Any) -> int:
        if not 0 <= proposal["value"] <= LAST:
            raise ValueError(f"{proposal['trait'].name} {proposal['value']}, need 0 to {LAST}")
        return proposal["value"]

    @traitlets.validate("width", "base")
    def _check_choice(self, proposal: Any) -> int:
        allowed = {"width": WIDTHS, "base": BASES}[proposal["trait"].name]
        if proposal["value"] not in allowed:
            raise ValueError(f"{proposal['trait'].name} {proposal['value']}, need one of {allowed}")
        return proposal["value"]

    def encoding(self, places: Any) -> np.ndarray:
        """Rows of the encoding for these places (T, d)."""
        omega = float(self.base) ** (-np.arange(0, self.width, 2) / self.width)  # (d/2,)
        angle = np.asarray(places, dtype=float)[:, None] * omega
        return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(len(angle), self.width)

    def products(self) -> np.ndarray:
        """Dot product of the place with each of the places 0 to 60 (61,)."""
        code = self.encoding(range(LAST + 1))
        return code @ code[self.place]

    def coordinates(self) -> list[int]:
        """The even coordinates whose waves are drawn: at most four, from the fast half."""
        step = max(2, self.width // 8)
        return list(range(0, self.width, step))[:4]

    def text(self) -> str:
        row, products = self.encoding([self.place])[0], self.products()
        lines = [f"place {self.place}, d = {self.width}, base {self.base:,}"]
        for c in self.coordinates():
            sin, cos = row[c : c + 2]
            lines.append(
                f"coordinates {c} and {c + 1}: sin {sin:.4f}, cos {cos:.4f}, "
                f"one turn in {2 * np.pi * self.base ** (c / self.width):,.1f} places"
            )
        lines += [
            f"dot product with itself {products[self.place]:.4f}",
            f"dot product with place {self.other} {products[self.other]:.4f}",
        ]
        return "\n".join(lines)

    def still(self) -> Figure:
        code = self.encoding(places := np.linspace(0, LAST, 181))
        fig, axes = figures.panels(1, 2, width=7, height=2.9)
        waves = {f"{c}": code[:, c] for c in self.coordinates()}
        figures.lines(places, waves, ax=axes[0], xlabel="place p", title="coordinates")
        figures.lines(
            np.arange(LAST + 1) - self.place,
            {"": self.products()},
            ax=axes[1],
            xlabel=f"distance from place {self.place}",
            title="dot product",
        )
        return fig
