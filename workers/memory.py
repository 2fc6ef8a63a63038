"""Memory of this process: what it holds, and whether an unloaded model gave its share back."""

import resource
from pathlib import Path

PAGE_BYTES = resource.getpagesize()

#: Less than this is not worth a restart, in bytes: it is within what an allocator keeps for itself.
WORTHWHILE_BYTES = 64 << 20

#: A runtime that gives back less than this share of a model's weight keeps it.
GIVEN_BACK_SHARE = 0.5


def resident_bytes() -> int:
    """Bytes of memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def keeps_memory(before_bytes: int, after_bytes: int, model_bytes: int) -> bool:
    """Whether a process still holds what a model took, after it was unloaded: only its end gives that back."""
    if model_bytes < WORTHWHILE_BYTES:
        return False
    return before_bytes - after_bytes < GIVEN_BACK_SHARE * model_bytes
