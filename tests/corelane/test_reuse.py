"""Equal items of one owner are computed once, on a real Redis, whatever ends otherwise than it should."""

import asyncio
import random
from contextlib import closing
from typing import Any

import orjson
import pytest
import redis

from corelane.domain.dispatch import Core
from corelane.domain.jobs import JobStatus, Priority, Webhook
from corelane.domain.texts import text_id
from corelane.engine.null import NullRunner
from corelane.settings import Settings
from corelane.store.dispatch import Claim, SliceResults
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.store.plans import Plans
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question
from corelane.tasks.reuse import cut_out, item_digests, refuses_reuse, repeated
from tests.corelane.store_bench import VERSION, Bench, LoneCore, announce, claimed, submit_as_admitted
from tests.question_jobs import QuestionHead
from tests.simulated_core import SimulatedCore
from workers.core.drain import drain

ADA = [Question(question="Who wrote the first program?", context="Ada wrote the first program.")]
REDIS_KEYS = ("cl:computing", "cl:followed")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"reuse": True})


def ask(bench: Bench, items: list[Question] = ADA, **given: Any) -> str:
    return bench.submit(len(items), items=items, reuse=True, **given)


def ask_many(bench: Bench, count: int) -> list[str]:
    """Ask the same so many times at once; the jobs as they were submitted."""
    head = QuestionHead(model=VERSION)

    async def submit(link: AsyncLink) -> list[str]:
        asked = [
            submit_as_admitted(link, bench.settings, bench.bell, Submission(head, items=ADA)) for _ in range(count)
        ]
        return [record.id for record in await asyncio.gather(*asked)]

    return bench.with_link(submit)


def usages(bench: Bench, jobs: list[str]) -> list[dict[str, Any]]:
    records = bench.with_store(lambda store: store.records(jobs))
    return [record.shown()["usage"] for record in records]


