"""The tools of batches: the stores, the lease, and the working files.

``plans/BATCH.….plan`` has the planned outcome of each input line. ``items/JOB.jsonl`` holds the items of a job. Both
are in the storage of files, so keepers need no common folder. Without ``files_url`` items are ``JOB.jsonl`` in the
folder of large jobs' items.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from corelane.errors import StorageFailed, Unavailable
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.batches import BATCHER, BatchRecord, BatchStore
from corelane.plugins.files.store.files import FileStore
from corelane.settings import Settings
from corelane.store.file_storage import Storage, Writer
from corelane.store.item_files import ELSEWHERE, ItemFiles
from corelane.store.jobs.store import JobStore
from corelane.submitting.submitter import Submitter

#: A long step renews the lease this often, in seconds: well before the lease ends.
RENEW_S = BATCHER.ttl_ms / 1000 / 5

#: The folder for plans in the storage of files, and the prefix of their names.
PLANS = "plans/"


class LeaseLost(Unavailable):
    """Another keeper runs the batches now, so this one must not write any more."""

    code = Unavailable.code


@dataclass
class BatchTools:
    """The stores and files that a holder of the lease works with; ``name`` is unique among the holders."""

    name: str
    settings: Settings
    jobs: JobStore
    submitter: Submitter
    batches: BatchStore
    files: FileStore
    storage: Storage
    #: Has the items of new jobs fed now.
    feed: Callable[[], object] = bool
    renewed_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Read the plugin's own settings, and open the folder of items."""
        self.limits = self.settings.of(FilesFields)
        self.item_files = ItemFiles(self.settings)

    async def renew_lease(self) -> None:
        """Renew the lease if it is due; raise LeaseLost if another keeper holds it."""
        if time.monotonic() - self.renewed_s < RENEW_S:
            return
        if not await self.batches.take_turn(self.name):
            raise LeaseLost("another keeper runs the batches")
        self.renewed_s = time.monotonic()

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """Yield a new working file; after an error it does not exist."""
        writer = self.item_files.place(name).create(name)
        try:
            yield writer
        except BaseException:
            writer.discard()
            raise
        writer.close()

    def items_name(self, job: str) -> str:
        """Return the name of the file where a job finds its items."""
        return f"{job}.jsonl" if self.settings.files_url is None else f"{ELSEWHERE}{job}.jsonl"

    def has_plan(self, record: BatchRecord) -> bool:
        """Return whether a batch's plan, if it needs one, exists."""
        return record.plan is None or self.item_files.exists(record.plan)

    def clear(self, record: BatchRecord) -> None:
        """Delete the plan of a batch."""
        if record.plan is not None:
            with suppress(StorageFailed):
                self.item_files.place(record.plan).delete(record.plan)
