"""A store with its three sides at hand, on a real Redis, and cores that live only as far as they are told to."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import redis

from corelane.domain.dispatch import PUBLIC
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Priority, Webhook
from corelane.settings import Settings
from corelane.store.dispatch import Claim, Dispatch, ExchangeRequest, Room, SliceResults
from corelane.store.fleet import Announcer, Fleet
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import ItemFile, Submission
from corelane.store.link.link import AsyncLink
from corelane.store.plans import Plans
from corelane.store.upkeep import Upkeep
from corelane.submitting.submitter import Submitter
from corelane.tasks.question_answering.wire import Question
from tests.tools.question_jobs import QuestionHead

VERSION = "tiny@1"

#: A score above this is a time in milliseconds; tokens and other scores are far below.
LEAST_TIME_MS = 10**12

Found = TypeVar("Found")


def announce(
    settings: Settings,
    core: str,
    version: str,
    names: Sequence[str] = (),
    summary: Mapping[str, object] | None = None,
) -> None:
    """Make a version known, as the core that loaded it does."""
    with closing(Plans(settings, core, "")) as plans:
        plans.announce(version, summary or {}, names)


class LoneCore(Dispatch):
    """A core that does one thing at a time."""

    def __init__(self, settings: Settings, name: str) -> None:
        super().__init__(settings, name)
        self._room = Room(settings.claim_tokens)

    def claim(self, versions: Sequence[str], *, linger: bool, idle: bool = True, **more: Any) -> Claim | None:
        request = ExchangeRequest(versions=versions, room=self._room, linger=linger, idle=idle, **more)
        return self.exchange(request).claim

    def commit(self, lease: str, outcomes: Sequence[SliceResults]) -> int:
        """Commit, and return how many were refused."""
        return self.exchange(ExchangeRequest(commits={lease: outcomes}, room=self._room)).refused[lease]


def age(raw: Any, seconds: float) -> None:
    """Move every deadline in Redis into the past, as if so many seconds had gone by."""
    ms = math.ceil(1000 * seconds)
    for key in raw.scan_iter("cl:*", _type="zset"):
        for member, score in raw.zrange(key, 0, -1, withscores=True):
            if score > LEAST_TIME_MS:
                raw.zincrby(key, -ms, member)
    for key in (*raw.scan_iter("cl:job:*"), *raw.scan_iter("cl:batch:*", _type="hash")):
        if raw.hexists(key, "expires_ms"):
            raw.hincrby(key, "expires_ms", -ms)
    for core in raw.hkeys("cl:claimed"):
        raw.hincrby("cl:claimed", core, -ms)
    for key in raw.scan_iter("cl:core:*"):
        raw.pexpire(key, raw.pttl(key) - ms)


class Bench:
    """The store as API, cores and keeper see it."""

    def __init__(self, settings: Settings, raw: redis.Redis, bell: str) -> None:
        self.settings, self.bell = settings, bell
        #: What it returns is what the test knows it to be.
        self.raw: Any = raw
        self.upkeep = Upkeep(settings, bell)

    def core(self, name: str, speed: float | None = None) -> LoneCore:
        announce(self.settings, name, VERSION, ["default"])
        Announcer(self.settings, name).beat({"state": "idle"}, [VERSION], [], speed)
        return LoneCore(self.settings, name)

    def submit(
        self,
        count: int,
        job: str | None = None,
        webhook: Webhook | None = None,
        priority: Priority = Priority.NORMAL,
        expires_in_s: float | None = None,
        owner: str = PUBLIC,
        items: list[Question] | None = None,
        contexts: dict[str, str] | None = None,
        file: ItemFile | None = None,
        version: str = VERSION,
        window: int | None = None,
        **times: datetime | None,
    ) -> str:
        job = job or new_job_id()
        head = QuestionHead(
            model=version,
            metadata={"k": "v"},
            webhook=webhook,
            priority=priority,
            expires_in_s=expires_in_s,
            contexts=contexts,
            results_window=window,
            **times,
        )
        items = items or [Question(id=f"i{n}", question="who", context="ada") for n in range(count)]

        async def submit(link: AsyncLink) -> JobRecord:
            submission = Submission(head, owner, items, file, job)
            return await submit_as_admitted(link, self.settings, self.bell, submission)

        self.with_link(submit)
        return job

    def get(self, job: str) -> JobRecord:
        record = self.with_store(lambda store: store.get(job))
        assert isinstance(record, JobRecord)
        return record

    def results(self, job: str, after: int = 0, limit: int = 10_000) -> list[dict]:
        record = self.get(job)
        return self.with_store(lambda store: store.results(record, after, limit))

    def drop(self, job: str, before: int) -> int:
        record = self.get(job)
        return self.with_store(lambda store: store.drop(record, before))

    def cancel(self, job: str) -> bool | None:
        return self.with_store(lambda store: store.cancel(job))

    def age(self, seconds: float) -> None:
        """Act as if so many seconds had gone by: see ``age``."""
        age(self.raw, seconds)

    def waiting(self) -> dict[str, int]:
        """Outstanding tokens, by version while they wait and by core while claimed; empty once all is answered."""
        found = self.raw.hgetall("cl:waiting") | self.raw.hgetall("cl:held")
        return {place: int(tokens) for place, tokens in found.items()}

    def with_store(self, action: Callable[[JobStore], Awaitable[Found]]) -> Found:
        async def run(link: AsyncLink) -> Found:
            return await action(JobStore(link, self.settings, self.bell))

        return self.with_link(run)

    def with_link(self, action: Callable[[AsyncLink], Awaitable[Found]]) -> Found:
        async def run() -> Found:
            link = AsyncLink(self.settings.redis_url)
            try:
                return await action(link)
            finally:
                await link.close()

        return asyncio.run(run())


async def keep(store: JobStore, submission: Submission) -> JobRecord:
    """Have the store keep a job of one small item, whatever the fleet is like."""
    return await store.submit(submission, VERSION, [(0, 1, 64)])


async def submit_as_admitted(link: AsyncLink, settings: Settings, bell: str, submission: Submission) -> JobRecord:
    """Submit to the version that the job names, whether a core holds it or not."""
    store = JobStore(link, settings, bell)
    admission = replace(await store.admit(VERSION, owner=submission.owner), version=submission.head.model)
    return (await Submitter(store, Fleet(link), settings).submit(submission, admission)).record


def answered(claim: Claim, status: str = "succeeded") -> list[SliceResults]:
    return [
        SliceResults(
            ref, [{"index": ref.first + i, "id": f"i{ref.first + i}", "status": status} for i in range(ref.count)]
        )
        for ref, _ in claim.refs
    ]


def claimed(core: LoneCore, *, linger: bool = False) -> Claim:
    claim = core.claim([VERSION], linger=linger)
    assert claim is not None
    return claim


def answer_all(core: LoneCore) -> list[str]:
    """Answer all that waits; the jobs in the order they were claimed."""
    jobs = []
    while (claim := core.claim([VERSION], linger=False)) is not None:
        jobs += [ref.job for ref, _ in claim.refs]
        core.commit(claim.lease, answered(claim))
    return jobs
