"""The peak memory of a work, by PyTorch's own account of what it allocated.

It counts tensors and the kernels' own buffers, and is the same on each run; the process as a whole
takes more: the interpreter, the libraries, and holes between blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells of its start and end

import torch
from torch.profiler import ProfilerActivity, profile

Prepare = Callable[[], Callable[[], object]]  # builds models and data, returns the work


def peak(prepare: Prepare, device: torch.device) -> int:
    """Bytes at the peak of `prepare` and its work, done twice so that an optimiser has its state.

    Nothing that was allocated before counts, as long as none of it is freed meanwhile.
    """
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        twice(prepare)
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        twice(prepare)
    assert profiler.profiler and profiler.profiler.kineto_results
    events = profiler.profiler.kineto_results.events()
    changes = sorted(
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    )
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


def twice(prepare: Prepare) -> None:
    """Prepare, and do the work two times."""
    work = prepare()
    work()
    work()
