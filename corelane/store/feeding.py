"""Feeding: items of large jobs are in files, and come into Redis slice by slice as cores finish them.

A feeder may die at any point. The step that puts slices into the lanes also records how far the job was fed.
Payloads that are written a second time are identical to the first ones.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import orjson

from corelane.domain.dispatch import SLICE_ITEMS, SLICE_TOKENS, Ref, cut_slices, encode_slice
from corelane.errors import ItemsLost, NotFound, StorageFailed
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.dispatch import OPEN_STATUSES
from corelane.store.item_files import ItemFiles, ItemLine, parse_parts, step_lines
from corelane.store.link.blocking import Link
from corelane.store.link.link import Lease, call
from corelane.tasks.registry import parse_options
from corelane.tasks.results import failed_result

log = get_logger(__name__)

#: Estimated tokens fed in one step; a step takes some 10 ms.
STEP_TOKENS = 262_144

#: The lease of the process that feeds. A keeper that has not extended it for this time is taken for dead.
FEEDER = Lease(keys.FEEDER, ttl_ms=5_000)

#: A file that belongs to no job is kept for this time, in seconds: its job may be about to be submitted.
STRAY_AGE_S = 3600

#: If the storage fails and a job's items cannot be read, the feeder tries that job again after this time, in seconds.
STORAGE_PAUSE_S = 5.0

TEXTS = ("status", "file", "owner", "options", "parts")
NUMBERS = ("fed", "fed_bytes", "fed_tokens", "total", "left", "priority", "succeeded", "dropped", "results_window")


@dataclass(frozen=True, slots=True)
class Feed:
    """The progress of feeding a job."""

    job: str
    is_open: bool
    file: str
    #: The sizes of the file's parts; empty if it is one file.
    parts: tuple[int, ...]
    owner: str
    task: str
    fed: int
    fed_bytes: int
    fed_tokens: int
    total: int
    left: int
    priority: int
    succeeded: int
    dropped: int
    #: Most results that may wait to be dropped; 0 for no limit.
    results_window: int

    @property
    def room_items(self) -> int:
        """Return how many items may be fed before the job's reader has to drop results."""
        return self.results_window - (self.fed - self.dropped) if self.results_window else self.total

    @property
    def waiting_tokens(self) -> int:
        """Estimate the tokens that are fed but not answered, from the average of the items fed so far."""
        waiting = self.fed - (self.total - self.left)
        return waiting * self.fed_tokens // self.fed if self.fed else 0


