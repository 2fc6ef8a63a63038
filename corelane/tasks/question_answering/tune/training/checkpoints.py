"""Checkpoints of a run: the weights and the optimiser's state in one file, the run's own record in its head.

A checkpoint is complete or does not exist: it is written under another name, synced to disk, and renamed. The last two
are kept, so a damaged disk block costs only a few minutes of a run.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from corelane.errors import SetupError

#: Checkpoints that are kept.
KEPT = 2

PATTERN = "step-*.safetensors"


def write_checkpoint(folder: Path, step: int, state: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Write the state after a step, with a record of plain data, and remove all but the last two checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / f"step-{step:08d}.safetensors", state, record)
    for old in sorted(folder.glob(PATTERN))[:-KEPT]:
        old.unlink()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Write tensors and a record of plain data as one file, atomically; raise SetupError if that fails."""
    new = path.with_name(f".{path.name}.new")
    try:
        save_file({name: each.contiguous() for name, each in tensors.items()}, new, {"record": json.dumps(record)})
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.rename(path)
    except (OSError, SafetensorError) as error:
        raise SetupError(f"{path} cannot be written: {error}; make room, then give the same command again") from None
    entry = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the record of a file; raise OSError or SafetensorError if it is damaged."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["record"])  # noqa: SIM118


def last_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the state and the record of the last intact checkpoint; None without one."""
    for path in sorted(folder.glob(PATTERN), reverse=True):
        with suppress(OSError, SafetensorError, ValueError, KeyError):
            return read_tensors(path)
    return None
