"""Memory of this process."""

import resource
from pathlib import Path

PAGE_BYTES = resource.getpagesize()


def resident_bytes() -> int:
    """Bytes of memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
