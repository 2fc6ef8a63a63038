"""Equal items of one owner are computed once, on a real Redis, whatever ends otherwise than it should."""

from typing import Any

import pytest

from corelane.domain.jobs import Item, JobStatus, Priority
from corelane.store.dispatch import Claim, SliceResults
from tests.corelane.store_bench import VERSION, Bench, LoneCore, claimed

ADA = [Item(question="Who wrote the first program?", context="Ada wrote the first program.")]
REDIS_KEYS = ("cl:computing", "cl:followed")


def ask(bench: Bench, items: list[Item] = ADA, **given: Any) -> str:
    return bench.submit(len(items), items=items, reuse=True, **given)


def answer(core: LoneCore, claim: Claim, code: str | None = None) -> int:
    """Commit an answer to each item of a claim, which tells the item; or an error."""
    outcomes = []
    for ref, _ in claim.refs:
        results: list[dict[str, Any]] = [
            {
                "index": ref.first + i,
                "id": None,
                "status": "succeeded" if code is None else "failed",
                "answer": None,
                "answers": [],
                "no_answer_score": 0.25,
                "windows": 1,
                "error": None if code is None else {"code": code, "detail": 'a "detail" },{"index":1,"id":'},
            }
            for i in range(ref.count)
        ]
        outcomes.append(SliceResults(ref, results))
    return core.commit(claim.lease, outcomes)


def outcome(bench: Bench, job: str) -> tuple[str, int, int]:
    record = bench.get(job)
    return record.status.value, record.succeeded, record.reused


def nothing_is_left(bench: Bench) -> bool:
    return not bench.raw.exists(*REDIS_KEYS) and not list(bench.raw.scan_iter("cl:followers:*")) and not bench.waiting()


def test_five_hundred_equal_questions_are_one_computation(bench: Bench) -> None:
    core = bench.core("a/0")
    before = [ask(bench) for _ in range(20)]
    claim = claimed(core)
    assert len(claim.refs) == 1
    jobs = before + [ask(bench) for _ in range(480)]
    assert core.claim([VERSION], linger=False) is None
    assert {bench.get(job).status for job in jobs} == {JobStatus.RUNNING}
    assert answer(core, claim) == 0
    assert [outcome(bench, job) for job in jobs] == [("succeeded", 1, 0)] + [("succeeded", 1, 1)] * 499
    first, *others = [bench.results(job) for job in jobs]
    assert {str(other) for other in others} == {str([first[0] | {"reused": True}])}
    assert bench.raw.xlen("cl:events") == 500
    assert nothing_is_left(bench)


def test_follower_keeps_its_own_id_events_and_usage(bench: Bench) -> None:
    core = bench.core("a/0")
    ask(bench)
    claim = claimed(core)
    job = ask(bench, [ADA[0].model_copy(update={"id": 'my "own" / ü'})])
    answer(core, claim)
    [result] = bench.results(job)
    assert (result["id"], result["reused"]) == ('my "own" / ü', True)
    described = bench.get(job).describe()
    assert described.usage is not None
    assert described.timing is not None
    assert (described.usage.reused, described.usage.items, described.usage.core_s) == (1, 0, 0)
    assert described.timing.core_s == 0


