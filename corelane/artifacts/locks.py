"""File locks, which end with the process that holds them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a file for the block; yield whether that succeeded. It fails on a file system without locks."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_held = True
        except OSError:
            is_held = False
        yield is_held
    finally:
        os.close(descriptor)
