"""A thing is done once: keys against a model, on a real Redis."""

import asyncio
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.errors import IdempotencyKeyReused, NameTaken
from corelane.settings import Settings
from corelane.store.jobs.idempotency import (
    Held,
    Once,
    by_key,
    by_name,
    fingerprint,
    start_fingerprint,
)
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import keep
from tests.tools.question_jobs import QuestionHead

RUNS = count()

Request = tuple[str, str, str, bytes]


def once_of(run: int, request: Request) -> Once:
    kind, owner, word, body = request
    asked = fingerprint("jobs", body)
    return by_name(f"{owner}{run}", word, asked) if kind == "name" else by_key(f"{owner}{run}", word, asked)


async def make(store: JobStore, once: Once, owner: str) -> str:
    """Return the job of a request, made now or before; raise the error that rejects it."""
    submission = Submission(QuestionHead(), owner, [Question(question="q", context="c")], once=once)
    try:
        return (await keep(store, submission)).id
    except Held as held:
        once.require_same(held.holder)
        return held.holder.subject


requests = st.tuples(
    st.sampled_from(["key", "name"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["k", "l"]),
    st.sampled_from([b"1", b"2"]),
)


@given(st.lists(st.one_of(requests, st.integers(0, 5)), max_size=30))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_requests_in_any_order_make_the_jobs_a_model_makes(
    redis_url: str, bell: str, sequence: list[Request | int]
) -> None:
    run = next(RUNS)

    async def play() -> None:
        link = AsyncLink(redis_url)
        store = JobStore(link, Settings(redis_url=redis_url), bell)
        made: dict[tuple[str, str, str], tuple[bytes, str]] = {}
        for step in sequence:
            if isinstance(step, int):  # One of the jobs is deleted: its name is free again, its key is not.
                for gone in list(made)[step : step + 1]:
                    await store.delete(made[gone][1])
                    if gone[0] == "name":
                        del made[gone]
                continue
            place, body = step[:3], step[3]
            known = made.get(place)
            once = once_of(run, step)
            if known is not None and known[0] != body:
                with pytest.raises(NameTaken if place[0] == "name" else IdempotencyKeyReused):
                    await make(store, once, f"{place[1]}{run}")
                continue
            job = await make(store, once, f"{place[1]}{run}")
            assert known is None or job == known[1]
            assert known is not None or job not in {each for _, each in made.values()}
            made[place] = body, job
        await link.close()

    asyncio.run(play())


@given(st.binary(max_size=50), st.integers(0, 50))
def test_fingerprint_is_the_same_in_parts(body: bytes, cut: int) -> None:
    digest = start_fingerprint("lines")
    digest.update(body[:cut])
    digest.update(body[cut:])
    assert digest.hexdigest() == fingerprint("lines", body) != fingerprint("jobs", body)
