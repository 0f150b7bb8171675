"""Measure the package beside its peers, on this machine.

    python tools/bench.py                every row; writes data/runs/bench-<machine>.json and .md
    python tools/bench.py train beam     the rows whose names begin so; prints only
    python tools/bench.py growth         time and memory as sizes grow; data/runs/growth.json
    python tools/bench.py --device cuda  on a GPU
    python tools/bench.py --quick        toy sizes: shows that all rows work, measures nothing

Peers are optional; a row whose peer is not installed says so. `bench_clock` says how time is
taken, `bench_rows` what is compared.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from bench_growth import growth
from bench_rows import (
    Measured,
    Setting,
    Skipped,
    backward,
    bfloat16_products,
    buckets,
    dense_written,
    forward,
    import_time,
    marian_loss,
    matrix_product,
    matrix_share,
    plain_pytorch,
    pytorch_loss,
    search_ceiling,
    search_marian,
    search_uncached,
    train_against,
    train_bfloat16,
    window_dense,
    window_memory,
    window_time,
)
from peers import PyTorchTransformer, marian

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "data" / "runs"


@dataclass(frozen=True)
class Row:
    """A line of the table: what is done, against whom, and the least (or most) to expect."""

    work: str
    versus: str
    goal: float | None
    run: Callable[[Setting], Measured]
    unit: str = "×"
    least: bool = True  # False: the goal is an upper bound
    device: str = ""  # the only one that has this row


ROWS = {
    "train-small-pytorch": Row(
        "train step, float32, small, 64 × 20", "nn.Transformer", 1.65,
        lambda s: train_against(s, s.small(), 64, 20, plain_pytorch, pytorch_loss),
    ),
    "train-small-alike": Row(
        "train step, float32, small, 64 × 20", "nn.Transformer, our dropouts only", None,
        lambda s: train_against(s, s.small(), 64, 20, PyTorchTransformer, pytorch_loss),
    ),
    "train-small-marian": Row(
        "train step, float32, small, 64 × 20, no smoothing", "Marian", 1.05,
        lambda s: train_against(s, s.small(), 64, 20, marian, marian_loss, smoothing=0.0),
    ),
    "train-base-pytorch": Row(
        "train step, float32, base, 8 × 64", "nn.Transformer", 1.5,
        lambda s: train_against(s, s.base(), 8, 64, plain_pytorch, pytorch_loss),
    ),
    "train-share": Row(
        "train step, float32, base, 8 × 64", "the float32 matrix rate", 0.62,
        lambda s: matrix_share(s, s.base(), 8, 64, torch.float32), "share",
    ),
    "train-bfloat16": Row(
        "train step, bfloat16, base, 8 × 64", "own float32", 1.8,
        lambda s: train_bfloat16(s, s.base(), 8, 64),
    ),
    "greedy-small": Row(
        "greedy, small, 64 sentences × 40", "Marian", 1.5,
        lambda s: search_marian(s, s.small(), 64, 1),
    ),
    "greedy-base": Row(
        "greedy, base, 64 sentences × 40", "Marian", 1.15,
        lambda s: search_marian(s, s.base(), 64, 1),
    ),
    "greedy-small-uncached": Row(
        "greedy, small, 64 sentences × 40", "own without cache", 4.0,
        lambda s: search_uncached(s, s.small()),
    ),
    "greedy-base-uncached": Row(
        "greedy, base, 64 sentences × 40", "own without cache", 7.0,
        lambda s: search_uncached(s, s.base()),
    ),
    "beam-small-1": Row(
        "beam 4, small, 1 sentence × 40", "Marian", 2.0,
        lambda s: search_marian(s, s.small(), 1, 4),
    ),
    "beam-small-64": Row(
        "beam 4, small, 64 sentences × 40", "Marian", 1.45,
        lambda s: search_marian(s, s.small(), 64, 4),
    ),
    "beam-base-1": Row(
        "beam 4, base, 1 sentence × 40", "Marian", 1.2,
        lambda s: search_marian(s, s.base(), 1, 4),
    ),
    "beam-base-64": Row(
        "beam 4, base, 64 sentences × 40", "Marian", 1.35,
        lambda s: search_marian(s, s.base(), 64, 4),
    ),
    "greedy-ceiling-64": Row(
        "greedy, small, 64 sentences × 40, one thread", "CTranslate2 float32", 0.55,
        lambda s: search_ceiling(s, s.size(64, 3)), device="cpu",
    ),
    "greedy-ceiling-1": Row(
        "greedy, small, 1 sentence × 40, one thread", "CTranslate2 float32", 0.24,
        lambda s: search_ceiling(s, 1), device="cpu",
    ),
    "buckets": Row(
        "token-bucketed batches, Tatoeba lengths, small, 1,000 real tokens", "random order", 2.3,
        buckets,
    ),
    "window-forward": Row(
        "sliding window 128, T 8,192, forward", "dense with band mask", 15.0,
        lambda s: window_dense(s, forward),
    ),
    "window-backward": Row(
        "sliding window 128, T 8,192, forward and backward", "dense with band mask", 12.0,
        lambda s: window_dense(s, backward),
    ),
    "window-time": Row(
        "sliding window 128, time, T 2,048 to 16,384", "T to this power", 1.3, window_time,
        "exponent", least=False,
    ),
    "window-memory": Row(
        "sliding window 128, peak memory, T 2,048 to 16,384", "T to this power", 1.3,
        window_memory, "exponent", least=False,
    ),
    "import": Row(
        "import transformer", "on top of import torch", 0.15, import_time, "s", least=False,
        device="cpu",
    ),
    "large-pytorch": Row(
        "train step, float32, base, V 37,000, 512 × 64", "nn.Transformer", None,
        lambda s: train_against(s, s.large(), 512, 64, plain_pytorch, pytorch_loss), device="cuda",
    ),
    "large-bfloat16": Row(
        "train step, bfloat16, base, V 37,000, 512 × 64", "own float32", None,
        lambda s: train_bfloat16(s, s.large(), 512, 64), device="cuda",
    ),
    "large-share": Row(
        "train step, bfloat16, base, V 37,000, 512 × 64", "the bfloat16 matrix rate", None,
        lambda s: matrix_share(s, s.large(), 512, 64, torch.bfloat16), "share", device="cuda",
    ),
    "dense-forward": Row(
        "causal attention, bfloat16, T 8,192, forward", "written out", None,
        lambda s: dense_written(s, forward), device="cuda",
    ),
    "dense-backward": Row(
        "causal attention, bfloat16, T 8,192, forward and backward", "written out", None,
        lambda s: dense_written(s, backward), device="cuda",
    ),
}  # fmt: skip


def processor() -> str:
    """The processor's own name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def matrix_rates(setting: Setting) -> dict[str, float]:
    """TFLOP/s of the fastest plain matrix product, by number format."""
    formats = [torch.float32]
    if setting.device.type == "cuda" or bfloat16_products():
        formats.append(torch.bfloat16)
    rates = {}
    for dtype in formats:
        product, flops = matrix_product(setting, dtype)
        seconds = min(setting.timer(product)(3).seconds for _ in range(5))
        rates[str(dtype).removeprefix("torch.")] = round(flops / seconds / 1e12, 4)
    return rates


