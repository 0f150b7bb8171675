"""The interactive figures, which live in book/widgets: `from widgets.attention import …`."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parent.parent / "book" / "widgets")]
