"""A job's story on a real Redis: what is told, how often, in what order, and by whom it no longer is."""

import pytest

from corelane.domain.events import parse_event_id
from corelane.domain.ids import new_job_id
from corelane.store.dispatch import Claim, SliceResults
from corelane.store.jobs.events import BEGINNING, EventPage, JobEvents
from tests.corelane.store_bench import Bench, LoneCore, answered, claimed


def told(bench: Bench, job: str) -> list[tuple[str, dict]]:
    return [(event.type, {k: v.decode() for k, v in event.fields.items()}) for event in read(bench, job).events]


def read(bench: Bench, job: str, after: tuple[int, int] = BEGINNING) -> EventPage:
    return bench.with_link(lambda link: JobEvents(link).read(job, after))


def tell_progress(bench: Bench, core: LoneCore, claim: Claim, outcomes: list[SliceResults]) -> None:
    """Commit as if nothing had been told yet."""
    for job in claim.jobs:
        bench.raw.hdel(f"cl:job:{{{job}}}", "notified_ms")
    core.commit(claim.lease, outcomes)


def test_short_job_tells_that_it_began_and_that_it_ended(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(70)
    assert told(bench, job) == []
    claim = claimed(core)
    assert told(bench, job) == [("job.running", {})]
    core.commit(claim.lease, answered(claim))
    assert told(bench, job) == [("job.running", {}), ("job.completed", {})]
    assert not bench.raw.exists(f"cl:story:{{{job}}}")


def test_progress_is_told_once_in_half_a_second_however_often_is_committed(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    claim = claimed(core)
    outcomes = answered(claim)
    core.commit(claim.lease, outcomes[:1])
    assert [event for event, _ in told(bench, job)] == ["job.running"]
    bench.raw.hincrby(f"cl:job:{{{job}}}", "notified_ms", -500)
    core.commit(claim.lease, outcomes[1:2])
    assert told(bench, job)[1:] == [("job.progress", {"succeeded": "64", "failed": "0"})]
    core.commit(claim.lease, outcomes[2:])
    assert [event for event, _ in told(bench, job)] == ["job.running", "job.progress", "job.completed"]
    assert 0 < bench.raw.ttl(f"cl:story:{{{job}}}") <= bench.settings.results_ttl_s


def test_events_keep_their_ids_when_a_story_is_begun(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    claim = claimed(core)
    [running] = read(bench, job).events
    assert running.at == (bench.get(job).started_ms, 0)
    outcomes = answered(claim)
    tell_progress(bench, core, claim, outcomes[:1])
    assert [event.at for event in read(bench, job).events][:1] == [running.at]
    assert bench.raw.xlen(f"cl:story:{{{job}}}") == 2
    assert [event.type for event in read(bench, job, running.at).events] == ["job.progress"]
    core.commit(claim.lease, outcomes[1:])
    ids = [event.at for event in read(bench, job).events]
    assert ids == sorted(set(ids))
    assert ids == [parse_event_id(entry) for entry, _ in bench.raw.xrange(f"cl:story:{{{job}}}")]


def test_job_of_which_nothing_was_told_yet_tells_at_its_next_commit(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    claim = claimed(core)
    tell_progress(bench, core, claim, answered(claim)[:1])
    assert told(bench, job)[1:] == [("job.progress", {"succeeded": "32", "failed": "0"})]


@pytest.mark.parametrize("way", ["canceled", "expired", "failed"])
def test_last_event_comes_however_a_job_ends(bench: Bench, way: str) -> None:
    job = bench.submit(5, expires_in_s=60 if way == "expired" else None)
    if way == "canceled":
        bench.cancel(job)
    elif way == "failed":
        core = bench.core("a/0")
        claim = claimed(core)
        core.commit(claim.lease, answered(claim, "failed"))
    else:
        bench.age(60)
        bench.upkeep.tend()
    assert bench.get(job).status == way
    assert told(bench, job)[-1] == ("job.completed", {})
    assert [event for event, _ in told(bench, job)].count("job.completed") == 1


def test_story_is_bounded_and_what_is_left_can_be_read_from_an_event_that_is_gone(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    claim = claimed(core)
    first = read(bench, job).events[0].at
    outcomes, story = answered(claim), f"cl:story:{{{job}}}"
    tell_progress(bench, core, claim, outcomes[:1])
    with bench.raw.pipeline() as pipe:
        for _ in range(1800):
            pipe.xadd(story, {"event": "job.progress"})
        pipe.execute()
    tell_progress(bench, core, claim, outcomes[1:2])
    assert bench.raw.xlen(story) < 1200
    page = read(bench, job, first)
    assert not page.is_over
    assert [event.type for event in page.events] == ["job.progress"] * 200


@pytest.mark.parametrize("begun", [False, True])
def test_end_is_told_once_and_from_any_place_though_the_story_be_lost(bench: Bench, begun: bool) -> None:
    core = bench.core("a/0")
    job = bench.submit(96)
    claim = claimed(core)
    outcomes = answered(claim)
    if begun:
        tell_progress(bench, core, claim, outcomes[:1])
    core.commit(claim.lease, outcomes[begun:])
    running, *_, completed = read(bench, job).events
    assert completed.type == "job.completed"
    bench.raw.delete(f"cl:story:{{{job}}}")
    assert read(bench, job) == EventPage([running, completed], is_over=True)
    assert read(bench, job, running.at) == EventPage([completed], is_over=True)
    assert read(bench, job, completed.at) == EventPage([], is_over=True)


def test_end_comes_after_the_beginning_even_if_the_clock_was_set_back(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(3)
    claim = claimed(core)
    bench.raw.hincrby(f"cl:job:{{{job}}}", "started_ms", 60_000)
    core.commit(claim.lease, answered(claim))
    running, completed = read(bench, job).events
    assert running.at < completed.at
    assert read(bench, job, running.at).events == [completed]


def test_story_of_no_job_is_over(bench: Bench) -> None:
    assert read(bench, new_job_id()) == EventPage([], is_over=True)


@pytest.mark.parametrize(("text", "place"), [("0", (0, 0)), ("1763712000000-7", (1763712000000, 7))])
def test_id_is_read_as_numbers(text: str, place: tuple[int, int]) -> None:
    assert parse_event_id(text) == place


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "1-2-3", "$", "+", "(1-0", "1\n", "٣", "1" * 19])
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="looks like"):
        parse_event_id(text)