def machine(setting: Setting) -> dict[str, Any]:
    """What a reader must know to place the numbers."""
    facts = {
        "processor": processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if setting.device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    return {**facts, "matrix_tflops_per_s": matrix_rates(setting)}


def kind(facts: dict[str, Any]) -> str:
    """The machine's name in a file name."""
    name = facts.get("gpu") or f"{facts['processor']} {facts['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def measure(row: Row, setting: Setting) -> dict[str, Any]:
    """What a row's record says."""
    stated = {"work": row.work, "versus": row.versus, "goal": row.goal, "unit": row.unit}
    stated["goal_is"] = "least" if row.least else "most"
    try:
        return {**stated, **asdict(row.run(setting))}
    except Skipped as reason:
        return {**stated, "skipped": str(reason)}


def line(record: dict[str, Any]) -> str:
    """One line of the Markdown table."""
    unit = record["unit"]
    goal = "–"
    if record["goal"] is not None:
        goal = f"{'≥' if record['goal_is'] == 'least' else '≤'} {number(record['goal'], unit)}"
    cells = [record["work"], record["versus"]]
    if "skipped" in record:
        return "| " + " | ".join([*cells, "–", "–", record["skipped"], goal, "–", "–"]) + " |"
    low, middle, high = record["ratio"]
    cells += [time_of(record["ours"]), time_of(record["theirs"])]
    mark = "" if record["clean"] else " (busy machine)"
    cells.append(f"**{number(middle, unit)}** ({number(low, unit)} to {number(high, unit)}){mark}")
    cells += [goal, record["same"] or "–", f"{record['rounds']} ({record['dropped']})"]
    return "| " + " | ".join(cells) + " |"


def number(value: float, unit: str) -> str:
    """A ratio, a share, an exponent or seconds, as people write it."""
    if unit == "share":
        return f"{100 * value:.0f} %"
    if unit == "×":
        return f"{value:.2f}×"
    return f"{value:.2f} s" if unit == "s" else f"{value:.2f}"


def time_of(seconds: float | None) -> str:
    """Milliseconds, or seconds from one up."""
    if seconds is None:
        return "–"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


HEADER = "| work | versus | ours | theirs | ratio (quartiles) | goal | equal | rounds (dropped) |"


def table(record: dict[str, Any]) -> str:
    """The record as Markdown."""
    facts = record["machine"]
    rates = " and ".join(
        f"{1000 * rate:.0f} GFLOP/s in {name}"
        for name, rate in facts["matrix_tflops_per_s"].items()
    )
    place = f"{facts.get('gpu', facts['processor'])}, {facts['cores']} cores, {facts['threads']}"
    return "\n".join(
        [
            f"{record['date']}, {place} threads, torch {facts['torch']}; "
            f"plain matrix products at {rates}.",
            "",
            HEADER,
            "|" + "---|" * HEADER.count(" | ") + "---|",
            *(line(row) for row in record["rows"].values()),
            "",
        ]
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help=f"beginnings of {', '.join(ROWS)}; or: growth")
    parser.add_argument("--quick", action="store_true", help="toy sizes; measures nothing")
    parser.add_argument("--tatoeba", type=Path, help="folder that holds Tatoeba's cmn.txt")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds a row, about")
    parser.add_argument("--threads", type=int, help="instead of PyTorch's own choice")
    parser.add_argument("--output", type=Path, help="write the record here (.json, and .md)")
    given = parser.parse_args()
    for start in given.rows:
        if start != "growth" and not any(name.startswith(start) for name in ROWS):
            parser.error(f"no row begins with {start!r}: {', '.join(ROWS)}")
    return given


def write(path: Path, record: dict[str, Any]) -> None:
    """Write the record as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {path}", file=sys.stderr)


def main() -> None:
    """Run the benchmark."""
    given = arguments()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device here: nothing measured")
    if given.threads:
        torch.set_num_threads(given.threads)
    setting = Setting(torch.device(given.device), given.quick, given.tatoeba, given.budget)
    start = time.monotonic()
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "quick": given.quick,
        "machine": machine(setting),
    }
    if "growth" in given.rows:
        record |= growth(setting)
        if given.output or not given.quick:
            name = "growth" if given.device == "cpu" else f"growth-{kind(record['machine'])}"
            write(given.output or RUNS / f"{name}.json", record)
        return
    record["rows"] = {}
    print(table(record), end="", flush=True)
    for name, row in ROWS.items():
        asked = not given.rows or any(name.startswith(start) for start in given.rows)
        if asked and (row.device in ("", given.device) or given.quick):
            record["rows"][name] = measure(row, setting)
            print(line(record["rows"][name]), flush=True)
    record["minutes"] = round((time.monotonic() - start) / 60, 1)
    path = given.output
    if not path and not given.rows and not given.quick:
        path = RUNS / f"bench-{kind(record['machine'])}.json"
    if path:
        write(path, record)
        path.with_suffix(".md").write_text(table(record), encoding="utf-8")


if __name__ == "__main__":
    main()
