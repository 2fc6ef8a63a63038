"""The refusal of work for which Redis has no memory."""

import re

from corelane.errors import StoreFull

#: How ``admission.lua`` refuses: the bytes that are used, those that results will take, and the limit.
REFUSED = re.compile(r"MEMORYFULL (\d+) (\d+) (\d+)")


def memory_full(text: str) -> StoreFull:
    """Return the error for an error reply, by what it says of the memory."""
    said = "Redis' memory is full"
    if found := REFUSED.search(text):
        used, reserved, limit = (int(size) / 1e6 for size in found.groups())
        needed = f"{used:,.0f} MB are used, and results of what was accepted will take {reserved:,.0f} MB"
        said = f"Redis' memory of {limit:,.0f} MB is full but for a tenth: {needed}"
    return StoreFull(
        f"{said}; nothing was kept. There is room again when results expire, or are deleted: delete final jobs that "
        "you have read, or have the operator raise `maxmemory`"
    )
