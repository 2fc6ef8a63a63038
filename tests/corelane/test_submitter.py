"""Admission: bounds on what waits, in all and per owner; promises, and deadlines that cannot be met."""

import pytest

from corelane.domain.forecast import Speed
from corelane.domain.jobs import Priority
from corelane.errors import DeadlineInfeasible, Overloaded
from corelane.store.jobs.submission import ItemFile
from corelane.submitting.submitter import MAX_RETRY_AFTER_S, seconds_until
from tests.corelane.store_bench import VERSION, Bench, answered, claimed


def test_more_than_may_wait_is_refused_before_anything_is_written(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_outstanding_tokens": 64 * 50})
    bench.core("a/0")
    bench.submit(40)
    before = sorted(bench.raw.keys())
    with pytest.raises(Overloaded, match="come back in 3600 s"):
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


def test_time_to_come_back_follows_the_cores_speed_after_idle_seconds(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_outstanding_tokens": 64 * 50})
    bench.core("a/0", Speed(320, 160, 640))
    bench.core("b/0", Speed(320, 160, 640))
    bench.submit(40)
    with pytest.raises(Overloaded) as refused:
        bench.submit(50)
    assert refused.value.retry_after_s == 4


def test_time_to_come_back_of_one_owner_counts_what_others_are_served_meanwhile(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"max_owner_tokens": 64 * 50})
    bench.core("a/0", Speed(640, 320, 1280))
    bench.submit(40, owner="one")
    bench.submit(50, owner="two")
    with pytest.raises(Overloaded, match="one API key") as refused:
        bench.submit(50, owner="one")
    assert refused.value.retry_after_s == 8


def test_time_to_come_back_follows_the_measured_rate() -> None:
    assert seconds_until(5_000, 1_000) == 5
    assert seconds_until(1, 1_000_000) == 1
    assert seconds_until(10**9, 1) == MAX_RETRY_AFTER_S
    assert seconds_until(1, 0) == MAX_RETRY_AFTER_S


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
    bench.core("a/0", Speed(640, 320, 1280))
    bench.submit(100)
    bench.submit(10, priority=Priority.LOW)
    job = bench.get(bench.submit(100)).describe()
    assert job.promise is not None
    assert (job.promise.position, job.promise.tokens_ahead) == (1, 6400)
    times = (job.created_at, job.promise.earliest_at, job.promise.finish_at, job.promise.latest_at)
    assert list(times) == sorted(str(time) for time in times)


def test_lone_question_beside_a_batch_of_its_owner_is_promised_no_more_than_its_turn(bench: Bench) -> None:
    bench.core("a/0", Speed(640, 320, 1280))
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
    bench.core("a/0", Speed(640, 320, 1280))
    bench.submit(100)
    before = sorted(bench.raw.keys())
    with pytest.raises(DeadlineInfeasible) as refused:
        bench.submit(50, expires_in_s=5, refuse_if_late=True)
    assert sorted(bench.raw.keys()) == before
    assert refused.value.earliest_feasible_s == 20
    bench.submit(50, expires_in_s=refused.value.earliest_feasible_s, refuse_if_late=True)
