"""Jobs found by what is known of them: the same by the index as by a walk over all, bounded, and gone with the jobs."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import redis

from corelane.domain.ids import new_job_id
from corelane.domain.job_filter import ALL_OWNERS, EVERY_JOB, JobFilter
from corelane.domain.jobs import Item, JobHead, JobStatus
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.jobs import search
from corelane.store.jobs.idempotency import by_name
from corelane.store.jobs.search import JobPage
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from tests.corelane.store_bench import Bench, answer_all, answered, claimed, keep

ITEM = Item(question="who", context="ada")


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings, raw, bell)


@pytest.fixture
def indexed(bench: Bench) -> Bench:
    """Return a store whose index is trusted."""
    index(bench)
    return bench


def index(bench: Bench) -> None:
    """Do what the keeper does for the index, to its end."""
    bench.raw.delete("cl:indexing")
    bench.upkeep.index()
    go_on_indexing(bench)


def go_on_indexing(bench: Bench) -> None:
    while bench.upkeep._indexing is not None:
        bench.upkeep.index()


def submit(bench: Bench, *labels: str, owner: str = "o", name: str | None = None, now_ms: int | None = None) -> str:
    job, once = new_job_id(now_ms), (name and by_name(owner, name, "")) or None
    bench.with_store(
        lambda store: keep(store, Submission(JobHead(labels=list(labels)), owner, [ITEM], id=job, name=name, once=once))
    )
    return job


def found(bench: Bench, wanted: JobFilter, owner: str = "o", limit: int = 100) -> list[str]:
    """Return all jobs that a filter finds, page by page."""
    jobs: list[str] = []
    after = None
    while True:
        page: JobPage = bench.with_store(lambda store, after=after: store.page(owner, wanted, after, limit))  # type: ignore[misc]
        assert len(page.records) <= limit
        jobs += [record.id for record in page.records]
        if page.next is None:
            return jobs
        assert after is None or page.next < after
        after = page.next


def fail(bench: Bench, core: Any) -> None:
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))


def entries(raw: Any) -> list[str]:
    """Return all entries of the index, and of what the jobs' own terms are."""
    terms = [entry for key in raw.scan_iter("cl:terms:*") for entry in raw.zrange(key, 0, -1)]
    return terms + [job for key in raw.scan_iter("cl:termed:*") for job in raw.hkeys(key)]


def test_jobs_are_found_by_label_state_and_failed_items(indexed: Bench) -> None:
    core = indexed.core("a/0")
    failed = submit(indexed, "x")
    fail(indexed, core)
    ok = submit(indexed, "x", "y")
    answer_all(core)
    canceled, queued = submit(indexed, "x.y"), submit(indexed, "x")
    indexed.cancel(canceled)
    assert found(indexed, JobFilter(label=("x",))) == [queued, ok, failed]
    assert found(indexed, JobFilter(label=("x", "y"))) == [ok]
    assert found(indexed, JobFilter(label=("x.",))) == []
    assert found(indexed, JobFilter(status=(JobStatus.FAILED, JobStatus.CANCELED))) == [canceled, failed]
    assert found(indexed, JobFilter(status=(JobStatus.QUEUED,))) == [queued]
    assert found(indexed, JobFilter(status=(JobStatus.SUCCEEDED,))) == [ok]
    assert found(indexed, JobFilter(has_failed_items=True)) == [failed]
    assert found(indexed, JobFilter(has_failed_items=True), owner="other") == []


def test_a_job_that_succeeded_though_items_failed_is_found_by_them_even_while_it_runs(indexed: Bench) -> None:
    core = indexed.core("a/0")
    job = indexed.submit(300, owner="o")
    fail(indexed, core)
    assert indexed.get(job).status is JobStatus.RUNNING
    assert found(indexed, JobFilter(has_failed_items=True)) == [job]
    answer_all(core)
    assert indexed.get(job).status is JobStatus.SUCCEEDED
    assert found(indexed, JobFilter(has_failed_items=True, status=(JobStatus.SUCCEEDED,))) == [job]
    assert found(indexed, JobFilter(status=(JobStatus.FAILED,))) == []


