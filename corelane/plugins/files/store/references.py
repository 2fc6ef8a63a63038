"""Jobs with input or output by reference, for the keeper: which are due, and their steps."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from corelane.plugins.files.store import keys as own_keys
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.store.link.blocking import Link
from corelane.store.link.link import Lease, call, texts

#: The right to read inputs and write outputs. A keeper that has not extended it for this long is considered dead.
CARRIER = Lease(own_keys.CARRIER, ttl_ms=10_000)

#: Most jobs with a due input, and most with a due output, that are read in one round trip.
DUE_JOBS = 100


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far an input was read, and of which version; ``bytes`` and ``lines`` say where the next line begins."""

    state: str = "waiting"
    etag: str = ""
    bytes: int = 0
    lines: int = 0
    items: int = 0
    tokens: int = 0
    parts: tuple[int, ...] = ()
    attempts: int = 0
    error: str | None = None

    def encode(self) -> str:
        """Return the progress in its stored form."""
        return orjson.dumps(asdict(self)).decode()


class ReferenceStore:
    """One connection of a keeper, for its loop or for one job. Not thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._link = Link(settings.redis_url)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def has_work(self, name: str) -> bool:
        """Return whether an input or output waits and no other keeper has the lease; note that this loop is alive."""
        *jobs, holder, _ = self._link.many(
            [
                ("ZCARD", keys.READING),
                ("ZCARD", own_keys.WRITING),
                ("GET", CARRIER.key),
                call("note_round", name="references"),
            ]
        )
        return any(jobs) and holder in (None, name.encode())

    def take_turn(self, name: str) -> bool:
        """Take or extend the lease; return whether this process reads inputs and writes outputs."""
        fence, _ = self._link.many([CARRIER.take(name), call("note_round", name="references")])
        return bool(fence)

    def end_turn(self, name: str) -> None:
        """Release the lease, so that another keeper can continue."""
        self._link(*CARRIER.release(name))

    def due(self) -> list[tuple[str, bool]]:
        """Return the jobs whose input or output must be tried now; True marks an output."""
        now = self._link.now_ms()
        both = [("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, DUE_JOBS) for key in (own_keys.WRITING, keys.READING)]
        writing, reading = self._link.many(both)
        return [(job.decode(), True) for job in writing] + [(job.decode(), False) for job in reading]

    def owners(self, jobs: list[str]) -> list[str]:
        """Return the owner of each job; empty if the job no longer exists."""
        found = self._link.many([("HGET", keys.job(job), "owner") for job in jobs])
        return [owner.decode() if owner is not None else "" for owner in found]

    def get(self, job: str) -> JobRecord | None:
        """Return the current record of a job."""
        return self._link.read(lambda link: JobStore(link, self._settings, "").get(job))

    def now_ms(self) -> int:
        """Return the server's time."""
        return self._link.now_ms()

    def shared_texts(self, record: JobRecord) -> dict[str, str]:
        """Return the texts that a job's items share, by their ids."""
        ids, flat = self._link.many(
            [("HGET", keys.job(record.id), keys.TEXT_IDS), ("HGETALL", keys.shared_texts(record.id))]
        )
        by_number = texts(flat)
        return {name: by_number[str(number)] for number, name in enumerate(orjson.loads(ids or b"[]"))}

    def keep_texts(self, record: JobRecord, shared: dict[str, str]) -> None:
        """Store the texts that came with an input."""
        numbered = [part for number, text in enumerate(shared.values()) for part in (number, text)]
        self._link.run(
            "write",
            commands=[
                ("HSET", keys.shared_texts(record.id), *numbered),
                ("HSET", keys.job(record.id), keys.TEXT_IDS, orjson.dumps(list(shared))),
            ],
        )

    def note_input(self, job: str, before: str, after: ReadProgress, retry_s: float | None = None) -> bool:
        """Note how far an input was read; return False if the job is final, or another keeper has continued it."""
        retry_ms = None if retry_s is None else int(1000 * retry_s)
        found = self._link.run("note_input", job=job, before=before, after=after.encode(), retry_ms=retry_ms)
        return bool(found)

    def begin_items(self, job: str, before: str, done: ReadProgress, file: str) -> bool:
        """Let the keeper feed the items; return False as ``note_input`` does."""
        done = replace(done, state="read", error=None)
        return bool(
            self._link.run(
                "begin_items",
                job=job,
                before=before,
                after=done.encode(),
                file=file,
                parts=orjson.dumps(done.parts).decode(),
                items=done.items,
                tokens=done.tokens,
            )
        )

    def fail(self, job: str, code: str, detail: str) -> None:
        """End a job whose input cannot be read."""
        error = orjson.dumps({"code": code, "detail": detail}).decode()
        self._link.run("fail", job=job, ttl=self._settings.results_ttl_s, error=error)

    def let_go(self, job: str) -> None:
        """Stop reading a job's input."""
        self._link("ZREM", keys.READING, job)

    def progress(self, job: str) -> tuple[str, ReadProgress]:
        """Return how far an input was read: as stored, and parsed."""
        found = self._link("HGET", keys.job(job), "input")
        text = "" if found is None else found.decode()
        stored = orjson.loads(text) if text else {}
        return text, ReadProgress(**(stored | {"parts": tuple(stored.get("parts", ()))}))

    def results(self, record: JobRecord, after: int, limit: int) -> list[dict[str, Any]]:
        """Return results of a final job."""
        return self._link.read(lambda link: JobStore(link, self._settings, "").results(record, after, limit))

    def note_output(self, job: str, output: dict[str, Any], *, retry_s: float | None = None, hold_s: int = 0) -> bool:
        """Note the outcome of an output; it is final without ``retry_s``. Return whether the job still exists."""
        retry_ms = None if retry_s is None else int(1000 * retry_s)
        text = orjson.dumps(output).decode()
        done = True if retry_s is None else None
        return bool(self._link.run("note_output", job=job, output=text, done=done, retry_ms=retry_ms, hold_s=hold_s))
