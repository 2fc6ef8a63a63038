"""Feeding: the items of large jobs are in files, and come into Redis slice after slice, as cores answer them.

So a job of millions of items takes no more of Redis' memory than its slices in progress and the results that were not
dropped yet. A feeder may die at any point: the step that puts slices into the lanes also writes how far the job was
fed, and payloads that are written again are the same.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from corelane.domain.dispatch import Ref, cut_slices, encode_slice
from corelane.errors import ItemsLost
from corelane.settings import Settings
from corelane.settings.faults import reach
from corelane.store import keys
from corelane.store.dispatch import OPEN_STATUSES
from corelane.store.link.blocking import Link
from corelane.store.link.lease import Lease
from corelane.store.link.link import call

#: Estimated tokens fed in one step; a step takes some 10 ms.
STEP_TOKENS = 262_144

#: The right to feed; a keeper that has not extended it for so long is taken for dead.
FEEDER = Lease(keys.FEEDER, ttl_ms=5_000)

#: A file that belongs to no job is kept for so long, in seconds: its job may be about to be submitted.
STRAY_AGE_S = 3600

TEXTS = ("status", "file", "owner")
NUMBERS = ("fed", "fed_bytes", "fed_tokens", "total", "left", "priority", "succeeded", "dropped", "results_window")


@dataclass(frozen=True, slots=True)
class Feed:
    """How far a job was fed."""

    job: str
    is_open: bool
    path: Path
    owner: str
    fed: int
    fed_bytes: int
    fed_tokens: int
    total: int
    left: int
    priority: int
    succeeded: int
    dropped: int
    #: Results that may wait to be dropped; 0 for any number.
    results_window: int

    @property
    def room_items(self) -> int:
        """Return how many items may be fed before the job's reader has to drop results."""
        return self.results_window - (self.fed - self.dropped) if self.results_window else self.total

    @property
    def waiting_tokens(self) -> int:
        """Estimate the tokens that are fed and not answered, by the average item that was fed."""
        waiting = self.fed - (self.total - self.left)
        return waiting * self.fed_tokens // self.fed if self.fed else 0


class Feeder:
    """Feeds jobs one step at a time. Any number may run; the one that has the lease feeds."""

    def __init__(self, settings: Settings, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._settings = settings
        self._bell = bell
        self._link = Link(settings.redis_url)

    def has_work(self, name: str = "") -> bool:
        """Tell whether a job is to be fed and no other feeder has the lease."""
        jobs, feeder = self._link.many([("ZCARD", keys.FEEDS), ("GET", FEEDER.key)])
        return bool(jobs) and feeder in (None, name.encode())

    def take_turn(self, name: str) -> bool:
        """Take or extend the lease; return whether this process feeds."""
        fence, _ = self._link.many([FEEDER.take(name), call("note_round", name="feeding")])
        return bool(fence)

    def end_turn(self, name: str) -> None:
        """Let another process feed."""
        self._link(*FEEDER.release(name))

    def jobs(self) -> list[str]:
        """Return the jobs that are not fed to their end, oldest first."""
        return [job.decode() for job in self._link("ZRANGE", keys.FEEDS, 0, -1)]

    def feed(self, job: str) -> bool:
        """Feed one step of a job, if its slices in progress leave room; return whether anything was fed."""
        feed = self._read(job)
        if feed is None or not feed.is_open or feed.fed == feed.total:
            self._let_go(job)
            return False
        room = self._settings.feed_tokens - feed.waiting_tokens
        if room < self._settings.feed_tokens // 2 or feed.room_items <= 0:
            return False
        try:
            lines = read_lines(feed.path, feed.fed_bytes, min(STEP_TOKENS, room), feed.room_items)
        except FileNotFoundError:
            lines = []
        if not lines:
            error = ItemsLost(f"the file of this job's items was gone after {feed.fed:,} of {feed.total:,}")
            reason = orjson.dumps({"code": error.code, "detail": error.detail}).decode()
            self._link.run("fail", job=job, ttl=self._settings.results_ttl_s, error=reason)
            return False
        return self._feed_lines(feed, lines)

    def remove_strays(self) -> None:
        """Delete old files that belong to no job; the file system's clock tells their age, not the host's.

        Cells may share the folder: each looks after the files of its own jobs.
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

    def _feed_lines(self, feed: Feed, lines: Sequence["ItemLine"]) -> bool:
        settings = self._settings
        slices = list(cut_slices([line.tokens for line in lines], settings.slice_items, settings.slice_tokens))
        payload: list[Any] = ["HSET", keys.payloads(feed.job)]
        refs = []
        for first, count, tokens in slices:
            at = feed.fed + first
            payload += [at, encode_slice(line.row for line in lines[first : first + count])]
            refs.append(Ref(feed.job, feed.owner, feed.priority, at, at, count, tokens).encode())
        self._link(*payload)
        reach("feed.payloads_written", settings.armed_faults)
        reply = self._link.run(
            "feed",
            *refs,
            job=feed.job,
            fed=feed.fed,
            fed_after=feed.fed + len(lines),
            bytes_after=lines[-1].end_bytes,
            tokens_after=feed.fed_tokens + sum(line.tokens for line in lines),
            envelope=self._bell,
        )
        return bool(reply == 1)

    def _read(self, job: str) -> Feed | None:
        status, file, owner, *numbers = self._link("HMGET", keys.job(job), *TEXTS, *NUMBERS)
        if status is None:
            return None
        path = self._settings.files_root / file.decode()
        return Feed(job, status in OPEN_STATUSES, path, owner.decode(), *(int(number or 0) for number in numbers))

    def _let_go(self, job: str) -> None:
        """Feed a job no more.

        This is called again when the job is final, deleted or forgotten: then payloads that came too late expire, and
        its file is deleted unless a retry could ask for items in it.
        """
        self._link("ZREM", keys.FEEDS, job)
        feed = self._read(job)
        if feed is not None and feed.is_open:
            return
        self._link("EXPIRE", keys.payloads(job), self._settings.results_ttl_s, "NX")
        if feed is None or feed.succeeded == feed.total:
            (self._settings.files_root / f"{job}.jsonl").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ItemLine:
    """One item of a file: its row, its tokens, and the offset where its line ends."""

    row: tuple[str | None, str, str | int]
    tokens: int
    end_bytes: int


def encode_line(row: tuple[str | None, str, str | int], tokens: int) -> bytes:
    """Return an item as a line of a file."""
    return orjson.dumps((*row, tokens), option=orjson.OPT_APPEND_NEWLINE)


def read_lines(path: Path, start_bytes: int, most_tokens: int, most_items: int) -> list[ItemLine]:
    """Read items from an offset on, up to a number of tokens or items, or to the end of the file."""
    lines: list[ItemLine] = []
    with path.open("rb") as file:
        file.seek(start_bytes)
        end = start_bytes
        while most_tokens > 0 and len(lines) < most_items and (text := file.readline()):
            end += len(text)
            item_id, question, context, tokens = orjson.loads(text)
            lines.append(ItemLine((item_id, question, context), tokens, end))
            most_tokens -= tokens
    return lines
