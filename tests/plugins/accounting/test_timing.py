"""Where a job's time went: what a core measures, what Redis keeps of it, and how it is drawn."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cli.jobs import draw_waterfall
from corelane.domain.dispatch import Ref
from corelane.domain.jobs import Webhook
from corelane.domain.timing import JobTimes, JobTiming, Spent
from corelane.engine.null import NullRunner
from corelane.engine.runner import RunningBatch
from corelane.plugins.accounting.time_book import TimeBook
from corelane.store.dispatch import Claim, ClaimedSlice, Exchange, ExchangeRequest, Room, SliceResults
from corelane.store.jobs.records import read_times
from corelane.store.link.blocking import Link
from corelane.tasks.question_answering.options import AnswerOptions
from tests.corelane.store_bench import VERSION, Bench, LoneCore
from workers.core.observer import Claimed, CoreBatch, Heartbeat, TokenizedSlices, Trip
from workers.core.pending import PendingSlice

SECONDS = st.floats(0, 1e5)


def sum_of_parts(timing: JobTiming) -> float:
    parts = ("submit_s", "wait_s", "tokenize_s", "compute_s", "merge_s", "commit_s", "other_s")
    return sum(float(getattr(timing, part)) for part in parts)


@given(SECONDS, SECONDS, SECONDS, st.lists(SECONDS, min_size=6, max_size=6))
def test_parts_sum_to_the_wall_time(submit_s: float, claimed_s: float, had_s: float, spent: Sequence[float]) -> None:
    held = Spent(sum(spent[:5]) + spent[5], *spent[:5])
    timing = JobTiming(**JobTimes(submit_s, claimed_s, claimed_s + had_s, had_s / 10, held).shown())
    assert timing.wall_s == pytest.approx(submit_s + claimed_s + had_s, abs=1e-5)
    assert sum_of_parts(timing) == pytest.approx(timing.wall_s, rel=1e-9, abs=1e-5)


def test_cores_that_work_side_by_side_share_the_time_there_was() -> None:
    timing = JobTiming(**JobTimes(0, 1, 11, 0, Spent(40, 4, 4, 24, 4, 2, 30), ["a", "b", "c", "d"]).shown())
    assert (timing.wait_s, timing.compute_s, timing.other_s) == (1 + 1, 6, 0.5)
    assert (timing.cores, timing.core_s) == (4, 30)


def test_time_in_which_no_core_held_the_job_is_waiting() -> None:
    timing = JobTiming(**JobTimes(0, 1, 11, 0.5, Spent(2, 0, 0.5, 1, 0.25, 0.25, 1), ["a"]).shown())
    assert (timing.wait_s, timing.commit_s, timing.other_s) == (8.5, 0.75, 0)


def test_job_that_was_never_claimed_has_only_waited() -> None:
    timing = JobTiming(**JobTimes(0.25, None, 2).shown())
    assert (timing.wall_s, timing.submit_s, timing.wait_s, timing.other_s, timing.cores) == (2.25, 0.25, 2, 0, 0)


def test_times_are_read_once_the_job_is_final() -> None:
    assert read_times("5 1800000000000000") is None
    assert read_times("5 1800000000000000 7;1 2 3 4 5 6 7;a/0") is None
    assert read_times("5 1800000000000000 - 7 0") == JobTimes(5e-6, None, 7e-6)
    assert read_times("5 1800000000000000 6 9 1;8 7 6 5 4 3 2;a/0 b/1", "1500") == JobTimes(
        5e-6, 6e-6, 9e-6, 1e-6, Spent(8e-6, 7e-6, 6e-6, 5e-6, 4e-6, 3e-6, 2e-6), ("a/0", "b/1"), 1.5
    )


def claim(core: LoneCore) -> tuple[Exchange, Claim]:
    exchanged = core.exchange(ExchangeRequest(versions=[VERSION], room=Room(1), linger=True, idle=True))
    assert exchanged.claim is not None
    return exchanged, exchanged.claim


def commit(core: LoneCore, claim: Claim, spent: Mapping[str, Sequence[int]], sent_us: int | None = None) -> None:
    done = [SliceResults(ref, [{"status": "succeeded"}] * ref.count) for ref, _ in claim.refs]
    core.exchange(ExchangeRequest(commits={claim.lease: done}, linger=True, idle=True, spent=spent, sent_us=sent_us))


def test_sums_of_several_commits_and_cores_are_added_up(bench: Bench) -> None:
    job, cores = bench.submit(96), [bench.core("a/0"), bench.core("b/0")]
    for place, core in enumerate([cores[0], cores[1], cores[0]]):
        commit(core, claim(core)[1], {job: [number * 10**place for number in range(1, 8)]})
        assert (bench.get(job).times is not None) == (place == 2)
    times = bench.get(job).times
    assert times is not None
    assert times.spent == Spent(*(111 * number / 1_000_000 for number in range(1, 8)))
    assert times.cores == ("a/0", "b/0")
    timing = bench.get(job).describe().timing
    assert timing is not None
    assert sum_of_parts(timing) == pytest.approx(timing.wall_s, rel=1e-9)


def test_last_trip_is_what_redis_counts_beyond_the_core(bench: Bench) -> None:
    job, core = bench.submit(1), bench.core("a/0")
    exchanged, its_claim = claim(core)
    assert exchanged.redis_us is not None
    commit(core, its_claim, {job: [0] * 7}, sent_us=exchanged.redis_us)
    times = bench.get(job).times
    assert times is not None
    assert times.claimed_s is not None
    assert times.last_trip_s == pytest.approx(times.ended_s - times.claimed_s, abs=1e-9)
    assert times.last_trip_s > 0


def test_what_a_lost_claim_spent_counts_for_nothing(bench: Bench) -> None:
    job, core = bench.submit(1), bench.core("a/0")
    its_claim = claim(core)[1]
    bench.upkeep.return_own("a/0")
    commit(core, its_claim, {job: [1] * 7})
    commit(core, claim(core)[1], {job: [2] * 7})
    times = bench.get(job).times
    assert times is not None
    assert times.spent.held_s == 2e-6


def test_canceled_job_has_waited_and_one_of_another_version_has_no_times(bench: Bench) -> None:
    canceled, other = bench.submit(1), bench.submit(1)
    bench.raw.hdel(f"cl:job:{{{other}}}", "times")
    bench.cancel(canceled)
    times = bench.get(canceled).times
    assert times is not None
    assert times.claimed_s is None
    core = bench.core("a/0")
    commit(core, claim(core)[1], {other: [1] * 7})
    assert (str(bench.get(other).status), bench.get(other).times) == ("succeeded", None)


def test_delivery_of_the_end_is_noted_once(bench: Bench) -> None:
    job = bench.submit(1, webhook=Webhook(url="https://example.com/hook"))
    core = bench.core("a/0")
    commit(core, claim(core)[1], {})
    [delivery] = bench.raw.zrange(f"cl:deliveries:{job}", 0, -1)
    bench.raw.hincrby(f"cl:delivery:{delivery}", "at_ms", -2500)
    link = Link(bench.settings.redis_url)
    for _ in range(2):
        link.run("take_due", limit=1, lease_ms=1000, most=1)
        report = {"outcome": "delivered", "well": True, "pause_ms": 0, "host_pause_ms": 0, "ttl": 60, "dead_ttl": 60}
        report |= {"window_ms": 1000, "most": 1, "failures": 5, "circuit_ms": 1000}
        link.run("report", b"{}", id=delivery, **report)
        link.run("redeliver", id=delivery)
        bench.raw.hincrby(f"cl:delivery:{delivery}", "at_ms", -5000)
    link.close()
    timing = bench.get(job).describe().timing
    assert timing is not None
    assert timing.deliver_s is not None
    assert 2.5 <= timing.deliver_s < 5


def test_waterfall_has_a_bar_for_each_part() -> None:
    timing = JobTiming(
        **JobTimes(0.01, 0.01, 0.08, 0.0, Spent(0.07, 0, 0.01, 0.05, 0.005, 0.005, 0.06), ["a"], 0.5).shown()
    )
    lines = draw_waterfall(timing)
    assert lines["took"] == "90.0 ms, 60.0 ms of work on 1 core"
    assert lines["compute"] == " 50.0 ms  " + " " * 13 + "█" * 23
    assert lines["other"] == "  0.0 ms"
    assert lines["deliver"].split() == ["0.50", "s", "→"]
    assert "".join(lines.values()).count("█") == 40


US = 1_000_000


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> TimeBook:
    return TimeBook(clock=clock)


def hold(book: TimeBook, clock: Clock, *jobs: str) -> None:
    book.claimed(Claimed(jobs, [], clock.now))


def tokenize(book: TimeBook, clock: Clock, seconds: float, core_s: float = 0.0, **tokens: int) -> None:
    clock.now += seconds
    book.tokenized(TokenizedSlices("m@1", tokens, seconds, core_s))


def begin(clock: Clock) -> CoreBatch:
    batch = CoreBatch(NullRunner(), clock.now, 0.0)
    batch.running = RunningBatch(batch.runner)
    return batch


def batch_of(
    book: TimeBook, clock: Clock, compute_s: float, merge_s: float = 0.0, core_s: float = 0.0, **tokens: int
) -> None:
    """Run a batch with a window of each job."""
    batch = begin(clock)
    book.batch_started(batch)
    batch.tokens, batch.windows = tokens, dict.fromkeys(tokens, 1)
    clock.now += compute_s + merge_s
    batch.seconds, batch.compute_s, batch.merge_s, batch.core_s = compute_s + merge_s, compute_s, merge_s, core_s
    book.batch_finished(batch)


def trip(book: TimeBook, clock: Clock, *jobs: str, held: tuple[str, ...] = (), is_lost: bool = False) -> None:
    """Commit results of jobs; the reply may get lost."""
    outcomes = [SliceResults(Ref(job, "public", 1, 0, 0, 1, 64), []) for job in jobs]
    request = ExchangeRequest(commits={"lease": outcomes}, jobs=held)
    book.contributes(request)
    clock.now += 4
    if not is_lost:
        book.committed(Trip(request, Exchange({}, set(), None), clock.now, 4))


def test_parts_of_a_job_and_its_waiting_add_up_to_the_time_in_which_the_core_worked(
    book: TimeBook, clock: Clock
) -> None:
    hold(book, clock, "a")
    tokenize(book, clock, 1, a=1)
    hold(book, clock, "b")
    batch_of(book, clock, 2, a=64)
    clock.now += 8
    batch_of(book, clock, 0, 4, b=64)
    report = {job: [number // US for number in numbers[:7]] for job, numbers in book.report(["a", "b"]).items()}
    #                       held waited tokenize compute merge commit core
    assert report == {"a": [15, 4, 1, 2, 0, 0, 0], "b": [14, 2, 0, 0, 4, 0, 0]}


def test_report_that_was_not_kept_is_made_again_with_what_came_after_it(book: TimeBook, clock: Clock) -> None:
    hold(book, clock, "a")
    batch_of(book, clock, 1, a=64)
    trip(book, clock, "a", held=("a",), is_lost=True)
    batch_of(book, clock, 2, a=64)
    assert book.report(["a"])["a"] == [7 * US, 0, 0, 3 * US, 0, 0, 0, 2, 128]
    trip(book, clock, "a", held=("a",))
    assert book.report(["a"])["a"] == [4 * US, 0, 0, 0, 0, 4 * US, 0, 0, 0]
    trip(book, clock, "a")
    assert book.report(["a"]) == {}


def test_time_beside_a_batch_counts_once(book: TimeBook, clock: Clock) -> None:
    batch = begin(clock)
    book.batch_started(batch)
    clock.now += 1
    hold(book, clock, "a")
    tokenize(book, clock, 2, a=1)
    clock.now += 4
    assert book.report(["a"])["a"][:3] == [6 * US, 4 * US, 2 * US]
    batch.seconds = 7
    book.batch_finished(batch)
    assert book.report(["a"])["a"][:3] == [6 * US, 4 * US, 2 * US]


def test_core_seconds_are_shared_by_tokens(book: TimeBook, clock: Clock) -> None:
    hold(book, clock, "a", "b")
    tokenize(book, clock, 8, 8.0, a=30, b=10, gone=40)
    assert [numbers[6] for numbers in book.report(["a", "b"]).values()] == [3 * US, US]
    heartbeat = Heartbeat({})
    book.beats(heartbeat)
    assert heartbeat.fields == {"core_s": 8}
    assert heartbeat.worked is not None
    assert heartbeat.worked[2] == 8 * US


def test_what_a_job_that_is_held_no_more_took_is_lost_once(book: TimeBook, clock: Clock) -> None:
    hold(book, clock, "a", "b")
    batch_of(book, clock, 8, core_s=8.0, a=300, b=100, gone=400)
    assert book.report(["a"])["a"][6:] == [3 * US, 1, 300]
    trip(book, clock, "a", held=("b",), is_lost=True)
    assert book.report_lost() == [1, 400, 4 * US]
    trip(book, clock, "a", held=("b",))
    assert book.report_lost() == []
    book.dropped(["b", "unknown"])
    assert book.report_lost() == [1, 100, US]
    trip(book, clock, "a")
    assert book.report_lost() == []


def test_time_of_redis_goes_on_from_the_last_reply(book: TimeBook, clock: Clock) -> None:
    assert book.redis_us() is None
    reply = Exchange({}, set(), None, 1_800_000_000_000_000)
    book.committed(Trip(ExchangeRequest(), reply, clock.now, 0.1))
    clock.now += 0.25
    assert book.redis_us() == 1_800_000_000_250_000


def test_jobs_that_left_are_forgotten(book: TimeBook, clock: Clock) -> None:
    hold(book, clock, "a", "b")
    book.dropped(["a"])
    assert list(book.report(["a", "b"])) == ["b"]


def answered(job: str, first: int, count: int, tokens: int) -> tuple[PendingSlice, SliceResults]:
    """Return an answered slice of items that were estimated at 100 tokens."""
    ref = Ref(job, "public", 1, first, first, count, 100 * count)
    pending = PendingSlice.of("lease", ClaimedSlice(ref, "m@1", [(None, "who", "ada")] * count, AnswerOptions()))
    pending.tokens = tokens
    return pending, SliceResults(ref, [{"windows": 1}] * count)
