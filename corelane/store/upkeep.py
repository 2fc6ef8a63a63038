"""Upkeep: the keeper's side of the store. Returns lapsed leases, ends what expires, finds cores that sleep on work."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson
import redis.exceptions

from corelane.domain.dispatch import Ref, return_refs
from corelane.domain.jobs import failed_result
from corelane.errors import WorkerLost
from corelane.fault_injection import reach
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.fleet import FORGET_CORE_MS
from corelane.store.jobs.owners import IDLE_S
from corelane.store.jobs.payloads import slice_ids
from corelane.store.link.blocking import Link
from corelane.store.link.library import PREFIX, read_library
from corelane.store.link.surface import pairs

log = get_logger(__name__)

#: Leases looked at in one sweep; the rest follow a sweep later.
LEASES_PER_SWEEP = 100

#: Jobs forgotten in one sweep; the rest follow a sweep later.
FORGOTTEN_PER_SWEEP = 2000

#: What has no end of its own is looked through this often, in seconds, and so much of each kind at a time.
PRUNE_S, PRUNED_AT_ONCE = 30, 1000


#: Ends of jobs told at a time.
ENDED_AT_A_TIME = 500

#: What is told of a job's end, in the order of ``take_ended``; numbers, unless they are texts.
ENDED_FIELDS = (
    *("job_id", "status", "owner", "version"),
    *("total", "succeeded", "failed", "canceled", "expired", "created_ms", "started_ms", "finished_ms", "request_id"),
)
ENDED_TEXTS = frozenset({"job_id", "status", "owner", "version", "request_id"})


class Upkeep:
    """What must be done now and then so that nothing is lost. Every call may be repeated, by several keepers too."""

    def __init__(self, settings: Settings, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._settings = settings
        self._bell = bell
        self._link = Link(settings.redis_url)

    def return_lapsed(self) -> int:
        """Return every lapsed lease to the lanes; the stretches taken back."""
        leases = self._link("ZRANGEBYSCORE", keys.LEASES, "-inf", self._link.now_ms(), "LIMIT", 0, LEASES_PER_SWEEP)
        returned = sum(self._return(lease.decode(), only_lapsed=True) for lease in leases)
        if returned:
            reach("keeper.leases_returned", self._settings.armed_faults)
        return returned

    def return_own(self, core: str) -> int:
        """Return all leases of a core whose process is known to be gone; for its successor."""
        leases = [lease.decode() for lease in self._link("ZRANGE", keys.LEASES, 0, -1)]
        return sum(self._return(lease, only_lapsed=False) for lease in leases if lease.rpartition("#")[0] == core)

    def tend(self) -> list[str]:
        """End jobs whose time is over; the names of cores that must be rung for."""
        grace_ms, ttl = int(self._settings.bell_grace_s * 1000), self._settings.results_ttl_s
        return [core.decode() for core in self._link.run("tend", grace_ms=grace_ms, ttl=ttl)]

    def forget(self) -> int:
        """Clear up after jobs whose time to be kept is over; how many. Now and then, after cores, hosts and owners."""
        forgotten = int(self._link.run("forget", gone_ttl_s=self._settings.gone_ttl_s, most=FORGOTTEN_PER_SWEEP))
        if self._link("SET", keys.PRUNED, 1, "NX", "EX", PRUNE_S) is not None:
            self.prune()
        return forgotten

    def prune(self) -> int:
        """Remove what is of no more use and has no end of its own; the refs of ended jobs that were dropped."""
        dropped = self._link.run(
            "prune",
            silent_ms=FORGET_CORE_MS,
            dead_ms=self._settings.webhook_dead_ttl_s * 1000,
            idle_ms=IDLE_S * 1000,
            most=PRUNED_AT_ONCE,
        )
        return int(dropped)

    def went_round(self) -> None:
        """Note that a sweep was done, for those who ask whether anybody sweeps."""
        self._link.run("note_round", name="sweeps")

    def drop_libraries(self) -> None:
        """Drop the libraries of other versions; a process that still runs one loads it again with its next call."""
        found = self._link("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*")
        names = {dict(pairs(flat))[b"library_name"].decode() for flat in found} - {read_library().name}
        # Another keeper may have dropped it in the meantime.
        with suppress(redis.exceptions.ResponseError):
            self._link.many([("FUNCTION", "DELETE", name) for name in names])

    def ended(self) -> list[dict[str, str | int]]:
        """Jobs that became final since any keeper last asked, each told once; what a deleted job had is left out."""
        told = []
        while replies := self._link.run("take_ended", most=ENDED_AT_A_TIME):
            told += [_told(reply) for reply in replies]
            if len(replies) < ENDED_AT_A_TIME:
                break
        return told

    def _return(self, lease: str, *, only_lapsed: bool) -> int:
        held = self._link("HGETALL", keys.claim(lease))
        stretches = []
        for place, text in pairs(held):
            try:
                ref = Ref.decode(text.decode())
            except ValueError:
                # Nothing of ours wrote it; kept, it would stop every sweep.
                log.error("ref_unreadable", lease=lease, ref=text[:200].decode(errors="replace"))
                self._link("HDEL", keys.claim(lease), place)
                continue
            stretches.append(self._stretch(ref))
        returned = self._link.run(
            "return_claim",
            lease=lease,
            only_lapsed=only_lapsed,
            ttl=self._settings.results_ttl_s,
            envelope=self._bell,
            stretches=stretches,
        )
        return int(returned)

    def _stretch(self, ref: Ref) -> dict[str, Any]:
        """What becomes of one stretch: single items with one attempt more, or the end of the road."""
        version, payload = self._link.many(
            [
                ("HGET", keys.job(ref.job), "version"),
                ("HGET", keys.payloads(ref.job), ref.payload),
            ]
        )
        lost = ref.attempt >= self._settings.max_attempts
        return {
            "ref": ref.encode(),
            "version": version.decode() if version else "",
            "refs": [] if lost else [single.encode() for single in return_refs(ref)],
            "lost": lost_results(ref, payload) if lost else [],
        }


def lost_results(ref: Ref, payload: bytes | None) -> list[tuple[str, str]]:
    """Each item of a stretch that outlived its attempts, as (index, its stored results)."""
    ids = slice_ids(payload)
    error = WorkerLost(f"the worker died or was lost in each of {ref.attempt} attempts at this item")
    return [
        (
            str(ref.first + i),
            orjson.dumps(
                [failed_result(ref.first + i, _id_at(ids, ref.offset + i), error.code, error.detail)]
            ).decode(),
        )
        for i in range(ref.count)
    ]


def _id_at(ids: Sequence[str | None], position: int) -> str | None:
    return ids[position] if position < len(ids) else None


def _told(values: Sequence[bytes | None]) -> dict[str, str | int]:
    """What the store says of one job's end."""
    given = {name: value.decode() for name, value in zip(ENDED_FIELDS, values, strict=True) if value is not None}
    return {name: value if name in ENDED_TEXTS else int(value) for name, value in given.items()}
