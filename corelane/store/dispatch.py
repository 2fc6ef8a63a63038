"""Dispatch: a core's side of the store. Claim under a lease, fetch payloads, commit under the fence, linger.

One worker process uses it, on a connection of its own. No call is repeated here: after StoreUnavailable the caller goes
on with its next claim, and claimed work comes back when its lease lapses.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from corelane.domain.contexts import Stored
from corelane.domain.dispatch import Ref, Row, decode_slice
from corelane.domain.jobs import Options
from corelane.domain.prices import NOTHING
from corelane.domain.request_context import RequestContext
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.contexts import ContextTexts
from corelane.store.jobs.records import parse_options
from corelane.store.link.blocking import Link
from corelane.store.link.library import Command
from corelane.store.link.link import call
from corelane.store.parts import NO_PARTS, Offered, PartsDone, TakenPart

log = get_logger(__name__)

#: Longest time of one blocking pop, in seconds, so that the stop flag is seen and the bell does not expire.
POP_S = 1

OPEN_STATUSES = (b"queued", b"running")


@dataclass(frozen=True, slots=True)
class Claim:
    """Refs that a core took under one lease, each with its model version.

    ``small`` holds payloads and options that came in the same reply, by the refs' keys.
    """

    lease: str
    refs: tuple[tuple[Ref, str], ...]
    small: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)

    @property
    def jobs(self) -> list[str]:
        """Return the jobs of the refs."""
        return list(dict.fromkeys(ref.job for ref, _ in self.refs))

    @property
    def tokens(self) -> int:
        """Return the estimated tokens of all refs."""
        return sum(ref.tokens for ref, _ in self.refs)


@dataclass(frozen=True, slots=True)
class ClaimedSlice:
    """A claimed ref with its items as (id, question, context) and its job's options."""

    ref: Ref
    version: str
    items: list[tuple[str | None, str, str]]
    options: Options


@dataclass(frozen=True, slots=True)
class SliceResults:
    """The results of one claimed ref, in stored form; ``is_shared`` says that parts of it were offered."""

    ref: Ref
    results: list[dict[str, Any]]
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class LeasedPreview:
    """The best answer so far of one item in progress: ``corelane.domain.events.Partial`` without job and time."""

    lease: str
    ref: Ref
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Room:
    """How much a core may claim: ``tokens``, and up to ``spare`` from lanes and lines that are not in ``met``."""

    tokens: int
    spare: int = 0
    met: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """The replies of one trip: how many slices were refused, by lease; jobs that are final; and the new claim."""

    refused: dict[str, int]
    closed: set[str]
    claim: Claim | None
    #: Redis' time at the claim, in microseconds, if work was asked for.
    redis_us: int | None = None
    #: A part of another core's item, where that was asked for and nothing was claimed; what came of the own offer.
    part: TakenPart | None = None
    offered: Offered | None = None


