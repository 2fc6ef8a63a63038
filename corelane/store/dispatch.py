"""Dispatch: a core's side of the store. Claim under a lease, fetch payloads, commit under the fence, linger.

Used by one worker process on a connection of its own. Nothing here repeats a call: after StoreUnavailable the
caller goes on with its next claim, and whatever was claimed comes back when its lease lapses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.jobs import Options
from corelane.lanes import Ref
from corelane.settings import Settings
from corelane.store.connections import Command, Link, evalsha
from corelane.store.scripts import load_scripts

#: One blocking pop lasts at most this long, so that the stop flag is seen and the bell stays fresh, in seconds.
POP_S = 1

OPEN_STATUSES = (b"queued", b"running")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a core took: refs with the model version each is for, all under one lease."""

    lease: str
    refs: tuple[tuple[Ref, str], ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A claimed ref with its items as (id, question, context) and its job's options."""

    ref: Ref
    version: str
    items: list[tuple[str | None, str, str]]
    options: Options


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one claimed ref, in stored form."""

    ref: Ref
    results: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came of one trip: stretches refused by lease, jobs that want no more, and the new claim."""

    refused: dict[str, int]
    closed: set[str]
    claim: Claim | None


class Dispatch:
    """Claims and commits for one core."""

    def __init__(self, settings: Settings, core: str) -> None:
        self._settings = settings
        self._core = core
        self._link = Link(settings.redis_url)

    def exchange(
        self,
        commits: Mapping[str, Sequence[Outcome]],
        jobs: Sequence[str],
        versions: Sequence[str],
        *,
        room: int,
        linger: bool,
        idle: bool,
    ) -> Exchange:
        """Commit by lease, ask which of ``jobs`` are final, and claim up to ``room`` tokens, in one trip.

        ``idle`` says that nothing else is in progress: only then are items claimed that failed before. With no room
        nothing is claimed and the bell stays as it is.
        """
        commit = load_scripts()["commit"]
        commands = [evalsha(commit, self._commit_args(lease, outcomes)) for lease, outcomes in commits.items()]
        commands += [("HGET", f"cl:job:{{{job}}}", "status") for job in jobs]
        replies, claimed = self._send(commands, versions, room, linger, idle)
        refused = dict(zip(commits, map(int, replies[: len(commits)]), strict=True))
        statuses = replies[len(commits) :]
        closed = {job for job, status in zip(jobs, statuses, strict=True) if status not in OPEN_STATUSES}
        return Exchange(refused, closed, _parse_claim(claimed))

    def _send(
        self, commands: list[Command], versions: Sequence[str], room: int, linger: bool, idle: bool
    ) -> tuple[list[Any], list[bytes]]:
        if not versions:
            return self._link.many_with_scripts(commands) if commands else [], []
        s = self._settings
        flags = (int(s.lease_s * 1000), int(linger), int(idle), s.results_ttl_s)
        replies = self._link.run_with(commands, "claim", self._core, room, s.claim_refs, *flags, *versions)
        return replies[:-1], replies[-1]

    def claim(self, versions: Sequence[str], *, linger: bool) -> Claim | None:
        """A claim by itself, as a core does that has nothing else in progress."""
        room = self._settings.claim_tokens
        return self.exchange({}, [], versions, room=room, linger=linger, idle=True).claim

    def commit(self, lease: str, outcomes: Sequence[Outcome]) -> int:
        """Commit without taking more; returns the stretches refused because the lease was lost."""
        return int(self._link.run("commit", *self._commit_args(lease, outcomes)))

    def hand_back(self, lease: str, refs: Sequence[tuple[Ref, str]], bell: str) -> None:
        """Put refs back into the lanes as they were: not started here, so no attempt is counted."""
        stretches = [
            {
                "key": ref.key,
                "job": ref.job,
                "version": version,
                "tokens": ref.tokens,
                "refs": [ref.encode()],
                "lost": [],
            }
            for ref, version in refs
        ]
        self._link.run("return", lease, 0, self._settings.results_ttl_s, bell, orjson.dumps(stretches))

    def fetch(self, claim: Claim) -> list[Stretch]:
        """The payloads of a claim, one trip for all its jobs; refs whose job is gone are left out."""
        by_job: dict[str, list[tuple[Ref, str]]] = {}
        for ref, version in claim.refs:
            by_job.setdefault(ref.job, []).append((ref, version))
        commands: list[tuple[Any, ...]] = []
        for job, refs in by_job.items():
            commands.append(("HMGET", f"cl:in:{{{job}}}", *(ref.slice for ref, _ in refs)))
            commands.append(("HGET", f"cl:job:{{{job}}}", "options"))
        replies = self._link.many(commands)
        stretches = []
        for refs, blobs, options in zip(by_job.values(), replies[::2], replies[1::2], strict=True):
            if options is None:
                continue
            parsed = Options.model_validate_json(options)
            for (ref, version), blob in zip(refs, blobs, strict=True):
                if blob is not None:
                    items = orjson.loads(blob)[ref.offset : ref.offset + ref.count]
                    stretches.append(Stretch(ref, version, [tuple(item) for item in items], parsed))
        return stretches

    def wait(self) -> bool:
        """Sleep until a submit wakes this core, at most POP_S; whether it did."""
        return self._link("BLPOP", f"cl:wake:{self._core}", POP_S) is not None

    def leave(self, versions: Sequence[str]) -> None:
        """Tell the router that this core takes no more."""
        self._link.run("leave", self._core, *versions)

    def wake(self, bell: str) -> None:
        """Ring this core, whatever bell a predecessor left behind."""
        self._link.run("wake", self._core, bell)

    def close(self) -> None:
        """Drop the connection; the next call opens another."""
        self._link.close()

    def _commit_args(self, lease: str, outcomes: Sequence[Outcome]) -> list[Any]:
        args: list[Any] = [lease, self._core, self._settings.results_ttl_s]
        for outcome in outcomes:
            failed = sum(result["status"] == "failed" for result in outcome.results)
            ref = outcome.ref
            args += [ref.job, ref.first, ref.tokens, len(outcome.results) - failed, failed]
            args.append(orjson.dumps(outcome.results))
        return args


def _parse_claim(reply: list[bytes]) -> Claim | None:
    if not reply:
        return None
    texts = [part.decode() for part in reply]
    refs = tuple((Ref.decode(ref), version) for ref, version in zip(texts[1::2], texts[2::2], strict=True))
    return Claim(texts[0], refs)