@pytest.mark.parametrize(
    "other",
    [
        {"owner": "other"},
        {"version": "tiny@2"},
        {"items": [ADA[0].model_copy(update={"context": "Ada wrote the second program."})]},
        {"items": [ADA[0].model_copy(update={"question": "Who wrote the first Program?"})]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_nothing_else_is_equal(bench: Bench, other: dict[str, Any]) -> None:
    core = bench.core("a/0")
    ask(bench)
    claimed(core)
    bench.raw.hset("cl:models", "tiny@2", "{}")
    job = ask(bench, **other)
    claim = core.claim([VERSION, "tiny@2"], linger=False)
    assert claim is not None
    assert claim.jobs == [job]


def test_job_that_refuses_reuse_is_computed_and_leads_nothing(bench: Bench) -> None:
    core = bench.core("a/0")
    jobs = [bench.submit(1, items=ADA) for _ in range(2)]
    assert claimed(core).jobs == jobs
    assert claimed_after(bench, core, ask(bench))


def claimed_after(bench: Bench, core: LoneCore, job: str) -> bool:
    """Return whether a job waits in the lanes, by claiming it."""
    claim = core.claim([VERSION], linger=False)
    return claim is not None and job in claim.jobs


@pytest.mark.parametrize("way", ["canceled", "deleted", "expired", "failed", "handed_back", "core_lost"])
def test_follower_is_computed_itself_when_its_leader_gets_no_answer(bench: Bench, way: str) -> None:
    core = bench.core("a/0")
    leader = ask(bench, expires_in_s=30 if way == "expired" else None)
    claim = claimed(core)
    jobs = [ask(bench) for _ in range(3)]
    match way:
        case "canceled":
            bench.cancel(leader)
        case "deleted":
            bench.with_store(lambda store: store.delete(leader))
        case "expired":
            bench.age(31)
            bench.upkeep.tend()
            bench.core("a/0")
        case "failed":
            answer(core, claim, "internal")
        case "handed_back":
            core.hand_back(claim.lease, claim.refs, bench.bell)
        case "core_lost":
            bench.age(bench.settings.lease_s)
            bench.core("a/0")
            bench.upkeep.return_lapsed()
    if way == "core_lost":
        alone = claimed(core)
        assert [ref.attempt for ref, _ in alone.refs] == [2]
        assert answer(core, alone) == 0
    again = claimed(core)
    assert again.jobs == ([leader] if way == "handed_back" else jobs[:1])
    answer(core, again)
    assert core.claim([VERSION], linger=False) is None
    assert {bench.get(job).status for job in jobs} == {JobStatus.SUCCEEDED}
    if way in ("canceled", "deleted", "expired"):
        core.commit(claim.lease, [SliceResults(ref, []) for ref, _ in claim.refs])
    assert nothing_is_left(bench)


def test_follower_fails_with_the_error_that_is_the_items_own(bench: Bench) -> None:
    core = bench.core("a/0")
    ask(bench)
    claim = claimed(core)
    job = ask(bench)
    answer(core, claim, "question_too_long")
    assert (bench.get(job).status, bench.results(job)[0]["error"]["code"]) == (JobStatus.FAILED, "question_too_long")
    assert nothing_is_left(bench)


def test_canceled_follower_takes_no_answer(bench: Bench) -> None:
    core = bench.core("a/0")
    ask(bench)
    claim = claimed(core)
    canceled, deleted, job = ask(bench), ask(bench), ask(bench)
    bench.cancel(canceled)
    bench.with_store(lambda store: store.delete(deleted))
    answer(core, claim)
    assert outcome(bench, canceled) == ("canceled", 0, 0)
    assert outcome(bench, job) == ("succeeded", 1, 1)
    assert nothing_is_left(bench)


def test_late_answer_of_a_lost_core_reaches_nobody(bench: Bench) -> None:
    slow, quick = bench.core("a/0"), bench.core("b/0")
    leader, lost = ask(bench), None
    lost = claimed(slow)
    job = ask(bench)
    bench.age(bench.settings.lease_s)
    bench.core("b/0")
    bench.upkeep.return_lapsed()
    assert answer(slow, lost) == 1
    assert outcome(bench, job) == ("running", 0, 0)
    for _ in range(2):
        answer(quick, claimed(quick))
    assert [outcome(bench, each)[0] for each in (leader, job)] == ["succeeded"] * 2


def test_high_priority_does_not_wait_for_low(bench: Bench) -> None:
    core = bench.core("a/0")
    ask(bench, priority=Priority.LOW)
    low = claimed(core)
    high = ask(bench, priority=Priority.HIGH)
    again = claimed(core)
    assert again.jobs == [high]
    lower = ask(bench, priority=Priority.LOW)
    answer(core, low)
    answer(core, again)
    assert outcome(bench, lower) == ("succeeded", 1, 1)
    assert nothing_is_left(bench)


def test_items_of_a_job_follow_one_by_one(bench: Bench) -> None:
    core = bench.core("a/0")
    ask(bench)
    claim = claimed(core)
    items = [Item(id=f"n{n}", question=f"Which number, {n}?", context="One.") for n in range(6)]
    items[3:3] = [ADA[0].model_copy(update={"id": "ada"})]
    items.append(items[0].model_copy(update={"id": "again"}))
    job = ask(bench, items)
    rest = claimed(core)
    assert [(ref.first, ref.count) for ref, _ in rest.refs] == [(0, 3), (4, 3)]
    assert [item[0] for stretch in core.fetch(rest) for item in stretch.items] == ["n0", "n1", "n2", "n3", "n4", "n5"]
    answer(core, claim)
    answer(core, rest)
    assert outcome(bench, job) == ("succeeded", 8, 2)
    assert [result["index"] for result in bench.results(job)] == list(range(8))
    assert [(r["index"], r["id"]) for r in bench.results(job) if r.get("reused")] == [(3, "ada"), (7, "again")]
    assert nothing_is_left(bench)


def test_leader_that_an_earlier_version_answered_is_noticed(bench: Bench) -> None:
    core = bench.core("a/0")
    leader = ask(bench)
    claim = claimed(core)
    job = ask(bench)
    # It commits, and knows nothing of followers.
    bench.raw.delete(f"cl:claim:{claim.lease}")
    bench.raw.zrem("cl:leases", claim.lease)
    assert bench.get(job).status is JobStatus.RUNNING
    bench.age(11)
    bench.core("a/0")
    bench.upkeep.tend()
    assert claimed(core).jobs == [job]
    bench.cancel(leader)


def test_burst_that_outlasts_its_first_computation_is_still_one(bench: Bench) -> None:
    core = bench.core("a/0")
    ask(bench)
    claim = claimed(core)
    ask(bench)
    answer(core, claim)
    late = ask(bench)
    assert outcome(bench, late) == ("succeeded", 1, 1)
    bench.age(6)
    bench.upkeep.tend()
    assert not bench.raw.exists("cl:cached", "cl:cache:public", "cl:cache_bytes")
