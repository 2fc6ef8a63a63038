"""Cursors and filters on a real Redis: whatever comes and goes between two pages, what stays is listed once."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.domain.ids import id_time, new_job_id
from corelane.domain.job_filter import JobFilter
from corelane.domain.jobs import JobStatus
from corelane.store import keys
from corelane.store.jobs import search
from corelane.store.jobs.search import JobPage
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import Bench, keep
from tests.tools.question_jobs import QuestionHead

OWNERS = count()

ITEM = Question(question="who", context="ada")


def with_store(bench: Bench, action: Callable[[JobStore, AsyncLink], Awaitable[None]]) -> None:
    bench.with_link(lambda link: action(JobStore(link, bench.settings, bench.bell), link))


async def submit(store: JobStore, owner: str, now_ms: int | None = None, *, is_canceled: bool = False) -> str:
    job = new_job_id(now_ms)
    await keep(store, Submission(QuestionHead(), owner, [ITEM], id=job))
    if is_canceled:
        await store.cancel(job)
    return job


async def walk(store: JobStore, owner: str, filters: JobFilter, limit: int) -> list[JobPage]:
    pages = [await store.page(owner, filters, None, limit)]
    while pages[-1].next is not None:
        pages.append(await store.page(owner, filters, pages[-1].next, limit))
    return pages


steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 300), st.booleans()),
        st.tuples(st.just("page"), st.integers(1, 7), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 100), st.booleans()),
        st.tuples(st.just("expire"), st.integers(0, 100), st.booleans()),
    ),
    max_size=40,
)


@given(
    before=st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=4, max_size=20),
    steps=steps,
    by_status=st.booleans(),
    limit=st.integers(1, 4),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_walk_lists_once_what_is_there_from_its_begin_to_its_end(
    bench: Bench,
    before: list[tuple[int, bool]],
    steps: list[tuple[str, int, bool]],
    by_status: bool,
    limit: int,
) -> None:
    owner, filters = f"o{next(OWNERS)}", JobFilter(status=(JobStatus.CANCELED,) if by_status else ())
    trip_jobs, search.TRIP_JOBS = search.TRIP_JOBS, 3
    most, search.MAX_JOBS = search.MAX_JOBS, 6

    async def interleave(store: JobStore, link: AsyncLink) -> None:
        ids: dict[str, bool] = {}
        for ms, is_canceled in before:
            ids[await submit(store, owner, ms, is_canceled=is_canceled)] = is_canceled
        stays, seen = {job for job, is_canceled in ids.items() if is_canceled or not by_status}, list[str]()
        cursor, at_end = None, False

        async def turn(limit: int) -> None:
            nonlocal cursor, at_end
            page = await store.page(owner, filters, cursor, limit)
            assert len(page.records) <= limit
            assert all(ids[record.id] or not by_status for record in page.records)
            seen.extend(record.id for record in page.records)
            cursor, at_end = page.next, page.next is None

        for kind, number, is_canceled in steps:
            if kind == "submit":
                ids[await submit(store, owner, number, is_canceled=is_canceled)] = is_canceled
            elif kind == "page" and not at_end:
                await turn(number)
            elif kind in ("delete", "expire") and ids:
                job = sorted(ids)[number % len(ids)]
                stays.discard(job)
                await (store.delete(job) if kind == "delete" else link("DEL", f"cl:job:{{{job}}}"))
        while not at_end:
            await turn(limit)
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == len(set(seen))
        assert stays <= set(seen)

    try:
        with_store(bench, interleave)
    finally:
        search.TRIP_JOBS, search.MAX_JOBS = trip_jobs, most


def test_filter_that_takes_little_gives_short_pages_and_comes_to_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TRIP_JOBS", 10)
    monkeypatch.setattr(search, "MAX_JOBS", 20)

    async def look(store: JobStore, link: AsyncLink) -> None:
        wanted = [await submit(store, "o") for _ in range(65)]
        for n in (0, 1, 64):
            await link("HSET", keys.job(wanted[n]), "version", "rare@1")
        pages = await walk(store, "o", JobFilter(model="rare"), 2)
        assert [record.id for page in pages for record in page.records] == [wanted[64], wanted[1], wanted[0]]
        assert len(pages[0].records) == 1
        assert len(pages) == 4
        assert (await store.page("o", JobFilter(status=(JobStatus.FAILED,)), None, 5)).records == []

    with_store(bench, look)


def test_times_are_told_by_redis_clock_though_ids_tell_another(bench: Bench) -> None:
    async def look(store: JobStore, _: AsyncLink) -> None:
        early, late = await submit(store, "o", now_ms=None), await submit(store, "o")
        skewed = new_job_id(int((await store.get(early)).created_ms) - 30_000)  # type: ignore[union-attr]
        await keep(store, Submission(QuestionHead(), "o", [ITEM], id=skewed))
        record = await store.get(late)
        assert record is not None
        created = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=record.created_ms)
        page = await store.page("o", JobFilter(created_after=created), None, 5)
        assert {found.id for found in page.records} >= {late, skewed}

    with_store(bench, look)


def test_begin_of_ids_sorts_between_those_before_and_those_after() -> None:
    assert new_job_id(999) < id_time("job", 1000) < new_job_id(1000)
    assert id_time("job", -5) == id_time("job", 0)


def test_nothing_is_listed_of_others(bench: Bench) -> None:
    async def look(store: JobStore, _: AsyncLink) -> None:
        await submit(store, "a")
        assert (await store.page("b", JobFilter(), None, 5)) == JobPage([], None)

    with_store(bench, look)
    assert bench.raw.keys("cl:index:*") == ["cl:index:a"]
