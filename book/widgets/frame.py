"""What every interactive figure of the book is: a Python class, a JavaScript file, this frame.

The figure computes in the browser, so it lives on a page without a kernel. In Jupyter its traits
are synchronised both ways. Python computes the same values once more, as text (which is stored,
compared on the next run, and read where the figure cannot be) and as a still picture.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import anywidget
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent


def script(name: str) -> str:
    """The JavaScript of one widget with the shared part before it: a page finds no second file."""
    parts = [(HERE / f"{part}.js").read_text(encoding="utf-8") for part in ("frame", name)]
    return "\n".join(parts)


class Widget(anywidget.AnyWidget):
    """An interactive figure. A subclass gives `_esm`, traits, `text` and `still`."""

    _esm: Any
    _css = (HERE / "frame.css").read_text(encoding="utf-8")

    def text(self) -> str:
        """The values that the figure shows, as lines of text."""
        raise NotImplementedError

    def still(self) -> Figure:
        """The figure as a picture, for paper and for pages without JavaScript."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        data, metadata = super()._repr_mimebundle_(**kwargs)
        svg = io.StringIO()
        self.still().savefig(
            svg, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None}
        )
        return {**data, "text/plain": self.text(), "image/svg+xml": svg.getvalue()}, metadata