def answer(core: LoneCore, claim: Claim, code: str | None = None, extra: int = 0) -> int:
    """Commit an answer to each item of a claim, which tells the item; or an error."""
    outcomes = []
    for ref, _ in claim.refs:
        results: list[dict[str, Any]] = [
            {
                "index": ref.first + i,
                "id": None,
                "status": "succeeded" if code is None else "failed",
                "answer": None,
                "answers": [{"text": "a" * extra}] if extra else [],
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
    before = ask_many(bench, 20)
    claim = claimed(core)
    assert len(claim.refs) == 1
    jobs = before + ask_many(bench, 480)
    assert core.claim([VERSION], linger=False) is None
    assert {bench.raw.hget(f"cl:job:{{{job}}}", "status") for job in jobs} == {"running"}
    assert answer(core, claim) == 0
    ended = [bench.raw.hmget(f"cl:job:{{{job}}}", "status", "succeeded", "reused") for job in jobs]
    assert ended == [["succeeded", "1", None]] + [["succeeded", "1", "1"]] * 499
    [first], *others = [orjson.loads(bench.raw.hget(f"cl:out:{{{job}}}", 0)) for job in jobs]
    assert all(other == [first | {"reused": True}] for other in others)
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
    items = [Question(id=f"n{n}", question=f"Which number, {n}?", context="One.") for n in range(6)]
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


MB = 1_000_000


@pytest.fixture
def caching(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings.model_copy(update={"cache_bytes": MB, "cache_ttl_s": 600}), raw, bell)


def about(number: int) -> list[Question]:
    return [Question(question=f"Which number, {number}?", context="One.")]


def serve(bench: Bench, core: LoneCore, items: list[Question], **given: Any) -> str:
    """Ask, and have it computed."""
    job = ask(bench, items, **given)
    answer(core, claimed(core))
    return job


def counted(bench: Bench) -> dict[str, int]:
    found = bench.raw.hgetall("cl:metrics")
    return {name.rpartition("|")[2]: int(n) for name, n in found.items() if name.startswith("corelane_reuse_total")}


def test_cached_answer_ends_a_job_as_it_is_submitted(caching: Bench) -> None:
    core = caching.core("a/0")
    first = serve(caching, core, ADA)
    webhook = Webhook(url="https://example.com/hook", events=("job.running", "job.completed"))
    job = ask(caching, [ADA[0].model_copy(update={"id": "mine"})], webhook=webhook)
    assert outcome(caching, job) == ("succeeded", 1, 1)
    assert caching.results(job) == [caching.results(first)[0] | {"id": "mine", "reused": True}]
    events = [caching.raw.hget(key, "event") for key in caching.raw.scan_iter("cl:delivery:*")]
    assert sorted(events) == ["job.completed", "job.running"]
    assert caching.raw.xlen("cl:events") == 2
    assert counted(caching) == {"hit": 1}
    assert int(caching.raw.get("cl:cache_bytes")) > 0
    assert nothing_is_left(caching)


def test_job_of_several_items_is_cached_in_part(caching: Bench) -> None:
    core = caching.core("a/0")
    serve(caching, core, [*about(1), *about(3)])
    job = ask(caching, [item for n in range(5) for item in about(n)])
    claim = claimed(core)
    assert sorted((ref.first, ref.count) for ref, _ in claim.refs) == [(0, 1), (2, 1), (4, 1)]
    answer(core, claim)
    assert outcome(caching, job) == ("succeeded", 5, 2)
    assert [result.get("reused", False) for result in caching.results(job)] == [False, True, False, True, False]
    whole = ask(caching, [item for n in range(5) for item in about(n)])
    assert outcome(caching, whole) == ("succeeded", 5, 5)


def test_errors_are_not_cached(caching: Bench) -> None:
    core = caching.core("a/0")
    ask(caching)
    answer(core, claimed(core), "question_too_long")
    assert outcome(caching, ask(caching)) == ("queued", 0, 0)


def test_cached_answer_ends_with_its_time(caching: Bench) -> None:
    serve(caching, caching.core("a/0"), ADA)
    caching.age(601)
    assert outcome(caching, ask(caching)) == ("queued", 0, 0)
    caching.upkeep.tend()
    assert not caching.raw.exists("cl:cached", "cl:cache:public", "cl:cache_bytes")


def test_calibration_drops_what_is_cached(caching: Bench) -> None:
    serve(caching, caching.core("a/0"), ADA)
    with closing(Plans(caching.settings, "a/0", "")) as plans:
        plans.announce(VERSION, {"calibrated": True}, [])
    assert outcome(caching, ask(caching)) == ("queued", 0, 0)


@pytest.mark.parametrize("owner", ["public", "*"])
def test_cache_is_cleared_by_owner(caching: Bench, owner: str) -> None:
    core = caching.core("a/0")
    for number in range(3):
        serve(caching, core, about(number))
        serve(caching, core, about(number), owner="other")
    caching.with_store(lambda store: store.clear_cache(owner))
    if owner == "*":
        caching.upkeep.tend()
    assert outcome(caching, ask(caching, about(1))) == ("queued", 0, 0)
    assert caching.raw.hlen("cl:cache:other") == caching.raw.zcard("cl:cached") == (0 if owner == "*" else 3)


def sizes(bench: Bench) -> int:
    found = [text for key in bench.raw.scan_iter("cl:cache:*") for text in bench.raw.hvals(key)]
    assert len(found) == bench.raw.zcard("cl:cached")
    return sum(len(text) + 400 for text in found)


def test_cache_keeps_to_its_bytes(bench: Bench) -> None:
    rng, raw = random.Random(1), bench.raw
    bench.core("a/0").close()
    bounds = [rng.randint(1_000, 8_000) for _ in range(3)]
    settings = bench.settings
    for step in range(30):
        most = bounds[step // 10]
        bench.settings = settings.model_copy(update={"cache_bytes": most, "cache_ttl_s": 600})
        core = LoneCore(bench.settings, "a/0")
        items = [item for _ in range(rng.randint(1, 6)) for item in about(rng.randint(0, 30))]
        job = ask(bench, items, owner=rng.choice(["public", "other"]))
        if (claim := core.claim([VERSION], linger=False)) is not None:
            answer(core, claim, extra=rng.randint(0, 600))
        while (claim := core.claim([VERSION], linger=False)) is not None:
            answer(core, claim)
        assert bench.get(job).status is JobStatus.SUCCEEDED
        bench.upkeep.tend()
        core.close()
        assert sizes(bench) == int(raw.get("cl:cache_bytes") or 0) <= most
    assert counted(bench)["hit"] > 0
    # What Redis really takes is within what is counted.
    used = sum(raw.memory_usage(key, samples=0) for key in (*raw.scan_iter("cl:cache:*"), "cl:cached"))
    assert used <= 1_000 + int(raw.get("cl:cache_bytes"))


def test_every_option_that_changes_an_answer_changes_the_digest() -> None:
    others: dict[str, Any] = {
        "top_k": 2,
        "max_answer_tokens": 31,
        "doc_stride": 64,
        "truncation": "error",
        "max_windows": 2,
        "max_seq_len": 64,
        "max_question_len": 8,
        "align_to_words": True,
        "no_answer": False,
        "no_answer_threshold": 0.5,
        "min_precision": 0.5,
        "offsets": ("utf16",),
    }
    assert others.keys() == AnswerOptions.model_fields.keys()
    digests = {item_digests("o", "v@1", AnswerOptions(), ADA, {})[0]}
    digests |= {item_digests("o", "v@1", AnswerOptions(**{name: value}), ADA, {})[0] for name, value in others.items()}
    digests |= {
        item_digests(owner, version, AnswerOptions(), ADA, {})[0] for owner, version in (("p", "v@1"), ("o", "v@2"))
    }
    assert len(digests) == len(others) + 3
    assert {len(digest) for digest in digests} == {22}


def test_digest_knows_no_form() -> None:
    text = ADA[0].context or ""
    whole = item_digests("o", "v@1", AnswerOptions(top_k=2, doc_stride=64), ADA, {})
    options = AnswerOptions.model_validate_json('{"doc_stride": 64, "top_k": 2, "no_answer_threshold": null}')
    shared = Question(id="x", question=ADA[0].question, context_id="mine")
    stored = Question(question=ADA[0].question, context_id=text_id(text))
    assert item_digests("o", "v@1", options, [shared], {"mine": text}) == whole
    assert item_digests("o", "v@1", options, [stored], {}) == whole


def test_slices_are_cut_around_items() -> None:
    slices = [(0, 4, 400), (4, 4, 800)]
    cut = list(cut_out(slices, [1, 4, 7]))
    assert [(first, count) for first, count, _ in cut] == [(0, 1), (1, 1), (2, 2), (4, 1), (5, 2), (7, 1)]
    assert sum(tokens for *_, tokens in cut) == 1200
    assert list(cut_out(slices, [])) == slices
    assert repeated(["a", "b", "a", "c", "b"]) == [2, 4]


@pytest.mark.parametrize(
    ("header", "refuses"),
    [(None, False), ("", False), ("max-age=0", False), ("no-store", True), ("max-age=0, No-Cache", True)],
)
def test_cache_control_leaves_reuse_out(header: str | None, refuses: bool) -> None:
    assert refuses_reuse(header) is refuses


def test_core_counts_one_item_of_many_equal_ones(bench: Bench) -> None:
    settings = bench.settings.model_copy(update={"linger_s": 0.0, "batch_wait_s": 0.0})
    announce(settings, "test/0", VERSION, ["default"])
    core = SimulatedCore(settings, Core("test", 0), bench.bell, {VERSION: NullRunner(VERSION)})
    core.begin_life()
    jobs = ask_many(bench, 100)
    assert drain(core, lambda: False)["items"] == 1
    core.close()
    core.dispatch.close()
    assert [bench.raw.hget(f"cl:job:{{{job}}}", "status") for job in jobs] == ["succeeded"] * 100
    items = sum(used["items"] for used in usages(bench, jobs))
    assert (items, sum(used.get("reused", 0) for used in usages(bench, jobs))) == (1, 99)
