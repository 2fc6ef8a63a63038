"""The store on a real Redis: submit, claim, commit, fence, return, cancel. Every job ends once, whatever happens."""

import time

import pytest

from corelane.domain.dispatch import SLICE_TOKENS
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import JobStatus, Priority
from corelane.errors import StoreFull, StoreUnavailable
from corelane.store import upkeep
from corelane.store.dispatch import ExchangeRequest, Room
from corelane.store.fleet import Announcer, Fleet
from corelane.store.link.blocking import Link
from corelane.store.link.link import CommonLink
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, LoneCore, answered, claimed


def test_job_goes_from_queued_over_running_to_succeeded(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(70)
    assert bench.get(job).status is JobStatus.QUEUED
    claim = claimed(core)
    assert bench.get(job).status is JobStatus.RUNNING
    slices = core.fetch(claim)
    assert [len(claimed_slice.items) for claimed_slice in slices] == [32, 32, 6]
    assert slices[0].items[0] == ("i0", "who", "ada")
    assert core.commit(claim.lease, answered(claim)) == 0
    record = bench.get(job)
    assert (record.status, record.succeeded, record.failed) == (JobStatus.SUCCEEDED, 70, 0)
    assert [result["index"] for result in bench.results(job)] == list(range(70))
    assert [result["index"] for result in bench.results(job, 33, 5)] == [33, 34, 35, 36, 37]
    assert bench.waiting() == {}
    assert not bench.raw.exists(f"cl:in:{{{job}}}", "cl:leases")
    assert bench.raw.xlen("cl:events") == 1


def test_submit_repeated_is_one_job(bench: Bench) -> None:
    core = bench.core("a/0")
    job = new_job_id()
    for _ in range(3):
        bench.submit(5, job)
    assert len(claimed(core).refs) == 1
    assert core.claim([VERSION], linger=False) is None


def test_one_job_spreads_over_all_cores_that_ask(bench: Bench) -> None:
    cores = [bench.core("a/0"), bench.core("b/0")]
    job = bench.submit(32 * 16)
    claims = [claimed(core) for core in cores]
    assert [claim.refs[0][0].first for claim in claims] == [0, 256]
    for core, claim in zip(cores, claims, strict=True):
        assert core.commit(claim.lease, answered(claim)) == 0
    assert bench.get(job).status is JobStatus.SUCCEEDED
    assert bench.waiting() == {}


def test_as_many_cores_are_rung_as_there_are_refs_the_least_laden_first(bench: Bench) -> None:
    busy = bench.core("a/0")
    bench.submit(32)
    claimed(busy)
    bench.raw.delete("cl:bell:a/0", "core.a.0")
    bench.core("b/0"), bench.core("c/0")
    bench.submit(1)
    assert [bench.raw.llen(f"core.{name}.0") for name in "abc"] == [0, 1, 0]
    bench.submit(64)
    assert [bench.raw.llen(f"core.{name}.0") for name in "abc"] == [1, 1, 1]


def test_sleeping_core_gets_a_celery_message_and_a_rung_one_nothing_more(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(1)
    bench.submit(1)
    assert bench.raw.llen("core.a.0") == 1
    core.commit(claimed(core).lease, [])


def test_lingering_core_is_woken_by_a_push(bench: Bench) -> None:
    core = bench.core("a/0")
    assert core.claim([VERSION], linger=True) is None
    bench.submit(1)
    assert bench.raw.llen("core.a.0") == 0
    assert core.claim([VERSION], linger=True, wait=True) is not None


def test_core_that_found_nothing_is_rung_again(bench: Bench) -> None:
    core = bench.core("a/0")
    assert core.claim([VERSION], linger=False) is None
    bench.submit(1)
    assert bench.raw.llen("core.a.0") == 1


def test_claim_keeps_to_its_token_budget_but_takes_at_least_one(bench: Bench) -> None:
    bench.submit(32 * 300)
    taken = sum(ref.tokens for ref, _ in claimed(bench.core("a/0")).refs)
    assert SLICE_TOKENS < taken <= bench.settings.claim_tokens + SLICE_TOKENS
    bench.settings = bench.settings.model_copy(update={"claim_tokens": 1})
    assert len(claimed(bench.core("a/1")).refs) == 1


def test_late_commit_is_refused_by_the_fence_and_items_run_once(bench: Bench) -> None:
    slow, quick = bench.core("a/0"), bench.core("a/0")
    job = bench.submit(3)
    lost = claimed(slow)
    bench.age(bench.settings.lease_s)
    bench.core("a/0")
    assert bench.upkeep.return_lapsed() == 1
    for _ in range(3):
        claim = claimed(quick)
        assert [ref.attempt for ref, _ in claim.refs] == [2]
        quick.commit(claim.lease, answered(claim))
    assert slow.commit(lost.lease, answered(lost, "failed")) == 1
    record = bench.get(job)
    assert (record.status, record.succeeded, record.failed) == (JobStatus.SUCCEEDED, 3, 0)
    assert [result["index"] for result in bench.results(job)] == [0, 1, 2]
    assert bench.raw.xlen("cl:events") == 1


def test_renewed_lease_does_not_lapse(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(1)
    claim = claimed(core)
    for _ in range(4):
        bench.age(bench.settings.lease_s / 2)
        Announcer(bench.settings, "a/0").beat({"state": "busy"}, [VERSION], [claim.lease])
        assert bench.upkeep.return_lapsed() == 0
    assert bench.upkeep._return(claim.lease, only_lapsed=True) == 0, "it was renewed after the keeper had looked"
    assert core.commit(claim.lease, answered(claim)) == 0


def test_returned_items_run_alone_and_fail_after_the_last_attempt(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(2)
    for attempt in (1, 2, 3):
        claims = [claimed(core)] if attempt == 1 else [claimed(core), claimed(core)]
        assert all(len(claim.refs) == 1 for claim in claims)
        assert bench.upkeep.return_own("a/0") == len(claims)
    record = bench.get(job)
    assert (record.status, record.failed) == (JobStatus.FAILED, 2)
    results = bench.results(job)
    assert [(r["index"], r["id"], r["error"]["code"]) for r in results] == [
        (0, "i0", "worker_lost"),
        (1, "i1", "worker_lost"),
    ]
    assert bench.waiting() == {}


def test_what_waits_is_claimed_by_whoever_lives(bench: Bench) -> None:
    bench.core("dead/0")
    job = bench.submit(100)
    bench.age(bench.settings.lease_s)
    alive = bench.core("b/0")
    assert bench.upkeep.tend() == ["b/0"]
    claim = claimed(alive)
    alive.commit(claim.lease, answered(claim))
    assert bench.get(job).status is JobStatus.SUCCEEDED
    assert bench.waiting() == {}


def test_core_that_leaves_has_another_rung_for_what_waits(bench: Bench) -> None:
    leaving = bench.core("a/0")
    bench.submit(32)
    bench.core("b/0")
    assert bench.raw.llen("core.b.0") == 0
    leaving.leave([VERSION], bench.bell)
    assert bench.raw.llen("core.b.0") == 1


def test_keeper_names_the_core_whose_bell_was_lost(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(1)
    bench.raw.delete("core.a.0")
    bench.age(upkeep.BELL_GRACE_S + 0.001)
    assert bench.upkeep.tend() == ["a/0"]
    claim = claimed(core)
    assert bench.upkeep.tend() == []
    core.commit(claim.lease, answered(claim))


@pytest.mark.parametrize("status", [JobStatus.CANCELED, JobStatus.EXPIRED])
def test_job_that_ends_early_keeps_what_is_done_and_drops_the_rest(bench: Bench, status: JobStatus) -> None:
    core = bench.core("a/0")
    job = bench.submit(400, expires_in_s=60)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim)[:1])
    late = answered(claim)[1:]
    if status is JobStatus.CANCELED:
        assert [bench.cancel(job) for _ in range(2)] == [True, False]
    else:
        bench.age(60)
        bench.upkeep.tend()
    assert core.commit(claim.lease, late) == 0
    record = bench.get(job)
    assert (record.status, record.succeeded, record.canceled + record.expired) == (status, 32, 368)
    results = bench.results(job)
    assert [r["status"] for r in results] == ["succeeded"] * 32 + [status.value] * 368
    assert results[399]["id"] == "i399"
    assert core.claim([VERSION], linger=False) is None
    assert bench.waiting() == {}
    assert bench.raw.xlen("cl:events") == 1


def test_cancel_of_an_unknown_job_finds_nothing(bench: Bench) -> None:
    assert bench.cancel(new_job_id()) is None


def test_results_of_a_running_job_end_at_the_first_gap(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    claim = claimed(core)
    core.commit(claim.lease, [answered(claim)[0], answered(claim)[2]])
    assert [result["index"] for result in bench.results(job)] == list(range(32))


def test_job_whose_payloads_expired_is_not_made(bench: Bench) -> None:
    link = Link(bench.settings.redis_url)
    with pytest.raises(StoreUnavailable, match="lost"):
        link.run("submit", job=new_job_id(), version=VERSION, envelope=bench.bell, expires_in_ms=0, fields=[])
    assert bench.raw.keys("cl:job:*") == []


def test_full_redis_refuses_with_a_sentence_and_keeps_nothing(bench: Bench) -> None:
    bench.raw.config_set("maxmemory", 1)
    bench.raw.function_flush()  # Makes the library forget how much memory it saw up to 100 ms ago.
    try:
        with pytest.raises(StoreFull, match="full"):
            bench.submit(1)
    finally:
        bench.raw.config_set("maxmemory", 0)
    assert bench.raw.keys("cl:*") == []


def test_higher_priority_goes_first_whenever_it_came(bench: Bench) -> None:
    core = bench.core("a/0")
    low = bench.submit(32, priority=Priority.LOW)
    normal = bench.submit(32)
    high = bench.submit(32, priority=Priority.HIGH)
    assert claimed(core).jobs == [high, normal, low]
    assert bench.get(high).describe().priority == "high"


def test_every_eighth_claim_begins_with_the_lowest_priority(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.store.dispatch.CLAIM_REFS", 1)
    one_at_a_time = LoneCore(bench.settings, "a/0")
    bench.core("a/0")
    low = bench.submit(32, priority=Priority.LOW)
    for _ in range(12):
        bench.submit(32, priority=Priority.HIGH)
    taken = []
    for _ in range(8):
        taken += claimed(one_at_a_time).jobs
    assert low in taken


def document() -> Question:
    return Question(question="who", context="ada " * 40_000)


def test_core_that_reads_a_document_takes_no_second_one_but_what_stands_behind_it(bench: Bench) -> None:
    core, other = bench.core("a/0"), bench.core("b/0")
    bench.submit(1, items=[document()])
    bench.submit(1, items=[document()])
    assert len(claimed(core).refs) == 1
    lone = bench.submit(1)
    claim = core.claim([VERSION], linger=True, idle=False, laden=True)
    assert claim is not None
    assert claim.jobs == [lone]
    assert len(claimed(other).refs) == 1


def test_job_past_its_time_never_reaches_a_core(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(40, expires_in_s=60)
    assert bench.get(job).describe().expires_at is not None
    bench.age(60)
    assert core.claim([VERSION], linger=False) is None
    record = bench.get(job)
    assert (record.status, record.expired, record.started_ms) == (JobStatus.EXPIRED, 40, None)
    assert [(r["id"], r["status"]) for r in bench.results(job, 39)] == [("i39", "expired")]
    assert bench.waiting() == {}
    assert bench.raw.xlen("cl:events") == 1


def test_job_that_ends_in_time_does_not_expire(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(1, expires_in_s=60)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    assert not bench.raw.exists("cl:expiring")
    bench.age(60)
    bench.upkeep.tend()
    assert bench.get(job).status is JobStatus.SUCCEEDED
    assert bench.raw.xlen("cl:events") == 1


def test_what_is_handed_back_keeps_its_attempt_and_its_place(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    with monkeypatch.context() as one_at_a_time:
        one_at_a_time.setattr("corelane.store.dispatch.CLAIM_REFS", 1)
        claim = claimed(core)
    assert bench.raw.zscore("cl:leases", claim.lease) > 1000 * (time.time() + bench.settings.lease_s / 2)
    core.hand_back(claim.lease, claim.refs, bench.bell)
    assert not bench.raw.exists("cl:leases", f"cl:claim:{claim.lease}")
    again = claimed(core)
    assert [(ref.first, ref.attempt) for ref, _ in again.refs] == [(0, 1), (32, 1), (64, 1)]
    core.commit(again.lease, answered(again))
    assert bench.get(job).status is JobStatus.SUCCEEDED
    assert bench.waiting() == {}


def test_one_trip_commits_asks_and_claims(bench: Bench) -> None:
    core = bench.core("a/0")
    first, second = bench.submit(1), bench.submit(1)
    claim = claimed(core)
    bench.cancel(second)
    third = bench.submit(1)
    room = Room(bench.settings.claim_tokens)
    commits = {claim.lease: answered(claim)[:1]}
    exchanged = core.exchange(
        ExchangeRequest(commits=commits, jobs=[first, second], versions=[VERSION], room=room, linger=True)
    )
    assert exchanged.refused == {claim.lease: 0}
    assert exchanged.closed == {first, second}
    assert exchanged.claim is not None
    assert [ref.job for ref, _ in exchanged.claim.refs] == [third]


def test_returned_item_goes_before_all_else_and_cores_with_work_hold_back_for_it(bench: Bench) -> None:
    core = bench.core("a/0")
    returned = bench.submit(1, priority=Priority.LOW)
    claimed(core)
    bench.submit(64, owner="other", priority=Priority.HIGH)
    bench.upkeep.return_own("a/0")
    assert core.claim([VERSION], linger=True, idle=False) is None
    assert [ref.job for ref, _ in claimed(core).refs] == [returned]
    assert core.claim([VERSION], linger=True, idle=False) is not None


def test_returned_item_of_a_canceled_job_holds_nobody_back(bench: Bench) -> None:
    core = bench.core("a/0")
    canceled = bench.submit(2)
    claimed(core)
    bench.upkeep.return_own("a/0")
    bench.cancel(canceled)
    lone = bench.submit(1)
    assert [ref.job for ref, _ in claimed(core).refs] == [lone]
    assert not bench.raw.exists(f"cl:returned:{VERSION}")


def test_core_that_reads_a_document_holds_back_for_nothing(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(1)
    claimed(core)
    lone = bench.submit(1)
    bench.upkeep.return_own("a/0")
    claim = core.claim([VERSION], linger=True, idle=False, laden=True)
    assert claim is not None
    assert claim.jobs == [lone]


def test_cores_are_listed_by_host_and_number(bench: Bench) -> None:
    for name in ("b/0", "a/10", "a/2"):
        bench.core(name)

    async def names(link: CommonLink) -> list[str]:
        return [core["core"] for core in await Fleet(link).cores()]

    assert bench.with_link(names) == ["a/2", "a/10", "b/0"]
