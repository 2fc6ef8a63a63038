"""The batch context: the stores, the lease, and the working files.

``BATCH.….plan`` says line by line what becomes of the input; ``BATCH.JOB.items`` holds the items of a job until it is
submitted. They are in the folder of large jobs' items; where the storage of files is at a URL they are there, so that
keepers need no common folder: plans in ``plans/``, items where their job will look for them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from corelane.errors import NotFound, StorageFailed, Unavailable
from corelane.settings import Settings
from corelane.store.batches import BATCHER, BatchRecord, BatchStore, Group
from corelane.store.file_storage import READ_BYTES, Storage
from corelane.store.files import FileStore
from corelane.store.item_files import ELSEWHERE, split_lines
from corelane.store.jobs.store import JobStore
from corelane.submitting.submitter import Submitter

#: A long step renews the lease this often, in seconds; well within its time.
RENEW_S = BATCHER.ttl_ms / 1000 / 5


#: The folder of the storage of files that has plans; names that begin so are there.
PLANS = "plans/"


class Writable(Protocol):
    """A file that is written."""

    def write(self, data: bytes, /) -> object:
        """Add bytes."""


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

    @property
    def is_elsewhere(self) -> bool:
        """Return whether new working files are in the storage of files."""
        return self.settings.files_url is not None

    def plan_name(self, record: BatchRecord, unique: str) -> str:
        """Return the name of a plan."""
        name = f"{record.id}.{unique}.plan"
        return f"{PLANS}{name}" if self.is_elsewhere else name

    def items_name(self, record: BatchRecord, group: Group) -> str:
        """Return the name of a group's items, until it is submitted."""
        return f"{ELSEWHERE}{group.job}.jsonl" if self.is_elsewhere else f"{record.id}.{group.job}.items"

    @contextmanager
    def writing(self, name: str) -> Iterator[Writable]:
        """Yield a new working file; in the storage there is none after an error."""
        if not self.is_elsewhere:
            self.settings.files_root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self.settings.files_root / name).open("xb") as file:
                yield file
            return
        writer = self.storage.create(name)
        try:
            yield writer
        except BaseException:
            writer.discard()
            raise
        writer.close()

    def place_items(self, record: BatchRecord, group: Group) -> str:
        """Put a group's items where its job looks for them; return that name. May be repeated."""
        name = self.items_name(record, group)
        if self.is_elsewhere:
            return name
        path = self.settings.files_root / f"{group.job}.jsonl"
        if (items := self.settings.files_root / name).exists():
            items.replace(path)
        return path.name

    def drop_items(self, record: BatchRecord, group: Group) -> None:
        """Delete the items of a group that is not submitted."""
        name = self.items_name(record, group)
        if self.is_elsewhere:
            self.storage.delete(name)
        else:
            (self.settings.files_root / name).unlink(missing_ok=True)

    def has_plan(self, record: BatchRecord) -> bool:
        """Return whether a batch's plan, if it has one, is there."""
        if record.plan is None:
            return True
        if not record.plan.startswith(PLANS):
            return (self.settings.files_root / record.plan).exists()
        return next(self.plan_lines(record), None) is not None

    def plan_lines(self, record: BatchRecord) -> Iterator[bytes]:
        """Yield the lines of a batch's plan; none if it is gone."""
        name = record.plan or ""
        if not name.startswith(PLANS):
            with (self.settings.files_root / name).open("rb") as plan:
                yield from plan
            return
        with suppress(NotFound):
            yield from split_lines(lambda at: self.storage.read_at(name, at, READ_BYTES), 0)

    def clear(self, record: BatchRecord) -> None:
        """Remove the working files of a batch."""
        for path in self.settings.files_root.glob(f"{record.id}.*"):
            path.unlink(missing_ok=True)
        if record.plan is not None and record.plan.startswith(PLANS):
            with suppress(StorageFailed):
                self.storage.delete(record.plan)