class Dispatch:
    """Claims and commits for one core."""

    def __init__(self, settings: Settings, core: str, price: str = NOTHING) -> None:
        """``price`` is that of the core, as it is stored."""
        self._settings = settings
        self._cache = settings.cache
        self._core = core
        self._price = price
        self._link = Link(settings.redis_url)
        self._texts = ContextTexts(self._link, settings.context_text_bytes)

    def exchange(
        self,
        commits: Mapping[str, Sequence[SliceResults]],
        jobs: Sequence[str],
        versions: Sequence[str],
        *,
        room: Room,
        linger: bool,
        idle: bool,
        laden: bool = False,
        previews: Sequence[LeasedPreview] = (),
        found: Sequence[tuple[str, Ref]] = (),
        spent: Mapping[str, Sequence[int]] | None = None,
        sent_us: int | None = None,
        lost: Sequence[int] = (),
        parts: PartsDone = NO_PARTS,
        wait: bool = False,
    ) -> Exchange:
        """Commit by lease, ask which of ``jobs`` are final, and claim for ``versions`` as much as has room: one trip.

        ``previews`` become events of their jobs, if their leases still hold. ``found`` are claimed refs, by lease, with
        the tokens that they are charged from now on. ``spent`` is what this core spent on each job with results here,
        in microseconds, as ``domain.timing.Spent`` has it, then windows and tokens; ``sent_us`` is the present time of
        Redis, if it is known. ``lost`` are windows, tokens and core microseconds of work that was thrown away; they go
        with the first commit. ``parts`` are what it does for long items together with other cores.

        ``idle`` says that nothing else is in progress: only then are items claimed that failed before. ``laden`` says
        that a document is in progress: then no second one is claimed. Without versions nothing is claimed, and the
        bell stays as it is.

        With ``wait`` it first sleeps until a submit wakes this core, for POP_S at most. Redis claims at that moment, so
        a lone question saves a trip.
        """
        left = dict(spent or {})
        commands: list[Command] = [("BLPOP", keys.wake(self._core), POP_S)] if wait else []
        for lease, outcomes in commits.items():
            commands.append(self._commit(lease, outcomes, left, sent_us, lost))
            lost = ()
        commands += [("HGET", keys.job(job), "status") for job in jobs]
        commands += _tellings(previews)
        if found:
            commands.append(call("correct", core=self._core, found=[(lease, ref.encode()) for lease, ref in found]))
        if parts.found:
            commands.append(parts.answers(self._core, left, self._price, lost))
        if versions:
            commands.append(self._claim(versions, room, linger, idle, laden, parts.helps))
        if parts.offer is not None:
            # After the claim, which lowers the bell: a core that answers a part from now on rings.
            commands.append(parts.offer.command(self._core, parts.bell))
        replies = self._link.many(commands)[wait:]
        refused = dict(zip(commits, map(int, replies[: len(commits)]), strict=True))
        statuses = replies[len(commits) : len(commits) + len(jobs)]
        closed = {job for job, status in zip(jobs, statuses, strict=True) if status not in OPEN_STATUSES}
        offered = None if parts.offer is None else Offered.parse(replies.pop())
        if not versions:
            return Exchange(refused, closed, None, offered=offered)
        redis_us, *taken = replies[-1]
        if taken and taken[0] == b"part":
            return Exchange(refused, closed, None, redis_us, TakenPart.parse(taken[1:]), offered)
        return Exchange(refused, closed, _parse_claim(taken), redis_us, None, offered)

    def _claim(
        self, versions: Sequence[str], room: Room, linger: bool, idle: bool, laden: bool, helps: bool
    ) -> Command:
        return call(
            "claim",
            core=self._core,
            room=room.tokens,
            spare=max(room.tokens, room.spare),
            met=",".join(["", *room.met, ""]),
            refs=self._settings.claim_refs,
            document=self._settings.slice_tokens,
            laden=laden,
            lease_ms=int(self._settings.lease_s * 1000),
            linger=linger,
            idle=idle,
            helps=helps,
            ttl=self._settings.results_ttl_s,
            versions=versions,
            cache=self._cache,
        )

    def hand_back(self, lease: str, refs: Sequence[tuple[Ref, str]], bell: str, lost: Sequence[int] = ()) -> None:
        """Put refs back into the lanes as they were, so that no attempt is counted; ``lost`` is as in ``exchange``."""
        stretches = [
            {"ref": ref.encode(), "version": version, "refs": [ref.encode()], "lost": []} for ref, version in refs
        ]
        ttl = self._settings.results_ttl_s
        ask = {"lease": lease, "only_lapsed": False, "ttl": ttl, "envelope": bell, "stretches": stretches}
        self._link.run("return_claim", **ask, lost=lost, price=self._price)

    def fetch(self, claim: Claim) -> list[ClaimedSlice]:
        """Return the items of a claim; leave out refs whose payloads are gone or cannot be read.

        Large payloads take one trip for all jobs, contexts that a job's items share take another, stored ones that this
        core has not read lately a third.
        """
        payloads = {**claim.small, **self._payloads([ref for ref, _ in claim.refs if ref.key not in claim.small])}
        found = []
        for ref, version in claim.refs:
            if ref.key not in payloads:
                continue
            payload, options = payloads[ref.key]
            try:
                rows, its_options = decode_slice(payload)[ref.offset :][: ref.count], parse_options(options)
            except ValueError as error:
                log.error("payload_unreadable", ref=ref.encode(), reason=str(error)[:200])
                continue
            found.append((ref, version, rows, its_options))
        contexts = self._contexts([ref for ref, *_ in found], [rows for _, _, rows, _ in found])
        stored = {(ref.owner, row[2]) for ref, _, rows, _ in found for row in rows if isinstance(row[2], Stored)}
        texts = self._texts.read(stored) if stored else {}
        stretches = []
        for ref, version, rows, its_options in found:
            items = [(i, q, c if isinstance(c, str) else _text_of(ref, c, contexts, texts)) for i, q, c in rows]
            whole = [(i, q, c) for i, q, c in items if c is not None]
            if len(whole) == ref.count:
                stretches.append(ClaimedSlice(ref, version, whole, its_options))
        return stretches

    def _payloads(self, refs: Sequence[Ref]) -> dict[str, tuple[bytes, bytes]]:
        """Read payloads and options, by the refs' keys, as far as they are there."""
        by_job: dict[str, list[Ref]] = {}
        for ref in refs:
            by_job.setdefault(ref.job, []).append(ref)
        commands: list[Command] = []
        for job, its_refs in by_job.items():
            commands.append(("HMGET", keys.payloads(job), *(ref.payload for ref in its_refs)))
            commands.append(("HGET", keys.job(job), "options"))
        replies = self._link.many(commands)
        return {
            ref.key: (payload, options)
            for its_refs, found, options in zip(by_job.values(), replies[::2], replies[1::2], strict=True)
            for ref, payload in zip(its_refs, found, strict=True)
            if payload is not None and options is not None
        }

    def _contexts(self, refs: Sequence[Ref], rows: Sequence[Sequence[Row]]) -> dict[tuple[str, int], str]:
        """Read the contexts that a job's items share, by job and number."""
        needed: dict[str, set[int]] = {}
        for ref, its_rows in zip(refs, rows, strict=True):
            if numbers := {row[2] for row in its_rows if isinstance(row[2], int)}:
                needed.setdefault(ref.job, set()).update(numbers)
        if not needed:
            return {}
        commands = [("HMGET", keys.contexts(job), *sorted(numbers)) for job, numbers in needed.items()]
        return {
            (job, number): text.decode(errors="replace")
            for (job, numbers), texts in zip(needed.items(), self._link.many(commands), strict=True)
            for number, text in zip(sorted(numbers), texts, strict=True)
            if text is not None
        }

    def request_contexts(self, jobs: Sequence[str]) -> dict[str, RequestContext]:
        """Read the request ids and traces that jobs came with, in one trip."""
        replies = self._link.many([("HMGET", keys.job(job), "request_id", "traceparent") for job in jobs])
        return {
            job: RequestContext((request_id or b"").decode(), (traceparent or b"").decode())
            for job, (request_id, traceparent) in zip(jobs, replies, strict=True)
        }

    def wait(self) -> bool:
        """Sleep until something rings this core, for POP_S at most; return whether it did."""
        return self._link("BLPOP", keys.wake(self._core), POP_S) is not None

    def sleep(self) -> None:
        """Let this core's bell be rung again, at the end of a drain that claimed nothing."""
        self._link.many([("DEL", keys.bell(self._core), keys.wake(self._core))])

    def leave(self, versions: Sequence[str], bell: str, *, gone: bool = False) -> None:
        """Announce that this core claims no more, and ring other cores for the work that waits.

        ``gone`` says that no process follows: the core is in no list from now on.
        """
        self._link.run("leave", core=self._core, envelope=bell, versions=versions, gone=gone)

    def wake(self, bell: str) -> None:
        """Ring this core, also if the process before it left a bell behind."""
        self._link.run("wake", core=self._core, envelope=bell)

    def close(self) -> None:
        """Drop the connection; the next call opens another."""
        self._link.close()

    def _commit(
        self,
        lease: str,
        outcomes: Sequence[SliceResults],
        spent: dict[str, Sequence[int]],
        sent_us: int | None,
        lost: Sequence[int],
    ) -> Command:
        """Return the commit of a lease. What was spent on a job goes with the first that has results of it."""
        stretches = []
        its_spent = {}
        for outcome in outcomes:
            failed = sum(result["status"] == "failed" for result in outcome.results)
            stretches.append((outcome.ref.encode(), len(outcome.results) - failed, failed))
            if (sums := spent.pop(outcome.ref.job, None)) is not None:
                its_spent[outcome.ref.job] = sums
        results = [orjson.dumps(outcome.results) for outcome in outcomes]
        ttl, cache = self._settings.results_ttl_s, self._cache
        ask = {"lease": lease, "core": self._core, "ttl": ttl, "spent": its_spent, "sent_us": sent_us, "cache": cache}
        if shared := [outcome.ref.key for outcome in outcomes if outcome.is_shared]:
            ask["shared"] = shared
        return call("commit", *results, stretches=stretches, price=self._price, lost=lost, **ask)