def test_a_job_is_found_by_its_id_the_beginning_of_it_and_its_name(indexed: Bench) -> None:
    early, late = submit(indexed, name="0001", now_ms=1_000), submit(indexed, name="report-2026")
    assert found(indexed, JobFilter(q=early)) == found(indexed, JobFilter(q=early[:14])) == [early]
    assert found(indexed, JobFilter(q=early.removeprefix("job_")[:12])) == [early]
    assert found(indexed, JobFilter(q="job_0")) == [late, early]
    assert found(indexed, JobFilter(q="report-2026")) == found(indexed, JobFilter(name="report-2026")) == [late]
    assert found(indexed, JobFilter(q="0001")) == [early]
    assert found(indexed, JobFilter(q="report-2026", label=("x",))) == []
    assert found(indexed, JobFilter(name="report-2026"), owner="p") == []
    for odd in ("job_", "job", "'; --", "\x00", "é" * 128, "cl:name:o:report-2026", "%s", "*", "\n", "[", "("):
        found(indexed, JobFilter(q=odd))
        assert found(indexed, JobFilter(name=odd)) == []


def test_jobs_of_every_owner_are_merged_by_time(indexed: Bench) -> None:
    owners = [f"o{n}" for n in range(40)]
    indexed.raw.zadd("cl:owners", dict.fromkeys(owners, 1))
    jobs = sorted((submit(indexed, "x", owner=random.choice(owners)) for _ in range(120)), reverse=True)
    assert found(indexed, EVERY_JOB, owner=ALL_OWNERS, limit=7) == jobs
    assert found(indexed, JobFilter(label=("x",)), owner=ALL_OWNERS, limit=50) == jobs
    assert found(indexed, EVERY_JOB, owner=ALL_OWNERS, limit=100) == jobs
    index(indexed)
    assert found(indexed, JobFilter(label=("x",), status=(JobStatus.QUEUED,)), owner=ALL_OWNERS, limit=9) == jobs


@pytest.mark.parametrize("end", ["delete", "forget"])
def test_nothing_of_a_job_is_left_in_the_index(indexed: Bench, end: str) -> None:
    core, raw = indexed.core("a/0"), indexed.raw
    jobs = [submit(indexed, "x", "y")]
    fail(indexed, core)
    jobs += [submit(indexed, "z"), submit(indexed)]
    answer_all(core)
    jobs += [submit(indexed, "x"), submit(indexed, "x")]
    indexed.cancel(jobs[-1])
    assert entries(raw)
    if end == "delete":
        for job in jobs:
            indexed.with_store(lambda store, job=job: store.delete(job))  # type: ignore[misc]
    else:
        indexed.cancel(jobs[-2])
        for job in jobs:
            assert -1 not in (raw.ttl(key) for key in raw.keys(f"cl:*:{{{job}}}"))
            raw.delete(keys.job(job), keys.failures(job))
        raw.zadd("cl:keeping", dict.fromkeys(raw.zrange("cl:keeping", 0, -1), 1))
        indexed.upkeep.forget()
    assert entries(raw) == []
    assert raw.keys("cl:index:*") == raw.keys("cl:indexed") == raw.keys("cl:failures:*") == []


def as_earlier_version(bench: Bench) -> None:
    """Have the store look as an earlier version left it, with jobs that no index has."""
    for key in bench.raw.scan_iter("cl:term*"):
        bench.raw.delete(key)
    bench.raw.delete("cl:indexed", "cl:indexing")
    bench.raw.zadd("cl:owners", {"o": 1})


WANTED = {
    "label": JobFilter(label=("x",)),
    "canceled": JobFilter(status=(JobStatus.CANCELED,)),
    "open": JobFilter(status=(JobStatus.QUEUED, JobStatus.RUNNING)),
    "failed items": JobFilter(has_failed_items=True),
    "all": EVERY_JOB,
    "model": JobFilter(model="tiny", label=("x",)),
}


