"""Submission: bounds on waiting work, promises, deadlines that cannot be met, and each job made once."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from pydantic import SecretStr

from corelane.domain.dispatch import PUBLIC
from corelane.domain.forecast import KEPT
from corelane.domain.jobs import Priority, Webhook
from corelane.errors import DeadlineInfeasible, IdempotencyKeyReused, NotReady, Overloaded, StoreUnavailable
from corelane.store.fleet import Announcer, Fleet
from corelane.store.jobs.idempotency import Held, Holder, by_key, by_name
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import ItemFile, Submission
from corelane.store.link.link import AsyncLink
from corelane.submitting.submitter import (
    MAX_RETRY_AFTER_S,
    UNKNOWN_RETRY_AFTER_S,
    Submitted,
    Submitter,
    seconds_until,
)
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, announce, answer_all, answered, claimed
from tests.tools.question_jobs import QuestionHead

Found = TypeVar("Found")


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
    assert refused.value.retry_after_s == 8


def test_time_to_come_back_follows_the_measured_rate() -> None:
    assert seconds_until(5_000, 1_000) == 5
    assert seconds_until(1, 1_000_000) == 1
    assert seconds_until(10**9, 1) == MAX_RETRY_AFTER_S
    assert seconds_until(10**9, 0) == UNKNOWN_RETRY_AFTER_S


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


def test_promise_tells_what_goes_first_and_when_the_job_is_done(bench: Bench) -> None:
    bench.core("a/0", 640.0)
    bench.submit(100)
    bench.submit(10, priority=Priority.LOW)
    job = bench.get(bench.submit(100)).describe()
    assert job.promise is not None
    assert (job.promise.position, job.promise.tokens_ahead) == (1, 6400)
    times = (job.created_at, job.promise.earliest_at, job.promise.finish_at, job.promise.latest_at)
    assert list(times) == sorted(str(time) for time in times)


def test_core_that_starts_again_is_as_fast_as_it_was_with_enough_to_do(bench: Bench) -> None:
    core, announcer = bench.core("a/0", 640.0), Announcer(bench.settings, "a/0")
    core.leave([VERSION], bench.bell)
    for speed, is_full, known in (
        (None, False, 640),
        (64.0, False, 640),
        (900.0, True, 900),
    ):
        announcer.beat({"state": "idle"}, [VERSION], [], speed, is_full_speed=is_full)
        [found] = bench.with_store(lambda store: store.admit(VERSION)).speeds
        assert found == known
    core.leave([VERSION], bench.bell, gone=True)
    Announcer(bench.settings, "b/0").beat({"state": "idle"}, [VERSION], [], 64.0, is_full_speed=False)
    [found] = bench.with_store(lambda store: store.admit(VERSION)).speeds
    assert found == 64


def test_promise_follows_how_long_jobs_of_its_kind_took(bench: Bench) -> None:
    core = bench.core("a/0", 640.0)

    def promised_s() -> float:
        record = bench.get(bench.submit(10))
        bench.raw.hincrby(f"cl:job:{{{record.id}}}", "created_ms", -4000)
        answer_all(core)
        assert record.promise is not None
        assert record.promise.expected_ms is not None
        return record.promise.expected_ms / 1000

    first = promised_s()
    assert first == pytest.approx(1)
    [(kind, kept)] = bench.raw.hgetall(f"cl:residuals:{VERSION}").items()
    # Four seconds and a little, for one that was reckoned.
    assert 138 <= int(kept) < 200
    bench.raw.hset(f"cl:residuals:{VERSION}", kind, kept * 70)
    assert promised_s() > 3.9
    [(_, kept)] = bench.raw.hgetall(f"cl:residuals:{VERSION}").items()
    assert len(kept) == 4 * KEPT
    assert bench.raw.ttl(f"cl:residuals:{VERSION}") > 0


def test_only_jobs_that_cores_answered_tell_how_long_jobs_take(bench: Bench) -> None:
    core = bench.core("a/0", 640.0)
    canceled, former = bench.submit(1), bench.submit(1)
    bench.cancel(canceled)
    # As an API of the version before submits.
    bench.raw.hdel(f"cl:job:{{{former}}}", "reckoned")
    answer_all(core)
    assert bench.get(former).status == "succeeded"
    assert bench.raw.exists(f"cl:residuals:{VERSION}") == 0


def test_lone_question_beside_a_batch_of_its_owner_is_promised_no_more_than_its_turn(bench: Bench) -> None:
    bench.core("a/0", 640.0)
    bench.submit(1000)
    questions = [bench.get(bench.submit(1)).describe().promise for _ in range(2)]
    assert [(promise.position, promise.tokens_ahead) for promise in questions if promise] == [(0, 64), (1, 128)]
    others = bench.get(bench.submit(1, owner="other")).describe().promise
    assert others is not None
    assert others.tokens_ahead == 64


def test_promise_has_no_time_before_any_speed_was_measured(bench: Bench) -> None:
    bench.core("a/0")
    promise = bench.get(bench.submit(10)).describe().promise
    assert promise is not None
    assert (promise.position, promise.tokens_ahead, promise.finish_at) == (0, 0, None)


def test_what_stands_in_files_goes_first_too(bench: Bench) -> None:
    bench.core("a/0")
    bench.submit(0, file=ItemFile("large.jsonl", 10_000, 640_000))
    promise = bench.get(bench.submit(10)).describe().promise
    assert promise is not None
    assert promise.tokens_ahead == 640
    batch = bench.get(bench.submit(2000)).describe().promise
    assert batch is not None
    assert batch.tokens_ahead == 640 + 64 * 2000


def test_job_that_would_be_late_is_refused_with_what_can_be_met(bench: Bench) -> None:
    bench.core("a/0", 640.0)
    bench.submit(100)
    before = sorted(bench.raw.keys())
    with pytest.raises(DeadlineInfeasible) as refused:
        bench.submit(50, expires_in_s=5, refuse_if_late=True)
    assert sorted(bench.raw.keys()) == before
    assert 20 < refused.value.earliest_feasible_s < 40
    bench.submit(50, expires_in_s=refused.value.earliest_feasible_s, refuse_if_late=True)


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