class Feeder:
    """Feeds jobs one step at a time. Any number may run; only the holder of the lease feeds."""

    def __init__(self, settings: Settings, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._settings = settings
        self._bell = bell
        self._link = Link(settings.redis_url)
        self._files = ItemFiles(settings)
        #: When to try a job again, for jobs whose items could not be read.
        self._not_before: dict[str, float] = {}

    def has_work(self, name: str = "") -> bool:
        """Return whether there is a job to feed and no other feeder has the lease. Also note that the loop is alive."""
        jobs, feeder, _ = self._link.many(
            [("ZCARD", keys.FEEDS), ("GET", FEEDER.key), call("note_round", name="feeding")]
        )
        return bool(jobs) and feeder in (None, name.encode())

    def take_turn(self, name: str) -> bool:
        """Take or extend the lease; return whether this process has it."""
        fence, _ = self._link.many([FEEDER.take(name), call("note_round", name="feeding")])
        return bool(fence)

    def end_turn(self, name: str) -> None:
        """Release the lease, so that another process can feed."""
        self._link(*FEEDER.release(name))

    def jobs(self) -> list[str]:
        """Return the jobs that are not completely fed, oldest first."""
        return [job.decode() for job in self._link("ZRANGE", keys.FEEDS, 0, -1)]

    def feed(self, job: str) -> bool:
        """Feed one step of a job if there is room for it; return whether anything was fed."""
        feed = self._read(job)
        if feed is None or not feed.is_open or feed.fed == feed.total:
            self._let_go(job)
            return False
        room = self._settings.feed_tokens - feed.waiting_tokens
        if room < self._settings.feed_tokens // 2 or feed.room_items <= 0:
            return False
        if time.monotonic() < self._not_before.get(job, 0.0):
            return False
        try:
            lines = self._next_lines(feed, min(STEP_TOKENS, room))
        except StorageFailed as failure:
            log.warning("job_not_fed", job_id=job, detail=failure.detail)
            self._not_before[job] = time.monotonic() + STORAGE_PAUSE_S
            return False
        if not lines:
            error = ItemsLost(f"the file of this job's items was gone after {feed.fed:,} of {feed.total:,}")
            reason = orjson.dumps({"code": error.code, "detail": error.detail}).decode()
            self._link.run("fail", job=job, ttl=self._settings.results_ttl_s, error=reason)
            return False
        return self._feed_lines(feed, lines)

    def remove_strays(self) -> None:
        """Delete old files that belong to no job. Ages are measured by the clock of the file system, not of the host.

        Several services may share the folder: each deletes only files of its own jobs.
        """
        files = list(self._settings.files_root.glob(f"job_{self._settings.cell}*"))
        if not files:
            return
        clock = self._settings.files_root / "clock"
        clock.touch()
        now_s = clock.stat().st_mtime
        old = []
        for path in files:
            with suppress(FileNotFoundError):
                if now_s - path.stat().st_mtime > STRAY_AGE_S:
                    old.append(path)
        known = self._link.many([("EXISTS", keys.job(path.stem)) for path in old]) if old else []
        for path, is_known in zip(old, known, strict=True):
            if not is_known:
                path.unlink(missing_ok=True)

    def _next_lines(self, feed: Feed, most_tokens: int) -> list[ItemLine]:
        """Read the lines that are fed next; none if the file is gone."""
        lines = self._files.lines(feed.file, feed.parts, feed.fed_bytes)
        with suppress(NotFound):
            return step_lines(lines, feed.fed_bytes, most_tokens, min(feed.room_items, feed.total - feed.fed))
        return []

    def _feed_lines(self, feed: Feed, lines: Sequence[ItemLine]) -> bool:
        settings = self._settings
        payloads: dict[int, bytes] = {}
        refs, failed = [], []
        for is_bad, first, count, tokens in self._cut(lines):
            at, cut = feed.fed + first, lines[first : first + count]
            if is_bad:
                failed.append((at, bad_results(feed.task, at, cut), count))
                continue
            payloads[at] = encode_slice(line.row for line in cut)
            refs.append(Ref(feed.job, feed.owner, feed.priority, at, at, count, tokens).encode())
        reply = self._link.run(
            "feed",
            *refs,
            *payloads.values(),
            firsts=list(payloads),
            job=feed.job,
            fed=feed.fed,
            fed_after=feed.fed + len(lines),
            bytes_after=lines[-1].end_bytes,
            tokens_after=feed.fed_tokens + sum(line.tokens for line in lines),
            envelope=self._bell,
            failed=failed or None,
            ttl=settings.results_ttl_s,
        )
        return bool(reply == 1)

    def _cut(self, lines: Sequence[ItemLine]) -> Iterator[tuple[bool, int, int, int]]:
        """Cut lines into slices of only valid or only invalid lines, as (is_bad, first, count, tokens)."""
        first = 0
        for is_bad, run in groupby(lines, lambda line: line.error is not None):
            costs = [line.tokens for line in run]
            for begin, count, tokens in cut_slices(costs, SLICE_ITEMS, SLICE_TOKENS):
                yield is_bad, first + begin, count, tokens
            first += len(costs)

    def _read(self, job: str) -> Feed | None:
        status, file, owner, options, parts, *numbers = self._link("HMGET", keys.job(job), *TEXTS, *NUMBERS)
        if status is None:
            return None
        task = parse_options(options or b"{}").task
        name, sizes, given = (file or b"").decode(), parse_parts(parts), (int(number or 0) for number in numbers)
        return Feed(job, status in OPEN_STATUSES, name, sizes, owner.decode(), task, *given)

    def _let_go(self, job: str) -> None:
        """Stop feeding a job.

        This is called again when the job is final, deleted or forgotten. Then its file is deleted unless a retry may
        need items from it.
        """
        self._link("ZREM", keys.FEEDS, job)
        self._not_before.pop(job, None)
        feed = self._read(job)
        if feed is not None and feed.is_open:
            return
        if feed is None or feed.succeeded == feed.total:
            self._files.delete(job)


def bad_results(task: str, first: int, lines: Sequence[ItemLine]) -> str:
    """Return stored results for lines that are no valid items; ``first`` is the index of the first line."""
    found = [
        failed_result(task, index, line.row[0], *line.error)
        for index, line in enumerate(lines, first)
        if line.error is not None
    ]
    return orjson.dumps(found).decode()
