"""File locks, which end with the process that holds them, and the mark of `serve` while it compiles its model.

Workers start beside the compiler, import their libraries meanwhile, and wait for its end before they look for the
model.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

COMPILING_NAME = "compiling.lock"


@contextmanager
def locked(path: Path, operation: int = fcntl.LOCK_EX, *, create: bool = True) -> Iterator[bool]:
    """Lock a file for the block; yield whether that succeeded. It fails on a file system without locks."""
    flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, operation)
            is_held = True
        except OSError:
            is_held = False
        yield is_held
    finally:
        os.close(descriptor)


def compiling(folder: Path) -> AbstractContextManager[bool]:
    """Mark a data folder for the block; yield whether workers can see the mark."""
    return locked(folder / COMPILING_NAME, fcntl.LOCK_EX | fcntl.LOCK_NB)


def wait_for_compiler(folder: Path) -> None:
    """Wait while the default model of a data folder is compiled."""
    with locked(folder / COMPILING_NAME, fcntl.LOCK_SH, create=False):
        return
