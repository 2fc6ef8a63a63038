"""The batch context: the stores, the lease, and the folder for intermediate files.

The folder is that of large jobs' items. ``BATCH.….plan`` says line by line what becomes of the input;
``BATCH.JOB.items`` holds the items of a job until it is submitted.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from corelane.errors import Unavailable
from corelane.settings import Settings
from corelane.store.batches import BATCHER, BatchRecord, BatchStore, Group
from corelane.store.file_storage import Storage
from corelane.store.files import FileStore
from corelane.store.jobs.store import JobStore
from corelane.submitting.submitter import Submitter

#: A long step renews the lease this often, in seconds; well within its time.
RENEW_S = BATCHER.ttl_ms / 1000 / 5


class LeaseLost(Unavailable):
    """Another keeper runs the batches now: this one must not write any more."""

    code = Unavailable.code


@dataclass
class BatchContext:
    """The means of one holder of the lease; ``name`` is unique among the holders."""

    name: str
    settings: Settings
    jobs: JobStore
    submitter: Submitter
    batches: BatchStore
    files: FileStore
    storage: Storage
    renewed_s: float = field(default_factory=time.monotonic)

    async def renew_lease(self) -> None:
        """Renew the lease if it is time to; raise LeaseLost if another keeper holds it."""
        if time.monotonic() - self.renewed_s < RENEW_S:
            return
        if not await self.batches.take_turn(self.name):
            raise LeaseLost("another keeper runs the batches")
        self.renewed_s = time.monotonic()

    def items_path(self, record: BatchRecord, group: Group) -> Path:
        """Return the path of a group's items, until it is submitted."""
        return self.settings.files_root / f"{record.id}.{group.job}.items"

    def clear(self, record: BatchRecord) -> None:
        """Remove the intermediate files of a batch."""
        for path in self.settings.files_root.glob(f"{record.id}.*"):
            path.unlink(missing_ok=True)
