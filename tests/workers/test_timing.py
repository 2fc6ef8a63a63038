"""What a core spends on the jobs it holds, by a clock that the tests move."""

from collections import deque

import pytest

from workers.core.timing import COMMIT, COMPUTE, MERGE, TOKENIZE, CostBook, ItemCosts, TimeBook


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
    return TimeBook(clock)


def work(book: TimeBook, clock: Clock, seconds: float, stage: int, *jobs: str) -> None:
    began = book.enter()
    clock.now += seconds
    book.add(stage, jobs, book.leave() - began)


def test_parts_of_a_job_and_its_waiting_add_up_to_the_covered_time_it_was_held(book: TimeBook, clock: Clock) -> None:
    book.hold(["a"], None)
    work(book, clock, 1, TOKENIZE, "a")
    book.hold(["b"], None)
    work(book, clock, 2, COMPUTE, "a")
    clock.now += 8
    work(book, clock, 4, MERGE, "b")
    report = {job: [number // 1_000_000 for number in numbers] for job, numbers in book.report(["a", "b"]).items()}
    #                       held waited tokenize compute merge commit core windows tokens
    assert report == {"a": [15, 4, 1, 2, 0, 0, 0, 0, 0], "b": [14, 2, 0, 0, 4, 0, 0, 0, 0]}


def test_report_that_was_not_kept_is_made_again_with_what_came_after_it(book: TimeBook, clock: Clock) -> None:
    book.hold(["a"], None)
    work(book, clock, 1, COMPUTE, "a")
    assert book.report(["a"])["a"][0] == 1_000_000
    work(book, clock, 2, COMMIT, "a")
    assert book.report(["a"])["a"] == [3_000_000, 0, 0, 1_000_000, 0, 2_000_000, 0, 0, 0]
    work(book, clock, 4, COMMIT, "a")
    book.settle(["a"], {"a"})
    assert book.report(["a"])["a"] == [4_000_000, 0, 0, 0, 0, 4_000_000, 0, 0, 0]
    book.settle(["a"], set())
    assert book.report(["a"]) == {}


def test_time_inside_another_counts_once(book: TimeBook, clock: Clock) -> None:
    book.enter()
    clock.now += 1
    book.hold(["a"], None)
    work(book, clock, 2, TOKENIZE, "a")
    clock.now += 4
    book.leave()
    assert book.report(["a"])["a"][:3] == [6_000_000, 4_000_000, 2_000_000]


def test_core_seconds_are_shared_by_tokens(book: TimeBook) -> None:
    book.hold(["a", "b"], None)
    book.share({"a": 30, "b": 10, "gone": 40}, 8.0)
    assert [numbers[6] for numbers in book.report(["a", "b"]).values()] == [3_000_000, 1_000_000]
    assert book.account.core_s == 8


@pytest.mark.parametrize(("cpu_s", "on_cpu", "core_s"), [(2, True, 2), (2, False, 3), (9, True, 3)])
def test_job_pays_for_its_own_cpu_time_and_for_all_time_of_a_device(cpu_s: float, on_cpu: bool, core_s: float) -> None:
    """Neighbours take the CPU meanwhile, a device needs none, and more threads than one count once."""
    clock, cpu_clock = Clock(), Clock()
    book = TimeBook(clock, cpu_clock=cpu_clock)
    began = book.mark()
    clock.now += 3
    cpu_clock.now += cpu_s
    assert book.worked(began, on_cpu=on_cpu) == core_s


def test_what_a_job_that_is_held_no_more_took_is_lost_once(book: TimeBook) -> None:
    book.hold(["a", "b"], None)
    book.read({"a": 2, "b": 1}, {"a": 600, "b": 100})
    book.share({"a": 30, "b": 10, "gone": 40}, 8.0)
    assert book.report(["a"])["a"][6:] == [3_000_000, 2, 600]
    book.settle(["a"], set())
    assert book.account.report_lost() == [0, 0, 4_000_000]
    book.keep(set())
    lost = book.account.report_lost()
    assert lost == [1, 100, 5_000_000]
    book.account.settle_lost(lost)
    assert book.account.report_lost() == []


def test_time_of_redis_goes_on_from_the_last_claim(book: TimeBook, clock: Clock) -> None:
    assert book.redis_us() is None
    book.hold((), 1_800_000_000_000_000)
    clock.now += 0.25
    assert book.redis_us() == 1_800_000_000_250_000


def test_jobs_that_left_are_forgotten(book: TimeBook) -> None:
    book.hold(["a", "b"], None)
    book.keep({"b"})
    assert list(book.report(["a", "b"])) == ["b"]


def test_core_time_of_a_job_is_shared_among_its_slices_by_tokens_once() -> None:
    costs = deque[ItemCosts]()
    book = CostBook(costs)
    book.note("a", "m@1", "many:plain:2", 32, (3200, 3000, 32))
    book.note("a", "m@1", "many:han:3", 10, (1500, 1000, 10))
    book.note("b", "m@1", "one:plain:0", 1, (64, 40, 1))
    book.settle({"a": [0, 0, 0, 0, 0, 0, 4000], "c": [0, 0, 0, 0, 0, 0, 7]}, is_idle=False)
    assert list(costs) == [
        ("m@1", "many:plain:2", 32, 3200, 3000, 32, 3000),
        ("m@1", "many:han:3", 10, 1500, 1000, 10, 1000),
    ]
    book.settle({"a": [0, 0, 0, 0, 0, 0, 100]}, is_idle=False)
    assert len(costs) == 2
    book.settle({}, is_idle=True)
    book.settle({"b": [0, 0, 0, 0, 0, 0, 9]}, is_idle=True)
    assert len(costs) == 2