def test_jobs_of_an_earlier_version_are_found_before_and_after_the_keeper_puts_them_into_the_index(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.store.upkeep.INDEXED_AT_ONCE", 3)
    core = bench.core("a/0")
    for n in range(4):
        submit(bench, *(["x"] if n % 2 else []))
    fail(bench, core)
    canceled = [submit(bench, "x"), submit(bench)]
    for job in canceled:
        bench.cancel(job)
    for n in range(4):
        submit(bench, *(["x"] if n % 2 else ["y"]))
    expected = {name: found(bench, wanted) for name, wanted in WANTED.items()}
    assert [len(jobs) for jobs in expected.values()] == [5, 2, 4, 4, 10, 5]
    before = sorted(entries(bench.raw))
    as_earlier_version(bench)
    assert {name: found(bench, wanted) for name, wanted in WANTED.items()} == expected
    assert bench.with_link(lambda link: search.indexed(link, ["o"])) == [False]
    index(bench)
    assert bench.with_link(lambda link: search.indexed(link, ["o"])) == [True]
    assert sorted(entries(bench.raw)) == before
    assert {name: found(bench, wanted, limit=2) for name, wanted in WANTED.items()} == expected
    bench.raw.zadd("cl:terms:o", {f"l:x {new_job_id()}": 0, f"s:open {canceled[0]}": 0})
    bench.raw.hdel("cl:indexed", "o")
    index(bench)
    assert sorted(entries(bench.raw)) == before


def test_jobs_that_an_earlier_version_submits_or_ends_beside_us_are_found(indexed: Bench) -> None:
    raw = indexed.raw
    raw.zadd("cl:owners", {"o": 1})
    jobs = [submit(indexed, "x") for _ in range(2)]
    assert indexed.with_link(lambda link: search.indexed(link, ["o", "p"])) == [True, True]
    raw.zrem("cl:terms:o", *(f"{term} {jobs[1]}" for term in ("l:x", "s:open")))
    raw.hincrby("cl:indexed", "o", -1)
    assert indexed.with_link(lambda link: search.indexed(link, ["o"])) == [False]
    assert found(indexed, JobFilter(label=("x",))) == jobs[::-1]
    raw.hset(keys.job(jobs[0]), mapping={"status": "failed", "failed": 1, "left": 0})
    raw.xadd("cl:events", {"job": jobs[0], "status": "failed"})
    indexed.upkeep.ended()
    index(indexed)
    assert indexed.with_link(lambda link: search.indexed(link, ["o"])) == [True]
    assert found(indexed, JobFilter(label=("x",))) == jobs[::-1]
    assert found(indexed, JobFilter(has_failed_items=True)) == [jobs[0]]
    assert sorted(raw.zrange("cl:terms:o", 0, -1)) == sorted(
        [f"f {jobs[0]}", f"l:x {jobs[0]}", f"s:failed {jobs[0]}", f"l:x {jobs[1]}", f"s:open {jobs[1]}"]
    )


def test_a_page_looks_at_few_jobs_and_walks_the_fewest_that_may_match(
    indexed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_JOBS", 10)
    rare = submit(indexed, "common", "rare")
    for _ in range(30):
        submit(indexed, "common")
    looked = count_looks(monkeypatch)
    page = indexed.with_store(lambda store: store.page("o", JobFilter(label=("common", "rare")), None, 5))
    assert ([record.id for record in page.records], page.next, looked()) == ([rare], None, 1)
    page = indexed.with_store(lambda store: store.page("o", JobFilter(label=("common",), model="none"), None, 5))
    assert (page.records, looked()) == ([], 11)
    assert page.next is not None


def count_looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the jobs that searches look at."""
    looks: list[int] = []
    choose = search._choose

    async def counted(link: AsyncLink, jobs: list[str], wanted: JobFilter) -> list[str]:
        looks.append(len(jobs))
        return await choose(link, jobs, wanted)

    monkeypatch.setattr(search, "_choose", counted)
    return lambda: sum(looks)


def test_filter_names_what_was_given_as_it_is_written_on_the_wire() -> None:
    wanted = JobFilter(label=("x",), status=(JobStatus.FAILED,), has_failed_items=True, owner="*")
    assert wanted.given() == {"label": ["x"], "status": ["failed"], "failed_items": True, "owner": "*"}
    assert JobFilter.model_validate(wanted.given()) == wanted
    assert JobFilter(owner="*").is_empty
    assert not wanted.is_empty
