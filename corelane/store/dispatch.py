"""Dispatch: a core's side of the store. Claim under a lease, fetch payloads, commit under the fence, linger.

Used by one worker process on a connection of its own. Nothing here repeats a call: after StoreUnavailable the
caller goes on with its next claim, and whatever was claimed comes back when its lease lapses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.jobs import Options
from corelane.lanes import Ref
from corelane.settings import Settings
from corelane.store.connections import Link, evalsha
from corelane.store.scripts import load_scripts

#: One blocking pop lasts at most this long, so that the stop flag is seen and the bell stays fresh, in seconds.
POP_S = 1


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


class Dispatch:
    """Claims and commits for one core."""

    def __init__(self, settings: Settings, core: str) -> None:
        self._settings = settings
        self._core = core
        self._link = Link(settings.redis_url)

    def claim(self, versions: Sequence[str], *, linger: bool) -> Claim | None:
        """Work for this core, or None; then the bell says whether a submit must push or publish."""
        return self.commit_and_claim(None, [], versions, linger=linger)[1]

    def commit_and_claim(
        self, lease: str | None, outcomes: Sequence[Outcome], versions: Sequence[str], *, linger: bool
    ) -> tuple[int, Claim | None]:
        """Commit one claim (refused stretches are counted) and take the next, in one trip."""
        first = [] if lease is None else [evalsha(load_scripts()["commit"], self._commit_args(lease, outcomes))]
        s = self._settings
        lease_ms = int(s.lease_s * 1000)
        replies = self._link.run_with(
            first,
            "claim",
            *(self._core, s.claim_tokens, s.claim_refs, lease_ms, int(linger), s.results_ttl_s),
            *versions,
        )
        return int(replies[0]) if first else 0, _parse_claim(replies[-1])

    def commit(self, lease: str, outcomes: Sequence[Outcome]) -> int:
        """Commit without taking more; returns the stretches refused because the lease was lost."""
        return int(self._link.run("commit", *self._commit_args(lease, outcomes)))

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
