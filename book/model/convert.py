"""Write the translator that ships with the book: a trained run, its weights in half precision.

    python book/model/convert.py runs/chapter15
"""

import sys
from pathlib import Path

import torch

from transformer.training import PARTS, load, named_weights, parts_digest, write_tensors

HERE = Path(__file__).resolve().parent


def convert(run: Path, folder: Path = HERE) -> None:
    """Copy a run folder, each weight rounded to float16; ValueError if one does not fit."""
    model, _ = load(run)
    halves = {name: weight.detach().half() for name, weight in named_weights(model).items()}
    for name, half in halves.items():
        if not torch.isfinite(half).all():
            raise ValueError(f"{name}: a weight is past float16's limit of 65504")
    for part in PARTS[:2]:
        (folder / part).write_bytes((run / part).read_bytes())
    write_tensors(folder / PARTS[2], halves, {"parts": parts_digest(folder)})


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
