"""Time and peak memory of training steps and of attention, as one size grows at a time.

Written to data/runs/growth.json, which the appendix on growth draws.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from bench_memory import peak
from bench_rows import (
    WINDOW,
    Setting,
    Steps,
    backward,
    long_input,
    our_loss,
    teacher_batch,
)

from transformer import Transformer, TransformerConfig, sliding_window_attention
from transformer.attention import attention
from transformer.sliding_window import window_mask

CONFIG = TransformerConfig(4000, d_model=256, heads=4, d_ff=1024, layers=2, max_len=4096)
ROWS, LENGTH = 8, 64  # B, T
SWEEPS = {
    "length": [128, 256, 512, 1024, 2048, 4096],  # at B = 1
    "width": [64, 128, 256, 512, 1024],
    "layers": [1, 2, 4, 8, 16],
    "batch": [2, 4, 8, 16, 32, 64],
    "vocabulary": [1000, 4000, 16_000, 64_000],
}
ATTENTION = [1024, 2048, 4096, 8192, 16_384]
DENSE = 8192  # the longest of dense attention: its scores and mask grow with T²
TOY = {"batch": [1, 2]}


def case(
    sweep: str,
    value: int,
    config: TransformerConfig = CONFIG,
    rows: int = ROWS,
    length: int = LENGTH,
) -> tuple[TransformerConfig, int, int]:
    """Configuration, B and T of one point."""
    if sweep == "length":
        return config, 1, value
    if sweep == "width":
        return replace(config, d_model=value, d_ff=4 * value), rows, length
    if sweep == "layers":
        return replace(config, layers=value), rows, length
    if sweep == "batch":
        return config, value, length
    return replace(config, vocab_size=value), rows, length


def prepare_step(setting: Setting, config: TransformerConfig, rows: int, length: int) -> Any:
    """A training step."""
    torch.manual_seed(0)
    step = Steps(Transformer(config).to(setting.device), our_loss(0.1))
    return partial(step, *teacher_batch(setting, config, rows, length))


def prepare_attention(setting: Setting, kind: str, length: int) -> Any:
    """Causal attention, forward and backward: within a window, or dense."""
    inputs = long_input(setting, length)
    if kind == "window":
        attend = partial(sliding_window_attention, window=setting.size(WINDOW, 8))
    else:  # what the window replaces
        attend = partial(attention, mask=window_mask(length, WINDOW, device=setting.device))
    return partial(backward, attend, inputs)


def points(setting: Setting, prepared: dict[int, Any]) -> list[dict[str, Any]]:
    """Time and peak memory at each value."""
    works = {str(value): setting.timer(prepare()) for value, prepare in prepared.items()}
    result = setting.compete(works, rounds=5, share=3)
    return [
        {
            "value": value,
            "seconds": result.seconds[str(value)],
            "peak_bytes": peak(prepare, setting.device),
            "rounds": result.rounds,
            "dropped": result.dropped,
            "clean": result.clean,
        }
        for value, prepare in prepared.items()
    ]


def growth(setting: Setting) -> dict[str, Any]:
    """Every sweep."""
    record: dict[str, Any] = {"config": asdict(CONFIG), "rows": ROWS, "length": LENGTH, "steps": {}}
    size = setting.shrink(CONFIG), setting.size(ROWS, 2), setting.size(LENGTH, 4)
    for sweep, values in (TOY if setting.quick else SWEEPS).items():
        prepared = {
            value: partial(prepare_step, setting, *case(sweep, value, *size)) for value in values
        }
        record["steps"][sweep] = points(setting, prepared)
        print(f"{sweep}: {len(values)} points", flush=True)
    record["attention"] = {"heads": 8, "d_k": 64, "window": WINDOW}
    lengths = [16] if setting.quick else ATTENTION
    for kind in ("window", "dense"):
        prepared = {
            length: partial(prepare_attention, setting, kind, length)
            for length in lengths
            if kind == "window" or length <= DENSE
        }
        record["attention"][kind] = points(setting, prepared)
        print(f"{kind} attention: {len(prepared)} points", flush=True)
    return record
