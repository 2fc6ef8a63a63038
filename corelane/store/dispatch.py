"""Dispatch: a core's side of the store. Claim under a lease, fetch payloads, commit under the fence, linger.

Calls are not repeated here. After StoreUnavailable the caller claims again. Work that it held returns to its lane when
the lease lapses.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from corelane.domain.dispatch import SLICE_TOKENS, Ref
from corelane.domain.jobs import DEFAULT_TASK, TaskOptions
from corelane.domain.request_facts import RequestFacts
from corelane.errors import RunFailed
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.claimed_items import Items, read_items
from corelane.store.jobs.stored_results import encode_results
from corelane.store.link.blocking import Link
from corelane.store.link.library import Command
from corelane.store.link.link import call, translated
from corelane.tasks.results import failed_result

#: Most slices that a core claims at a time. Lone items are slices of one, so this bounds the time of a claim in Redis.
CLAIM_REFS = 128

#: Longest time of one blocking pop, in seconds. It is short, so that the stop flag is seen and the bell does not
#: expire.
POP_S = 1

#: Bounds of the figures that are sent: microseconds, windows and tokens of one commit, and a time. Lua writes whole
#: numbers in full up to 10^14 in texts, and is exact up to 2^53.
MOST_FIGURE, MOST_US = 10**13, 2**53

OPEN_STATUSES = (b"queued", b"running")


@dataclass(frozen=True, slots=True)
class Claim:
    """Refs that a core claimed under one lease, each with its model version.

    ``small`` holds payloads and options that came in the same reply, by the refs' keys.
    """

    lease: str
    refs: tuple[tuple[Ref, str], ...]
    small: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    #: The shares of the refs' owners.
    shares: Mapping[str, float] = field(default_factory=dict)

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
    """A claimed ref with its items and its job's options."""

    ref: Ref
    version: str
    items: Items
    options: TaskOptions


@dataclass(frozen=True, slots=True)
class SliceResults:
    """The results of one claimed ref, in stored form."""

    ref: Ref
    results: list[dict[str, Any]]
    task: str = DEFAULT_TASK

    def encode(self) -> bytes:
        """Return the results in stored form. One without such a form is replaced by a failure, in ``results`` too."""
        try:
            return orjson.dumps(self.results)
        except TypeError:
            return self._encode_others()

    def _encode_others(self) -> bytes:
        try:
            return encode_results(self.results)
        except TypeError:
            self._fail_unwritable()
            return encode_results(self.results)

    def _fail_unwritable(self) -> None:
        for place, result in enumerate(self.results):
            try:
                encode_results([result])
            except TypeError as error:
                detail = f"the result cannot be stored as JSON: {error}"
                self.results[place] = failed_result(self.task, result["index"], result["id"], RunFailed.code, detail)


@dataclass(frozen=True, slots=True)
class Room:
    """How much a core may claim: ``tokens``; up to ``spare`` if the excess is from lanes and lines not in ``met``."""

    tokens: int
    spare: int = 0
    met: Collection[str] = ()


@dataclass(slots=True)
class ExchangeRequest:
    """What a core reports and asks for in one trip. Without versions it claims nothing, and its bell stays as it is."""

    #: Results to commit, by lease.
    commits: Mapping[str, Sequence[SliceResults]] = field(default_factory=dict)
    #: Jobs in progress; the reply says which of them are final.
    jobs: Sequence[str] = ()
    #: Versions to claim for, in this order, until the room is used.
    versions: Sequence[str] = ()
    room: Room = Room(0)
    #: Whether the core stays awake for a while if nothing is claimed.
    linger: bool = False
    #: Whether nothing else is in progress. Only then are items claimed that failed before.
    idle: bool = False
    #: Whether a document is in progress. Then no second one is claimed.
    laden: bool = False
    #: Pairs of a lease and a ref claimed under it; the ref has the tokens that it is charged from now on.
    found: Sequence[tuple[str, Ref]] = ()
    #: Tokens and core microseconds that this core spent on each job with results in ``commits``.
    spent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: First sleep until a submit wakes this core, at most POP_S. Redis then claims at once, which saves a lone item
    #: a trip.
    wait: bool = False

    def without_failed(self, reply: "Exchange") -> "ExchangeRequest":
        """Return the part of this request that was carried out: commits with a reply, and what was sent with them."""
        sent_with: dict[str, str] = {}
        for lease, outcomes in self.commits.items():
            for outcome in outcomes:
                sent_with.setdefault(outcome.ref.job, lease)
        return replace(
            self,
            commits={lease: self.commits[lease] for lease in reply.refused},
            spent={job: sums for job, sums in self.spent.items() if sent_with.get(job) in reply.refused},
        )


