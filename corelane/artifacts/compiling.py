"""A mark in a data folder while `serve` compiles its default model, so that workers may start beside the compiler.

The mark is a lock, which ends with the process that holds it. Workers import their libraries meanwhile, and wait for
its end before they look for the model.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK_NAME = "compiling.lock"


@contextmanager
def compiling(folder: Path) -> Iterator[bool]:
    """Mark the block; yield whether workers will see that, which takes a file system with locks."""
    lock = None
    with suppress(OSError):
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if lock is None:
            yield False
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        if lock is not None:
            os.close(lock)


def wait_for_compiler(folder: Path) -> None:
    """Wait while the default model of a data folder is compiled."""
    with suppress(OSError):
        lock = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)
