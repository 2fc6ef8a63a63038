"""Writing an artifact so that there is either all of it or none: aside first, then one rename.

What fails on the way (a full disk, Ctrl-C) leaves the artifacts as they were and nothing beside them. Only a killed
process leaves its folder behind; the next build clears it away once it is surely nobody's.
"""

import errno
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from corelane.artifacts.calibration import carry_calibration
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, Manifest, read_artifact
from corelane.errors import CompileFailed

#: Folders in the making, and artifacts about to be replaced; no artifact's name begins with a dot.
BUILDING, REPLACED = ".building-", ".replaced-"

#: No build takes this long: a folder in the making that is older belongs to a process that was killed, in seconds.
ABANDONED_S = 24 * 3600

#: The disk, the user's share of it or the largest file allowed is used up.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def building(root: Path, needs_bytes: int) -> Iterator[Path]:
    """A new folder below ``root``, gone after the block unless it was moved; what the disk refuses is CompileFailed."""
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


def publish_artifact(aside: Path, destination: Path, manifest: Manifest) -> Artifact:
    """Move an artifact's files to its place with their manifest, and with the calibration of the one they replace."""
    (aside / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    carry_calibration(destination, aside)
    publish(aside, destination)
    return read_artifact(destination)


def publish(aside: Path, destination: Path) -> None:
    """Move a finished folder to its place; one that is there already makes way, and comes back if the move fails."""
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
