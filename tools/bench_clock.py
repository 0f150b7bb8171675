"""Time two ways of doing the same work, side by side, on a machine that others may use.

A slice is some calls of one work in a row. A round is one slice of each work, each round in the
opposite order of the one before, so that a slow change of the machine's clock falls on both. What
is reported is the median of the rounds' ratios, and their quartiles. A round in which another
process took CPU time is dropped, and counted.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

FOREIGN = 0.03  # cores that others may use in a clean slice …
TICKS = 0.03  # … and CPU seconds besides: the system counts in hundredths, on each core


@dataclass(frozen=True)
class Slice:
    """Some calls of one work in a row."""

    seconds: float  # a call
    foreign: float  # CPU seconds of other processes meanwhile
    wall: float  # seconds of the whole slice

    @property
    def clean(self) -> bool:
        """Whether the machine was ours."""
        return self.foreign <= TICKS + FOREIGN * self.wall


Timer = Callable[[int], Slice]  # calls -> slice


def busy_cpu() -> float:
    """CPU seconds that all processes of the machine have used since it started."""
    times = psutil.cpu_times()._asdict()
    return sum(
        seconds
        for kind, seconds in times.items()
        if kind not in ("idle", "iowait", "guest", "guest_nice")  # guests stand in "user" too
    )


def timer(work: Callable[[], object], wait: Callable[[], object] = bool) -> Timer:
    """Time calls of `work` in this process; `wait` returns when a GPU has nothing left to do."""

    def measure(calls: int) -> Slice:
        wait()
        busy, own, start = busy_cpu(), time.process_time(), time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        wall = time.perf_counter() - start
        foreign = busy_cpu() - busy - (time.process_time() - own)
        return Slice(wall / calls, max(0.0, foreign), wall)

    return measure


@dataclass(frozen=True)
class Result:
    """Median seconds a call of each work, and of the ratio of the others to the first."""

    seconds: dict[str, float]
    ratios: dict[str, tuple[float, float, float]]  # lower quartile, median, upper quartile
    rounds: int
    dropped: int
    clean: bool  # False: the machine was never ours, the rounds kept are those least disturbed


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def compete(works: Mapping[str, Timer], rounds: int, slice_seconds: float, budget: float) -> Result:
    """Time the works in turns until `rounds` clean ones are there, or `budget` seconds are over.

    `slice_seconds` is the least that a slice takes. Each work is called twice before it counts.
    """
    calls = {}
    for name, measure in works.items():
        measure(1)
        calls[name] = max(1, math.ceil(slice_seconds / measure(1).seconds))
    order, end, clean = list(works), time.monotonic() + budget, 0
    done: list[dict[str, Slice]] = []
    while not done or (clean < rounds and time.monotonic() < end):
        done.append({name: works[name](calls[name]) for name in order})
        clean += all(part.clean for part in done[-1].values())
        order.reverse()
    kept = [each for each in done if all(part.clean for part in each.values())]
    if len(kept) < min(3, rounds):  # too few: those in which others took least
        done.sort(key=lambda each: sum(part.foreign / part.wall for part in each.values()))
        kept = done[:rounds]
    first = next(iter(works))
    return Result(
        {name: statistics.median(each[name].seconds for each in kept) for name in works},
        {
            name: quartiles([each[name].seconds / each[first].seconds for each in kept])
            for name in works
            if name != first
        },
        len(kept),
        len(done) - len(kept),
        all(part.clean for each in kept for part in each.values()),
    )
