"""Time passes on one thread, with the allocator set as in a worker.

A whole build uses one thread: on a busy machine, threads that wait for each other are far slower than one. With glibc's
default thresholds, a dtype that makes many large tensors seems up to a third slower than in service.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch

from corelane.engine.cores import keep_memory

#: Passes that are timed.
TIMED_PASSES = 5

Key = TypeVar("Key", bound=Hashable)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread for the block. From then on the process keeps memory that it freed."""
    keep_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def median_seconds(passes: Mapping[Key, Callable[[], object]]) -> dict[Key, float]:
    """Return the median time of each pass. Each must have run before.

    The passes take turns, so that a busy moment of the machine slows all of them.
    """
    times: dict[Key, list[float]] = {key: [] for key in passes}
    for _ in range(TIMED_PASSES):
        for key, run in passes.items():
            started = time.perf_counter()
            run()
            times[key].append(time.perf_counter() - started)
    return {key: statistics.median(taken) for key, taken in times.items()}
