"""Submission: bounds on waiting work, when to come back, and each job made once."""

import asyncio
import base64
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from pydantic import SecretStr

from corelane.domain.dispatch import PUBLIC
from corelane.domain.jobs import Webhook
from corelane.errors import IdempotencyKeyReused, NotReady, Overloaded, StoreUnavailable
from corelane.store.fleet import Announcer, Fleet, drain_rate
from corelane.store.gauges import read_work
from corelane.store.jobs.idempotency import Held, Holder, by_key, by_name
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Admission, Submission
from corelane.store.link.link import AsyncLink
from corelane.submitting.submitter import Submitted, Submitter, drained_before
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, announce, answered, claimed
from tests.tools.question_jobs import QuestionHead

Found = TypeVar("Found")

SITUATIONS = Path(__file__).parent / "retry_situations.json"


def test_more_than_may_wait_is_refused_before_anything_is_written(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_outstanding_tokens": 64 * 50})
    bench.core("a/0")
    bench.submit(40)
    before = sorted(bench.raw.keys())
    with pytest.raises(Overloaded, match="come back in 1 s"):
        bench.submit(20)
    assert sorted(bench.raw.keys()) == before
    bench.submit(10)


def test_work_that_no_core_can_do_counts_as_waiting(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_outstanding_tokens": 64 * 50})
    bench.submit(40)
    with pytest.raises(Overloaded):
        bench.submit(20)
    core = bench.core("a/0")
    assert bench.waiting() == {VERSION: 64 * 40}
    claim = claimed(core)
    assert bench.waiting() == {"a/0": 64 * 40}
    core.commit(claim.lease, answered(claim))
    bench.submit(50)


def test_time_to_come_back_follows_the_speed_that_was_measured(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_outstanding_tokens": 64 * 50})
    for core in ("a/0", "b/0"):
        bench.core(core, 320.0)
    bench.submit(40)
    with pytest.raises(Overloaded) as refused:
        bench.submit(50)
    assert refused.value.retry_after_s == 4


def test_time_to_come_back_of_one_owner_counts_what_others_are_served_meanwhile(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_owner_tokens": 64 * 50})
    bench.core("a/0", 640.0)
    bench.submit(40, owner="one")
    bench.submit(50, owner="two")
    with pytest.raises(Overloaded, match="one API key") as refused:
        bench.submit(50, owner="one")
    assert refused.value.retry_after_s == 9


def test_time_to_come_back_is_what_it_took_in_situations_that_were_recorded() -> None:
    """Two hundred refusals under changing load: what the service knew, and the seconds it took."""
    errors = []
    for situation in orjson.loads(SITUATIONS.read_bytes()):
        rate = drain_rate(situation["answered"], [float(speed.split()[0]) for speed in situation["speeds"]])
        outstanding = sum(tokens for *_, tokens in situation["owed"])
        for owner, is_own_bound, excess, took_s in situation["refusals"]:
            own = sum(tokens for who, _, tokens in situation["owed"] if who == owner)
            excesses = (-outstanding, excess) if is_own_bound else (excess, -outstanding)
            drained = drained_before(*excesses, Admission(VERSION, outstanding, own))
            errors.append(abs(drained / rate / took_s - 1))
    assert len(errors) == 200
    assert statistics.median(errors) <= 0.25


def test_one_owner_is_bounded_by_itself_and_others_still_come_in(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_owner_tokens": 64 * 50})
    core = bench.core("a/0")
    bench.submit(40, owner="flood")
    with pytest.raises(Overloaded, match="one API key"):
        bench.submit(20, owner="flood")
    bench.submit(20, owner="other")
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    bench.submit(20, owner="flood")


def test_core_that_starts_again_is_as_fast_as_it_was_with_enough_to_do(bench: Bench) -> None:
    core, announcer = bench.core("a/0", 640.0), Announcer(bench.settings, "a/0")
    core.leave([VERSION], bench.bell)
    for speed, is_full, known in (
        (None, False, 640),
        (64.0, False, 640),
        (900.0, True, 900),
    ):
        announcer.beat({"state": "idle"}, [VERSION], [], speed, is_full_speed=is_full)
        assert bench.with_link(read_work).speeds == {"a/0": known}
    core.leave([VERSION], bench.bell, gone=True)
    Announcer(bench.settings, "b/0").beat({"state": "idle"}, [VERSION], [], 64.0, is_full_speed=False)
    assert bench.with_link(read_work).speeds == {"b/0": 64}


def with_submitter(bench: Bench, action: Callable[[Submitter, JobStore], Awaitable[Found]]) -> Found:
    async def run(link: AsyncLink) -> Found:
        store = JobStore(link, bench.settings, bench.bell)
        return await action(Submitter(store, Fleet(link), bench.settings), store)

    return bench.with_link(run)


def one(**more: Any) -> Submission:
    return Submission(QuestionHead(), items=[Question(question="who", context="ada")], **more)


def close(bench: Bench, version: str) -> None:
    bench.raw.hset("cl:closed", version, 1)


def test_job_whose_version_closes_after_its_admission_goes_to_the_version_that_follows(bench: Bench) -> None:
    bench.core("a/0")

    async def submit(submitter: Submitter, store: JobStore) -> Submitted:
        admission = await submitter.admit(QuestionHead(), PUBLIC, "job")
        announce(bench.settings, "a/0", "next@2")
        Announcer(bench.settings, "a/0").beat({"state": "idle"}, ["next@2"], [])
        bench.raw.hset("cl:aliases", "default", "next@2")
        close(bench, VERSION)
        return await submitter.submit(one(), admission)

    submitted = with_submitter(bench, submit)
    assert (submitted.record.version, submitted.is_held, submitted.is_replayed) == ("next@2", True, False)


def test_job_of_a_version_that_stays_closed_is_refused_and_leaves_nothing(bench: Bench) -> None:
    bench.core("a/0")

    async def submit(submitter: Submitter, store: JobStore) -> Submitted:
        admission = await submitter.admit(QuestionHead(), PUBLIC, "job")
        close(bench, VERSION)
        return await submitter.submit(one(), admission)

    with pytest.raises(NotReady, match="no worker has announced a model yet"):
        with_submitter(bench, submit)
    assert bench.raw.keys("cl:job:*") == []


class Counting(JobStore):
    """Counts admissions."""

    admissions = 0

    async def admit(self, *args: Any) -> Admission:
        self.admissions += 1
        return await super().admit(*args)


def after_change(bench: Bench, change: Callable[[], object], **more: Any) -> tuple[int, Submitted]:
    """Submit three lone jobs, the last one after a change; return how often the last one was admitted, and the job."""

    async def submit(link: AsyncLink) -> tuple[int, Submitted]:
        store = Counting(link, bench.settings, bench.bell)
        submitter = Submitter(store, Fleet(link), bench.settings)
        for _ in range(2):
            assert (await submitter.submit(one(**more))).is_held
        assert store.admissions == 1
        change()
        submitted = await submitter.submit(one(**more))
        return store.admissions - 1, submitted

    bench.core("a/0")
    return bench.with_link(submit)


def test_lone_jobs_after_the_first_are_admitted_by_their_submission(bench: Bench) -> None:
    admissions, submitted = after_change(bench, lambda: None)
    assert (admissions, submitted.record.version, submitted.is_held) == (0, VERSION, True)
    assert bench.waiting() == {VERSION: 3 * 64}


def test_lone_job_follows_an_alias_that_was_moved(bench: Bench) -> None:
    def move() -> None:
        announce(bench.settings, "a/0", "next@2")
        Announcer(bench.settings, "a/0").beat({"state": "idle"}, ["next@2"], [])
        bench.raw.hset("cl:aliases", "default", "next@2")

    assert after_change(bench, move)[1].record.version == "next@2"


@pytest.mark.parametrize("paused", [f"model:{VERSION}", f"owner:{PUBLIC}", "owner:other"])
def test_lone_job_is_admitted_by_itself_while_anything_is_paused(bench: Bench, paused: str) -> None:
    admissions, submitted = after_change(bench, lambda: bench.raw.hset("cl:paused", paused, '{"by":"","at_ms":0}'))
    assert (admissions, submitted.is_held) == (1, paused == "owner:other")


def test_lone_job_of_a_version_that_no_core_holds_any_more_is_refused(bench: Bench) -> None:
    with pytest.raises(NotReady):
        after_change(bench, lambda: bench.raw.delete(f"cl:holders:{VERSION}"))


@pytest.mark.parametrize("bound", ["max_outstanding_tokens", "max_owner_tokens"])
def test_lone_job_that_does_not_fit_is_refused_and_leaves_nothing(bench: Bench, bound: str) -> None:
    bench.settings = bench.settings.model_copy(update={bound: 2 * 64})
    with pytest.raises(Overloaded):
        after_change(bench, lambda: None)
    assert len(bench.raw.keys("cl:job:*")) == 2


def test_request_that_is_sent_again_finds_its_job_and_another_one_is_refused(bench: Bench) -> None:
    bench.core("a/0")
    same = [by_key("ann", "k", "same body")] * 3

    async def submit(submitter: Submitter, store: JobStore) -> list[Submitted]:
        assert not await submitter.is_made(same[0])
        assert await submitter.replay(same[0]) is None
        made = list(await asyncio.gather(*(submitter.submit(one(once=once)) for once in same)))
        assert await submitter.is_made(same[0])
        with pytest.raises(IdempotencyKeyReused):
            await submitter.submit(one(once=by_key("ann", "k", "another body")))
        return made

    made = with_submitter(bench, submit)
    assert len({submitted.record.id for submitted in made}) == 1
    assert sorted(submitted.is_replayed for submitted in made) == [False, True, True]


def test_job_that_others_make_and_delete_again_and_again_is_given_up_with_a_sentence(bench: Bench) -> None:
    bench.core("a/0")

    class Unlucky(JobStore):
        async def submit(self, *args: Any) -> JobRecord:
            raise Held(Holder("job_000000000000000000000000000", "body"))

    async def submit(link: AsyncLink) -> Submitted:
        store = Unlucky(link, bench.settings, bench.bell)
        return await Submitter(store, Fleet(link), bench.settings).submit(one(once=by_name("ann", "report", "body")))

    with pytest.raises(StoreUnavailable, match="created and deleted while this request was being handled"):
        bench.with_link(submit)


def test_host_of_a_webhook_is_resolved_once_though_its_job_is_admitted_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = SecretStr("whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode())
    bench.settings = bench.settings.model_copy(update={"webhook_secret": secret})
    bench.core("a/0")
    resolved: list[str] = []
    monkeypatch.setattr("corelane.webhooks.addresses.check_address", lambda _, url: resolved.append(url))
    head = QuestionHead(webhook=Webhook(url="https://example.com/x"))

    async def submit(submitter: Submitter, store: JobStore) -> Submitted:
        admission = await submitter.admit(head, PUBLIC, "job")
        announce(bench.settings, "a/0", "next@2", ["default"])
        bench.raw.hset("cl:aliases", "default", "next@2")
        close(bench, VERSION)
        Announcer(bench.settings, "a/0").beat({"state": "idle"}, ["next@2"], [])
        return await submitter.submit(replace(one(), head=head), admission)

    assert with_submitter(bench, submit).record.version == "next@2"
    assert resolved == ["https://example.com/x"]