@dataclass(frozen=True, slots=True)
class Exchange:
    """The replies of one trip: the number of refused slices by lease, jobs that are final, and the new claim.

    A lease is ``lost`` if slices of it were refused and Redis holds no other slice of it. ``error`` is the first error
    of a step; the other steps count.
    """

    refused: dict[str, int]
    closed: set[str]
    claim: Claim | None
    lost: Collection[str] = ()
    error: Exception | None = None
    #: Whether the claim dropped only work of ended jobs, and other work may wait behind it: claim again.
    has_more: bool = False


class TripStep(NamedTuple):
    """One command of a trip, a name for its reply, and the function that reads the reply."""

    name: tuple[str, str]
    command: Command
    parse: Callable[[Any], Any]


#: The name of the step that claims.
CLAIM = ("claim", "")


class Dispatch:
    """Claims and commits for one core."""

    def __init__(self, settings: Settings, core: str) -> None:
        self._settings = settings
        self._core = core
        self._link = Link(settings.redis_url)
        #: How many claims found work: every eighth begins at low priority.
        self._turn = 1

    def exchange(self, request: ExchangeRequest) -> Exchange:
        """In one trip: commit by lease, ask which jobs are final, and claim as much as there is room for."""
        steps = list(self._steps(request))
        found = self._link.each([step.command for step in steps])
        failed = {step.name: reply for step, reply in zip(steps, found, strict=True) if isinstance(reply, Exception)}
        replies = {
            step.name: step.parse(reply) for step, reply in zip(steps, found, strict=True) if step.name not in failed
        }
        commits = {lease: replies["commit", lease] for lease in request.commits if ("commit", lease) in replies}
        refused = {lease: count for lease, (count, _) in commits.items()}
        lost = {lease for lease, (count, holds_others) in commits.items() if count and not holds_others}
        closed = {job for job in request.jobs if replies.get(("job", job), b"running") not in OPEN_STATUSES}
        claim, has_more = replies.get(CLAIM, (None, False))
        self._turn += claim is not None
        error = next(iter(failed.values()), None)
        error = error and (translated(error) or error)
        return Exchange(refused, closed, claim, lost, error, has_more)

    def _steps(self, request: ExchangeRequest) -> Iterator[TripStep]:
        """Yield the commands of a trip, in the order in which Redis runs them."""
        spent = {job: sums for job, given in request.spent.items() if (sums := countable(given))}
        if request.wait:
            yield TripStep(("wait", ""), ("BLPOP", keys.wake(self._core), POP_S), bool)
        for lease, outcomes in request.commits.items():
            yield TripStep(("commit", lease), self._commit(lease, outcomes, spent), tuple)
        for job in request.jobs:
            yield TripStep(("job", job), ("HGET", keys.job(job), "status"), lambda reply: reply)
        if request.found:
            found = [(lease, ref.encode()) for lease, ref in request.found]
            yield TripStep(("correct", ""), call("correct", core=self._core, found=found), int)
        if request.versions:
            yield TripStep(CLAIM, self._claim(request), _parse_taken)

    def _claim(self, request: ExchangeRequest) -> Command:
        room = request.room
        return call(
            "claim",
            core=self._core,
            turn=self._turn,
            room=room.tokens,
            spare=max(room.tokens, room.spare),
            met=list(room.met),
            refs=CLAIM_REFS,
            document=SLICE_TOKENS,
            laden=request.laden,
            lease_ms=int(self._settings.lease_s * 1000),
            linger=request.linger,
            idle=request.idle,
            ttl=self._settings.results_ttl_s,
            versions=request.versions,
        )

    def hand_back(self, lease: str, refs: Sequence[tuple[Ref, str]], bell: str, lost_tokens: int = 0) -> None:
        """Return refs to the lanes without counting an attempt; ``lost_tokens`` were read in vain."""
        slices = [
            {"ref": ref.encode(), "version": version, "refs": [ref.encode()], "lost": []} for ref, version in refs
        ]
        ttl = self._settings.results_ttl_s
        ask = {"lease": lease, "only_lapsed": False, "ttl": ttl, "envelope": bell, "slices": slices}
        lost = countable([lost_tokens])
        self._link.run("return_claim", **ask, lost_tokens=lost[0] if lost else 0)

    def fetch(self, claim: Claim) -> list[ClaimedSlice]:
        """Return the items of a claim; leave out refs whose payloads are gone or cannot be read.

        This takes up to two trips: large payloads of all jobs, and texts shared within a job.
        """
        refs = [ref for ref, _ in claim.refs]
        items = read_items(self._link, refs, claim.small)
        return [ClaimedSlice(ref, version, *items[ref.key]) for ref, version in claim.refs if ref.key in items]

    def request_facts(self, jobs: Sequence[str]) -> dict[str, RequestFacts]:
        """Read the request ids and traces of jobs, in one trip."""
        replies = self._link.many([("HMGET", keys.job(job), "request_id", "traceparent") for job in jobs])
        return {
            job: RequestFacts((request_id or b"").decode(), (traceparent or b"").decode())
            for job, (request_id, traceparent) in zip(jobs, replies, strict=True)
        }

    def wait(self) -> bool:
        """Sleep until this core is rung, at most POP_S; return whether it was rung."""
        return self._link("BLPOP", keys.wake(self._core), POP_S) is not None

    def sleep(self) -> None:
        """Clear this core's bell, so that it can be rung again. Call it at the end of a drain that claimed nothing."""
        self._link.many([("DEL", keys.bell(self._core), keys.wake(self._core))])

    def leave(self, versions: Sequence[str], bell: str, *, gone: bool = False) -> None:
        """Announce that this core claims no more, and ring other cores for the work that waits.

        ``gone`` means that no new process takes over: the core is removed from all lists.
        """
        self._link.run("leave", core=self._core, envelope=bell, versions=versions, gone=gone)

    def wake(self, bell: str) -> None:
        """Ring this core, even if the previous process left its bell set."""
        self._link.run("wake", core=self._core, envelope=bell)

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._link.close()

    def _commit(self, lease: str, outcomes: Sequence[SliceResults], spent: dict[str, list[int]]) -> Command:
        """Build the commit of a lease. What was spent on a job is sent with the job's first results."""
        results = [outcome.encode() for outcome in outcomes]
        slices = []
        its_spent = {}
        for outcome in outcomes:
            failed = sum(result["status"] == "failed" for result in outcome.results)
            slices.append((outcome.ref.encode(), len(outcome.results) - failed, failed))
            if (sums := spent.pop(outcome.ref.job, None)) is not None:
                its_spent[outcome.ref.job] = sums
        ttl = self._settings.results_ttl_s
        ask = {"lease": lease, "core": self._core, "ttl": ttl, "spent": its_spent}
        return call("commit", *results, slices=slices, **ask)


def countable(figures: Sequence[Any]) -> list[int]:
    """Return figures as whole numbers that Redis can add up; an empty list if one of them is no number."""
    try:
        return [min(MOST_FIGURE, max(0, int(each))) for each in figures]
    except (TypeError, ValueError, OverflowError):
        return []


def _parse_taken(taken: Sequence[Any]) -> tuple[Claim | None, bool]:
    """Read the reply to a claim: the claim, and whether to claim again."""
    has_more = taken == [b"more"]
    return None if has_more else _parse_claim(taken), has_more


def _parse_claim(reply: Sequence[bytes]) -> Claim | None:
    if not reply:
        return None
    lease, *parts = reply
    refs, versions, payloads, options, shares = (parts[place::5] for place in range(5))
    taken = [(Ref.decode(ref.decode()), version.decode()) for ref, version in zip(refs, versions, strict=True)]
    small = {ref.key: (text, its) for (ref, _), text, its in zip(taken, payloads, options, strict=True) if text}
    owners = {ref.owner: float(share) for (ref, _), share in zip(taken, shares, strict=True)}
    return Claim(lease.decode(), tuple(taken), small, owners)
