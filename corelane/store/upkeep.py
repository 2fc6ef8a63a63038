"""Upkeep: the keeper's side of the store. It returns lapsed leases, ends jobs that expire and rings sleeping cores."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson
import redis.exceptions

from corelane.domain.dispatch import Ref, return_refs, slice_ids
from corelane.errors import WorkerLost
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.deliveries.sending import DEAD_TTL_S
from corelane.store.fleet import FORGET_CORE_MS
from corelane.store.link.blocking import Link
from corelane.store.link.library import PREFIX, read_library
from corelane.store.link.link import pairs
from corelane.tasks.registry import parse_options
from corelane.tasks.results import failed_result

log = get_logger(__name__)

#: Cores are rung again for work that no core touched for this time, in seconds. It is longer than a claim takes to
#: follow a bell on a busy machine.
BELL_GRACE_S = 3.0

#: Time for which a job that is no longer kept is still known as such (410), in seconds: a week, as long as results.
GONE_TTL_S = 7 * 24 * 3600

#: Leases returned in one sweep; the rest are returned in the next.
LEASES_PER_SWEEP = 100

#: About how many refs of jobs whose time has come are let in by one step: a few milliseconds of Redis.
LET_IN_AT_ONCE = 500

#: Jobs forgotten in one sweep; the rest are forgotten in the next.
FORGOTTEN_PER_SWEEP = 2000

#: Entries without an expiry of their own are pruned this often, in seconds, and at most this many of a kind at a time.
PRUNE_S, PRUNED_AT_ONCE = 30, 1000

#: How many ends of jobs are read at a time.
ENDED_AT_A_TIME = 500

#: The fields of a job's end; ``take_ended`` adds the first two. All but those in ENDED_TEXTS are numbers.
ENDED_FIELDS = (
    *("job_id", "status", "owner", "version"),
    *("total", "succeeded", "failed", "canceled", "expired", "created_ms", "started_ms", "finished_ms", "request_id"),
    "traceparent",
)
ENDED_TEXTS = frozenset({"job_id", "status", "owner", "version", "request_id", "traceparent"})


class Upkeep:
    """The keeper's regular work. Every call may be repeated, even by several keepers."""

    def __init__(self, settings: Settings, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._settings = settings
        self._bell = bell
        self._link = Link(settings.redis_url)

    def return_lapsed(self) -> int:
        """Return lapsed leases to the lanes; return the number of slices in them."""
        leases = self._link("ZRANGEBYSCORE", keys.LEASES, "-inf", self._link.now_ms(), "LIMIT", 0, LEASES_PER_SWEEP)
        return sum(self._return(lease.decode(), only_lapsed=True) for lease in leases)

    def return_own(self, core: str, cause: str = "") -> int:
        """Return all leases of a core whose process is known to be gone, for this cause.

        The next process of the core calls this.
        """
        leases = [lease.decode() for lease in self._link("ZRANGE", keys.LEASES, 0, -1)]
        return sum(
            self._return(lease, cause, only_lapsed=False) for lease in leases if lease.rpartition("#")[0] == core
        )

    def tend(self) -> list[str]:
        """End jobs whose time is over; return the names of cores that must be rung."""
        grace_ms, ttl = int(BELL_GRACE_S * 1000), self._settings.results_ttl_s
        return [core.decode() for core in self._link.run("tend", grace_ms=grace_ms, ttl=ttl)]

    def let_in(self) -> None:
        """Let the jobs whose ``not_before`` has come into the lanes."""
        while self._link.run("let_in", envelope=self._bell, most=LET_IN_AT_ONCE) >= LET_IN_AT_ONCE:
            pass

    def forget(self) -> int:
        """Forget jobs that need not be kept any longer, and return how many. Every PRUNE_S, prune as well."""
        forgotten = int(self._link.run("forget", gone_ttl_s=GONE_TTL_S, most=FORGOTTEN_PER_SWEEP))
        prune = ("SET", keys.PRUNED, 1, "NX", "EX", PRUNE_S)
        if self._link.run("write", commands=[prune])[0] is not None:
            self.prune()
        return forgotten

    def prune(self) -> None:
        """Remove unneeded entries that never expire."""
        self._link.run("prune", silent_ms=FORGET_CORE_MS, dead_ms=DEAD_TTL_S * 1000, most=PRUNED_AT_ONCE)

    def went_round(self) -> None:
        """Note that a sweep was done, so that a missing keeper is noticed."""
        self._link.run("note_round", name="sweeps")

    def drop_libraries(self) -> None:
        """Drop the library's other versions, except those that cores use: cores may be forbidden to load them again."""
        # Another keeper may have dropped it already, or an access list may forbid it. Leftovers only take space.
        with suppress(redis.exceptions.ResponseError):
            found = self._link("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*")
            cores = self._link("ZRANGE", keys.CORES, 0, -1)
            needed = self._link.many([("HGET", keys.core(core.decode()), "library") for core in cores])
            names = {dict(pairs(flat))[b"library_name"] for flat in found} - {read_library().name.encode(), *needed}
            self._link.many([("FUNCTION", "DELETE", name) for name in names])

    def ended(self) -> list[dict[str, str | int]]:
        """Return jobs that became final since any keeper last asked, each once. A deleted job lacks some fields."""
        ends = []
        while replies := self._link.run("take_ended", most=ENDED_AT_A_TIME, fields=ENDED_FIELDS[2:]):
            ends += [_parse_end(reply) for reply in replies]
            if len(replies) < ENDED_AT_A_TIME:
                break
        return ends

    def _return(self, lease: str, cause: str = "", *, only_lapsed: bool) -> int:
        held = self._link("HGETALL", keys.claim(lease))
        slices = []
        for member, text in pairs(held):
            try:
                ref = Ref.decode(text.decode())
            except ValueError:
                # No process of Corelane wrote it. If it were kept, it would stop every sweep.
                log.error("ref_unreadable", lease=lease, ref=text[:200].decode(errors="replace"))
                self._link("HDEL", keys.claim(lease), member)
                continue
            slices.append(self._lost_slice(ref, cause))
        returned = self._link.run(
            "return_claim",
            lease=lease,
            only_lapsed=only_lapsed,
            ttl=self._settings.results_ttl_s,
            envelope=self._bell,
            slices=slices,
        )
        return int(returned)

    def _lost_slice(self, ref: Ref, cause: str) -> dict[str, Any]:
        """Return what becomes of a lost slice: its items return singly with an attempt more, or fail after the last."""
        (version, options), payload = self._link.many(
            [
                ("HMGET", keys.job(ref.job), "version", "options"),
                ("HGET", keys.payloads(ref.job), ref.payload),
            ]
        )
        lost = ref.attempt >= self._settings.max_attempts
        return {
            "ref": ref.encode(),
            "version": version.decode() if version else "",
            "refs": [] if lost else [single.encode() for single in return_refs(ref)],
            "lost": lost_results(ref, options, payload, cause) if lost else [],
        }


def lost_results(ref: Ref, options: bytes | None, payload: bytes | None, cause: str) -> list[tuple[str, str]]:
    """Build the results of a slice whose attempts are used up, as pairs of an index and its stored result."""
    ids = dict(enumerate(slice_ids(payload), ref.first - ref.offset))
    task = parse_options(options or b"{}").task
    last = f": {cause}" if cause else ", as if its machine, its network or Redis failed"
    error = WorkerLost(f"the worker was lost in each of {ref.attempt} attempts at this item, the last time{last}")
    return [
        (str(index), orjson.dumps([failed_result(task, index, ids.get(index), error.code, error.detail)]).decode())
        for index in range(ref.first, ref.first + ref.count)
    ]


def _parse_end(values: Sequence[bytes | None]) -> dict[str, str | int]:
    """Read the fields of one job's end."""
    given = {name: value.decode() for name, value in zip(ENDED_FIELDS, values, strict=True) if value is not None}
    return {name: value if name in ENDED_TEXTS else int(value) for name, value in given.items()}
