"""What a core spends on the jobs it holds, and what its items cost, by a clock that the tests move."""

import pytest

from corelane.domain.dispatch import Ref
from corelane.engine.null import NullRunner
from corelane.engine.runner import RunningBatch
from corelane.plugins.accounting.time_book import TimeBook
from corelane.store.dispatch import ClaimedSlice, Exchange, ExchangeRequest, SliceResults
from workers.core.measures import CostBook
from workers.core.observer import Claimed, CoreBatch, Heartbeat, TokenizedSlices, Trip
from workers.core.pending import PendingSlice

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
    pending = PendingSlice.of("lease", ClaimedSlice(ref, "m@1", [(None, "who", "ada")] * count, None))  # type: ignore[arg-type]
    pending.tokens = tokens
    return pending, SliceResults(ref, [{"windows": 1}] * count)


def test_core_time_of_a_job_is_shared_among_its_slices_by_tokens_once(clock: Clock) -> None:
    book = CostBook()
    book.tokenized(TokenizedSlices("m@1", {"a": 4000, "b": 40, "c": 40}, 1.0, 0.00408))
    batch = begin(clock)
    batch.slices = [answered("a", 0, 32, 3000), answered("a", 32, 10, 1000)]
    book.batch_finished(batch)
    assert [its[2:] for its in book.costs] == [(32, 3200, 3000, 32, 3000), (10, 1000, 1000, 10, 1000)]
    batch.slices = [answered("a", 42, 1, 100), answered("b", 0, 1, 40)]
    book.batch_finished(batch)
    assert [its[-1] for its in book.costs] == [3000, 1000, 0, 40]
    book.committed(Trip(ExchangeRequest(), Exchange({}, set(), None), 0.0, 0.0))
    batch.slices = [answered("c", 0, 1, 40)]
    book.batch_finished(batch)
    assert book.costs[-1][-1] == 0


def test_costs_are_summed_by_version_and_class_and_told_once() -> None:
    book = CostBook()
    book.costs.append(("m@1", "one:plain:0", 1, 64, 40, 1, 9000))
    book.costs.append(("m@1", "one:plain:0", 1, 64, 50, 1, 8000))
    book.costs.append(("m@2", "one:plain:0", 1, 64, 50, 1, 7000))
    first, second = Heartbeat({}), Heartbeat({})
    book.beats(first)
    assert first.costs == [
        ("m@1", "one:plain:0", [2, 128, 90, 2, 17000]),
        ("m@2", "one:plain:0", [1, 64, 50, 1, 7000]),
    ]
    book.beats(second)
    assert second.costs == []
