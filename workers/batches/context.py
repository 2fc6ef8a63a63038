"""What it takes to carry batches on: the stores, the turn, and the folder for what is worked out in between.

The folder is that of large jobs' items: ``BATCH.….plan`` says line by line what becomes of the input,
``BATCH.JOB.items`` are the items of a job until it is submitted.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from corelane.errors import Unavailable
from corelane.settings import Settings
from corelane.store.batches import BATCHER, BatchRecord, BatchStore, Group
from corelane.store.file_storage import Storage
from corelane.store.files import FileStore
from corelane.store.fleet import Fleet
from corelane.store.jobs.store import JobStore

#: The turn is renewed this often while a step takes long, in seconds; well within its time.
RENEW_S = BATCHER.ttl_ms / 1000 / 5


class TurnLost(Unavailable):
    """Somebody else carries batches on: this one must not write any more."""

    code = Unavailable.code


@dataclass
class Desk:
    """One holder of the turn. ``name`` is told apart from every other."""

    name: str
    settings: Settings
    jobs: JobStore
    fleet: Fleet
    batches: BatchStore
    files: FileStore
    storage: Storage
    renewed_s: float = field(default_factory=time.monotonic)

    async def stay(self) -> None:
        """Show that this holder lives, if it is time to; raises TurnLost if that comes too late."""
        if time.monotonic() - self.renewed_s < RENEW_S:
            return
        if not await self.batches.take_turn(self.name):
            raise TurnLost("another keeper carries the batches on")
        self.renewed_s = time.monotonic()

    def items_path(self, record: BatchRecord, group: Group) -> Path:
        """The items of a group, until it is submitted."""
        return self.settings.files_root / f"{record.id}.{group.job}.items"

    def clear(self, record: BatchRecord) -> None:
        """Remove what was worked out for a batch."""
        for path in self.settings.files_root.glob(f"{record.id}.*"):
            path.unlink(missing_ok=True)
