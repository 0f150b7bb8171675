"""The peak memory of a work: in a fresh process, the most that was resident, less what was before.

`ru_maxrss` would not do: a child inherits its parent's. Linux keeps the peak of a process's own
memory (VmHWM) and forgets it on request. On a GPU, PyTorch's allocator keeps the count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
Prepare = Callable[[], Callable[[], object]]  # builds models and data, returns the work


def resident(kind: str) -> int:
    """Bytes of this process: "VmRSS" now, "VmHWM" at most."""
    found = re.search(rf"^{kind}:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    assert found, f"no {kind} in {STATUS}"
    return 1024 * int(found[1])


def observe(prepare: Prepare, threads: int, device: str) -> int:
    """Prepare and do the work twice, so that an optimiser has its state; the peak in bytes."""
    torch.set_num_threads(threads)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        warm = torch.ones(256, 256, requires_grad=True)  # the libraries' own buffers
        (warm @ warm).sum().backward()
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = resident("VmRSS")
    work = prepare()
    work()
    work()
    return (torch.cuda.max_memory_allocated() if device == "cuda" else resident("VmHWM")) - before


def peak(prepare: Prepare, device: str = "cpu") -> int:
    """Bytes at the peak of `prepare` and its work, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(observe, prepare, torch.get_num_threads(), device).result()
