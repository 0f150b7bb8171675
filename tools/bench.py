"""Measure the package beside its peers, on this machine.

    python tools/bench.py                every row; writes data/runs/bench-<machine>.json and .md
    python tools/bench.py train beam     the rows whose names begin so; prints only
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from bench_rows import ROWS, Row, Setting, Skipped, bfloat16_products, matrix_product

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "data" / "runs"


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
    """Milliseconds, or seconds from ten up."""
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds >= 10 else f"{1000 * seconds:.3g} ms"


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


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help=f"beginnings of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="toy sizes; measures nothing")
    parser.add_argument("--tatoeba", type=Path, help="folder that holds Tatoeba's cmn.txt")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, help="instead of PyTorch's own choice")
    parser.add_argument("--output", type=Path, help="write the record here (.json, and .md)")
    arguments = parser.parse_args()
    chosen = [
        name
        for name in ROWS
        if not arguments.rows or any(name.startswith(start) for start in arguments.rows)
    ]
    for start in arguments.rows:
        if not any(name.startswith(start) for name in ROWS):
            parser.error(f"no row begins with {start!r}: {', '.join(ROWS)}")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    setting = Setting(torch.device(arguments.device), arguments.quick, arguments.tatoeba)
    start = time.monotonic()
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "quick": arguments.quick,
        "machine": machine(setting),
        "rows": {},
    }
    print(table(record), end="", flush=True)
    for name in chosen:
        record["rows"][name] = measure(ROWS[name], setting)
        print(line(record["rows"][name]), flush=True)
    record["minutes"] = round((time.monotonic() - start) / 60, 1)
    path = arguments.output
    if not path and not arguments.rows and not arguments.quick:
        path = RUNS / f"bench-{kind(record['machine'])}.json"
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(table(record), encoding="utf-8")
        print(f"\n{record['minutes']} minutes; written: {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
