"""Jobs found by what is known of them: the same by the index as by a walk over all, bounded, and gone with the jobs."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from corelane.domain.ids import new_job_id
from corelane.domain.job_filter import ALL_OWNERS, JobFilter
from corelane.domain.jobs import JobStatus
from corelane.store import keys
from corelane.store.jobs import search
from corelane.store.jobs.idempotency import by_name
from corelane.store.jobs.search import JobPage
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import VERSION, Bench, answer_all, answered, claimed, keep
from tests.tools.keys import add_keys
from tests.tools.question_jobs import QuestionHead

ITEM = Question(question="who", context="ada")


def submit(bench: Bench, *, owner: str = "o", name: str | None = None, now_ms: int | None = None) -> str:
    job, once = new_job_id(now_ms), (name and by_name(owner, name, "")) or None
    bench.with_store(lambda store: keep(store, Submission(QuestionHead(), owner, [ITEM], id=job, name=name, once=once)))
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
    """Return all entries of the index."""
    return [job for key in raw.scan_iter("cl:listed:*") for job in raw.zrange(key, 0, -1)]


def test_jobs_are_found_by_state_and_failed_items(bench: Bench) -> None:
    core = bench.core("a/0")
    failed = submit(bench)
    fail(bench, core)
    ok = submit(bench)
    answer_all(core)
    canceled, queued = submit(bench), submit(bench)
    bench.cancel(canceled)
    assert found(bench, JobFilter(status=(JobStatus.FAILED, JobStatus.CANCELED))) == [canceled, failed]
    assert found(bench, JobFilter(status=(JobStatus.QUEUED,))) == [queued]
    assert found(bench, JobFilter(status=(JobStatus.SUCCEEDED,))) == [ok]
    assert found(bench, JobFilter(has_failed_items=True)) == [failed]
    assert found(bench, JobFilter(has_failed_items=True), owner="other") == []


def test_jobs_are_found_by_the_code_of_their_failed_items(bench: Bench) -> None:
    core, jobs = bench.core("a/0"), {}
    for code in ("worker_lost", "text_too_long"):
        jobs[code] = submit(bench)
        claim = claimed(core)
        outcomes = answered(claim, "failed")
        outcomes[0].results[0]["error"] = {"code": code, "detail": "it did not work"}
        core.commit(claim.lease, outcomes)
    submit(bench)
    assert {code: found(bench, JobFilter(code=code)) for code in jobs} == {code: [job] for code, job in jobs.items()}
    assert found(bench, JobFilter(code="none")) == found(bench, JobFilter(code="none", has_failed_items=True)) == []


def test_a_job_that_succeeded_though_items_failed_is_found_by_them_even_while_it_runs(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(300, owner="o")
    fail(bench, core)
    assert bench.get(job).status is JobStatus.RUNNING
    assert found(bench, JobFilter(has_failed_items=True)) == [job]
    answer_all(core)
    assert bench.get(job).status is JobStatus.SUCCEEDED
    assert found(bench, JobFilter(has_failed_items=True, status=(JobStatus.SUCCEEDED,))) == [job]
    assert found(bench, JobFilter(status=(JobStatus.FAILED,))) == []


def test_a_job_is_found_by_its_id_the_beginning_of_it_and_its_name(bench: Bench) -> None:
    early, late = submit(bench, name="0001", now_ms=1_000), submit(bench, name="report-2026")
    assert found(bench, JobFilter(q=early)) == found(bench, JobFilter(q=early[:14])) == [early]
    assert found(bench, JobFilter(q=early.removeprefix("job_")[:12])) == [early]
    assert found(bench, JobFilter(q="job_0")) == [late, early]
    assert found(bench, JobFilter(q="report-2026")) == found(bench, JobFilter(name="report-2026")) == [late]
    assert found(bench, JobFilter(q="0001")) == [early]
    assert found(bench, JobFilter(q="report-2026", model="other")) == []
    assert found(bench, JobFilter(name="report-2026"), owner="p") == []
    for odd in ("job_", "job", "'; --", "\x00", "é" * 128, "cl:name:o:report-2026", "%s", "*", "\n", "[", "("):
        found(bench, JobFilter(q=odd))
        assert found(bench, JobFilter(name=odd)) == []


def test_jobs_of_every_owner_are_merged_by_time(bench: Bench) -> None:
    owners = [f"o{n}" for n in range(40)]
    add_keys(bench.settings, *owners)
    some = [submit(bench, owner=random.choice(owners)) for _ in range(90)]
    # Of one owner there are more than are read of each at a time.
    jobs = sorted(some + [submit(bench, owner=owners[0]) for _ in range(30)], reverse=True)
    assert found(bench, JobFilter(), owner=ALL_OWNERS, limit=7) == jobs
    assert found(bench, JobFilter(model=VERSION), owner=ALL_OWNERS, limit=50) == jobs
    assert found(bench, JobFilter(), owner=ALL_OWNERS, limit=100) == jobs
    assert found(bench, JobFilter(status=(JobStatus.QUEUED,)), owner=ALL_OWNERS, limit=9) == jobs


@pytest.mark.parametrize("end", ["delete", "forget"])
def test_nothing_of_a_job_is_left_in_the_index(bench: Bench, end: str) -> None:
    core, raw = bench.core("a/0"), bench.raw
    jobs = [submit(bench)]
    fail(bench, core)
    jobs += [submit(bench), submit(bench)]
    answer_all(core)
    jobs += [submit(bench), submit(bench)]
    bench.cancel(jobs[-1])
    assert entries(raw)
    if end == "delete":
        for job in jobs:
            bench.with_store(lambda store, job=job: store.delete(job))  # type: ignore[misc]
    else:
        bench.cancel(jobs[-2])
        for job in jobs:
            assert -1 not in (raw.ttl(key) for key in raw.keys(f"cl:*:{{{job}}}"))
            raw.delete(keys.job(job))
        raw.zadd("cl:keeping", dict.fromkeys(raw.zrange("cl:keeping", 0, -1), 1))
        bench.upkeep.forget()
    assert entries(raw) == []
    assert raw.keys("cl:index:*") == []


def test_a_page_looks_at_few_jobs_and_walks_the_fewest_that_may_match(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_JOBS", 10)
    rare = submit(bench)
    bench.cancel(rare)
    for _ in range(30):
        submit(bench)
    looked = count_looks(monkeypatch)
    page = bench.with_store(lambda store: store.page("o", JobFilter(status=(JobStatus.CANCELED,)), None, 5))
    assert ([record.id for record in page.records], page.next, looked()) == ([rare], None, 1)
    page = bench.with_store(lambda store: store.page("o", JobFilter(status=(JobStatus.QUEUED,), model="none"), None, 5))
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
    wanted = JobFilter(status=(JobStatus.FAILED,), has_failed_items=True, owner="*")
    assert wanted.given() == {"status": ["failed"], "failed_items": True, "owner": "*"}
    assert JobFilter.model_validate(wanted.given()) == wanted
    assert JobFilter(owner="*").is_empty
    assert not wanted.is_empty
