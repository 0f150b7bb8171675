"""Run every check, one after the other, and count what passed.

    python tools/check.py

A failing check does not stop the others. The last line adds them up; the exit code is 1 unless
everything passed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = [str(BIN / "pytest"), "-q", "-rs", "--color=no", "-n", "2"]
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", "nbval.cfg"]

# xdist must keep a notebook's cells together: they share a kernel
STEPS = {
    "lint": [str(BIN / "ruff"), "check", "."],
    "types": [str(BIN / "mypy")],
    "tests": [*PYTEST, "--durations=5", "tests"],
    "notebooks": [*PYTEST, *NBVAL, "--dist", "loadfile", "chapters"],
    "book": ["make", "--no-print-directory", "book"],
}
PYTEST_CLOSING = re.compile(r"^=* ?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s")


def run(name: str, command: list[str]) -> Counter[str]:
    """Run one check, showing its output; how many passed, failed and were skipped."""
    print(f"\n=== {name}: {' '.join(Path(part).name for part in command)}", flush=True)
    start = time.perf_counter()
    count: Counter[str] = Counter()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            closing = PYTEST_CLOSING.match(line)
            if closing:
                parts = (part.split() for part in closing[1].split(", "))
                count = Counter({word.removesuffix("s"): int(number) for number, word in parts})
    if not count and not process.returncode:
        count["passed"] = 1  # a check that does not count
    count["failed"] += count.pop("error", 0)
    if process.returncode and not count["failed"]:
        count["failed"] = 1  # a check that does not count, or pytest did not come to its end
    print(f"--- {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return count


def main() -> int:
    """Run all steps; 1 if any failed."""
    start = time.perf_counter()
    total: Counter[str] = Counter()
    failed = []
    for name, command in STEPS.items():
        count = run(name, command)
        total += count
        if count["failed"]:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    minutes, seconds = divmod(round(time.perf_counter() - start), 60)
    print(
        f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped"
        f" in {minutes} min {seconds} s"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