def _text_of(
    ref: Ref,
    context: int | Stored,
    shared: Mapping[tuple[str, int], str],
    stored: Mapping[tuple[str, Stored], str],
) -> str | None:
    """Return the text that a row's context stands for, if it is there."""
    return shared.get((ref.job, context)) if isinstance(context, int) else stored.get((ref.owner, context))


def _tellings(previews: Sequence[LeasedPreview]) -> Iterator[Command]:
    """Build the commands that write the best answers so far, one a lease."""
    for lease in dict.fromkeys(preview.lease for preview in previews):
        own = [preview for preview in previews if preview.lease == lease]
        items = [(preview.ref.job, preview.ref.first) for preview in own]
        yield call("add_partials", *(orjson.dumps(preview.data) for preview in own), lease=lease, items=items)


def _parse_claim(reply: list[bytes]) -> Claim | None:
    if not reply:
        return None
    lease, *parts = reply
    refs, versions, payloads, options = (parts[place::4] for place in range(4))
    taken = [(Ref.decode(ref.decode()), version.decode()) for ref, version in zip(refs, versions, strict=True)]
    small = {
        ref.key: (payload, its_options)
        for (ref, _), payload, its_options in zip(taken, payloads, options, strict=True)
        if payload
    }
    return Claim(lease.decode(), tuple(taken), small)
