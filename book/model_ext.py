"""The trained translator, as the one file that its widget loads when a reader first asks for it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from sphinx.application import Sphinx

MODEL = Path(__file__).resolve().parent / "model"


def page_script(folder: Path = MODEL) -> str:
    """A script that assigns the model to a global: a page opened by double click can load no data.

    Holds what stands in config.json and vocabulary.json, and weights.safetensors in base64.
    """
    model = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("config", "vocabulary")
    }
    weights = base64.b64encode((folder / "weights.safetensors").read_bytes()).decode()
    whole = json.dumps({**model, "weights": weights}, ensure_ascii=False, separators=(",", ":"))
    return f"window.bookTranslator = {whole};\n"


def write_model(app: Sphinx, exception: Exception | None) -> None:
    """Put it beside the pages, and not under _static/, whose scripts every page loads."""
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir, "translator")
    folder.mkdir(exist_ok=True)
    (folder / "model.js").write_text(page_script(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", write_model)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
