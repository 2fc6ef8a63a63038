"""Publish an artifact completely or not at all: write it to a folder aside, then rename that folder.

A failure on the way (a full disk, Ctrl-C) leaves the artifacts as they were, and no other files. Only a killed
process leaves its folder behind. A later build removes that folder once it is too old to be in use.
"""

import errno
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from corelane.artifacts.calibration import CALIBRATION_NAME, SHIPPED_NAME, carry_calibration
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, Manifest, artifact_folders, read_artifact
from corelane.errors import CompileFailed

#: Prefixes of unfinished folders and of artifacts being replaced. No artifact's name begins with a dot.
BUILDING, REPLACED = ".building-", ".replaced-"

#: Age in seconds. No build takes this long, so an older unfinished folder belongs to a killed process.
ABANDONED_S = 24 * 3600

#: The disk or the user's quota is used up, or the file is larger than allowed.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def building(root: Path, needs_bytes: int) -> Iterator[Path]:
    """Make a folder below ``root``, and remove it after the block if it is still there; raises CompileFailed."""
    aside = root / f"{BUILDING}{secrets.token_hex(6)}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _clear_abandoned(root)
        aside.mkdir()
        yield aside
    except OSError as error:
        if error.errno in FULL:
            needed = f"the artifact needs about {needs_bytes / 1e6:.0f} MB"
            raise CompileFailed(f"the disk is full at {root}; {needed}: nothing was kept") from error
        raise CompileFailed(f"cannot write the artifact in {root}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def publish_artifact(aside: Path, destination: Path, manifest: Manifest, model: Path) -> Artifact:
    """Write the manifest, carry over the version's calibration, and publish the folder.

    The calibration belongs to the model's version. It is taken from the artifact that is replaced, or else from one for
    another CPU kind. A version that is new here gets the calibration in the folder ``model``. A calibration that was
    removed stays removed.
    """
    (aside / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    beside = artifact_folders(destination.parent, manifest.target)
    known = [destination] if destination in beside else beside[:1]
    carry_calibration(known[0] / CALIBRATION_NAME if known else model / SHIPPED_NAME, aside / CALIBRATION_NAME)
    publish(aside, destination)
    return read_artifact(destination)


def publish(aside: Path, destination: Path) -> None:
    """Move a finished folder to its place. A folder already there is moved aside, and back if the move fails."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    replaced = aside.parent / f"{REPLACED}{secrets.token_hex(6)}"
    try:
        destination.rename(replaced)
    except FileNotFoundError:
        aside.rename(destination)
        return
    try:
        aside.rename(destination)
    except BaseException:
        replaced.rename(destination)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _clear_abandoned(root: Path) -> None:
    for prefix in (BUILDING, REPLACED):
        for folder in root.glob(f"{prefix}*"):
            with suppress(FileNotFoundError):
                if time.time() - folder.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(folder, ignore_errors=True)
