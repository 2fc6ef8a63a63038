"""Keep compiled buckets, so that none is compiled twice.

Neuron's own cache does not serve traces with inlined weights. A key covers everything that can change a compiled
bucket. An entry is a folder with the traced file, its NEFFs and a record with their digests. Entries are written aside
and renamed, so several builds can share the cache. They are dropped after a month without use.
"""

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from corelane.artifacts.manifest import digest_file

RECORD_NAME = "record.json"

#: Entries unused for longer are dropped, in seconds.
KEEP_S = 30 * 24 * 3600


def key_of(facts: Mapping[str, object]) -> str:
    """Return the name of the entry for these facts, in any order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def files_of(folder: Path, stem: str) -> list[Path]:
    """Return a bucket's traced file, then its NEFFs, the largest first."""
    return [folder / f"{stem}.pt", *folder.glob(f"{stem}.neff"), *sorted(folder.glob(f"{stem}.*.neff"))]


class Cache:
    """The entries below a folder; a damaged entry counts as absent."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def fetch(self, key: str, folder: Path, stem: str) -> dict[str, Any] | None:
        """Copy an entry's files to ``folder``, named after ``stem``. Return its record; None without an
        intact entry.
        """
        entry = self._root / key
        try:
            record: dict[str, Any] = json.loads((entry / RECORD_NAME).read_text(encoding="utf-8"))
            digests = record.pop("digests")
            if any(digest_file(entry / name) != digest for name, digest in digests.items()):
                return None
            for name in digests:
                shutil.copyfile(entry / name, folder / f"{stem}{name.removeprefix('model')}")
            os.utime(entry)
        except (OSError, ValueError, KeyError, AttributeError):
            return None
        return record

    def keep(self, key: str, folder: Path, stem: str, record: Mapping[str, Any]) -> None:
        """Store the files of ``folder`` that are named after ``stem``. A failure to write the cache is no error."""
        aside = self._root / f".{secrets.token_hex(6)}"
        try:
            aside.mkdir(parents=True)
            digests = {}
            for path in files_of(folder, stem):
                name = f"model{path.name.removeprefix(stem)}"
                shutil.copyfile(path, aside / name)
                digests[name] = digest_file(aside / name)
            (aside / RECORD_NAME).write_text(json.dumps({**record, "digests": digests}), encoding="utf-8")
            shutil.rmtree(self._root / key, ignore_errors=True)
            aside.rename(self._root / key)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)

    def drop_old(self) -> None:
        """Remove entries that have long been unused, and half-written ones."""
        for path in self._root.glob("*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > KEEP_S:
                    shutil.rmtree(path, ignore_errors=True)
