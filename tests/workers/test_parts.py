"""A long item on several cores: their drains in this process, round by round, on a real Redis."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis

from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import Core
from corelane.engine.backends.protocol import Backend
from corelane.engine.runner import Runner
from corelane.engine.task import Result
from corelane.errors import StoreUnavailable
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.wire import Question
from tests.corelane.store_bench import Bench
from tests.tools.fakes import FixedBackend
from tests.tools.simulated_core import SimulatedCore
from workers.core.drain import DrainLoop

DOCUMENT = " ".join(f"the river tower {n} was red ." for n in range(160))
QUESTION = "who wrote"


@dataclass
class Worker:
    """A core, and its drain that goes on when it is told to."""

    core: SimulatedCore
    runner: Runner

    def __post_init__(self) -> None:
        self.is_stopping = False
        self.loop = DrainLoop(self.core, lambda: self.is_stopping)

    @property
    def parts(self) -> int:
        """Parts of another core's item that it reads."""
        return sum(pending.part is not None for pending in self.loop._in_flight.pending.values())

    @property
    def out(self) -> int:
        """Parts of its own item that are out."""
        shared = self.loop._in_flight.fragments._shared
        return 0 if shared is None else len(shared.out)

    @property
    def would_wait(self) -> bool:
        """Whether it has nothing to do until somebody rings."""
        in_flight, bell = self.loop._in_flight, self.core.dispatch._link("GET", f"cl:bell:{self.core.core}")
        has_work = in_flight.is_unsent or not (in_flight.is_empty or not in_flight.can_run)
        return bell == b"l" and not has_work

    def round(self) -> None:
        if not self.would_wait:
            self.loop._serve_once()

    def stop(self) -> None:
        self.is_stopping = True
        self.round()


class Fleet:
    """Cores of one model."""

    def __init__(self, bench: Bench, artifact: Artifact) -> None:
        self.bench, self.artifact = bench, artifact
        self.settings = bench.settings.model_copy(update={"linger_s": 600.0, "lease_s": 60.0, "drain_s": 600.0})
        self.workers: list[Worker] = []
        self.lost: list[Worker] = []

    def add(self, backend: Backend | None = None) -> Worker:
        runner = Runner.open(backend or FixedBackend(), self.artifact)
        number = len(self.workers)
        core = SimulatedCore(self.settings, Core("test", number), self.bench.bell, {runner.version: runner})
        core.begin_life()
        core.begin_drain()
        self.workers.append(Worker(core, runner))
        return self.workers[-1]

    @property
    def version(self) -> str:
        return self.artifact.manifest.version_id

    def submit(self, text: str = DOCUMENT) -> str:
        return self.bench.submit(1, items=[Question(question=QUESTION, context=text)], version=self.version)

    def share(self) -> tuple[Worker, Worker]:
        """Have one core begin a document, and another take a part of it."""
        own, other = self.workers
        for _ in range(200):
            own.round()
            if own.out:
                break
        other.round()
        return own, other

    def run_out(self, job: str) -> None:
        """Let all cores go on until the job is final."""
        for _ in range(2000):
            is_quiet = all(worker.would_wait for worker in self.workers)
            for worker in self.workers:
                if self.bench.get(job).status not in ("queued", "running"):
                    return
                if is_quiet:
                    worker.loop._serve_once()
                worker.round()
        raise AssertionError("the job does not end")

    def alone(self, text: str = DOCUMENT) -> Result:
        [result] = Runner.open(FixedBackend(), self.artifact).results_of([Query(QUESTION, text)])
        return result

    def assert_answered(self, job: str) -> None:
        [result] = self.bench.results(job)
        assert {name: result[name] for name in self.alone()} == self.alone()

    def assert_clean(self) -> None:
        for worker in self.workers:
            while worker.parts or worker.loop._in_flight.is_unsent:
                worker.round()
        assert self.bench.waiting() == {}
        assert self.bench.raw.zrange("cl:leases", 0, -1) == []
        assert self.bench.raw.keys("cl:claim:*") == []

    def lost_windows(self) -> int:
        """Windows that no job is charged for."""
        days = [self.bench.raw.hgetall(day) for day in self.bench.raw.keys("cl:usage:*")]
        return sum(int(row.split()[1]) for day in days for name, row in day.items() if name.startswith("#lost|"))

    def lose(self, worker: Worker) -> None:
        """Let a core do nothing any more."""
        self.workers.remove(worker)
        self.lost.append(worker)

    def close(self) -> None:
        for worker in (*self.workers, *self.lost):
            worker.core.close()
            worker.core.dispatch.close()
            worker.core._announcer._link.close()
            worker.runner.close()
        self.bench.upkeep._link.close()


@pytest.fixture
def fleet(settings: Settings, raw: redis.Redis, bell: str, tiny_artifact: Artifact) -> Iterator[Fleet]:
    fleet = Fleet(Bench(settings, raw, bell), tiny_artifact)
    yield fleet
    fleet.close()


def test_two_cores_read_a_document_and_it_is_answered_as_by_one(fleet: Fleet) -> None:
    own, other = fleet.add(), fleet.add()
    job = fleet.submit()
    fleet.run_out(job)
    fleet.assert_answered(job)
    fleet.assert_clean()
    windows = fleet.alone()["windows"]
    assert own.runner.work.windows + other.runner.work.windows == windows
    assert min(own.runner.work.windows, other.runner.work.windows) > windows // 4
    assert (own.runner.work.items, other.runner.work.items) == (1, 0)
    usage = fleet.bench.get(job).describe().usage
    assert usage is not None
    assert (usage.items, usage.windows) == (1, windows)
    assert usage.tokens == own.runner.work.tokens + other.runner.work.tokens
    timing = fleet.bench.get(job).describe().timing
    assert timing is not None
    assert timing.cores == 2
    assert fleet.bench.raw.keys("cl:offer:*") == []


@pytest.mark.parametrize("stops", [False, True])
def test_part_of_a_core_that_is_gone_is_read_by_the_core_that_shared_it(fleet: Fleet, stops: bool) -> None:
    fleet.add(), fleet.add()
    job = fleet.submit()
    _, other = fleet.share()
    assert other.parts == 1
    if stops:
        other.stop()
    else:
        fleet.bench.upkeep.return_own(str(other.core.core))
    fleet.lose(other)
    fleet.run_out(job)
    fleet.assert_answered(job)
    fleet.assert_clean()


def test_document_of_a_core_that_is_gone_is_begun_again_and_its_parts_are_refused(fleet: Fleet) -> None:
    fleet.add(), fleet.add()
    job = fleet.submit()
    own, other = fleet.share()
    assert other.parts == 1
    fleet.bench.upkeep.return_own(str(own.core.core))
    fleet.lose(own)
    fleet.run_out(job)
    fleet.assert_answered(job)
    assert own.loop._in_flight.is_empty is False
    own.round()
    assert own.loop.report.refused <= 1
    fleet.assert_clean()


@pytest.mark.parametrize("stops", [False, True])
def test_document_that_is_begun_again_pays_for_one_reading(fleet: Fleet, stops: bool) -> None:
    fleet.add(), fleet.add()
    job = fleet.submit()
    own, other = fleet.share()
    while not other.runner.work.windows or other.parts or other.loop._in_flight.is_unsent:
        other.round()
    own.round()
    wasted = other.runner.work.windows
    assert wasted
    if stops:
        own.stop()
        wasted += own.runner.work.windows
    else:
        fleet.bench.upkeep.return_own(str(own.core.core))
    fleet.lose(own)
    fleet.run_out(job)
    fleet.assert_answered(job)
    usage = fleet.bench.get(job).describe().usage
    assert usage is not None
    assert (usage.items, usage.windows) == (1, fleet.alone()["windows"])
    assert fleet.lost_windows() == wasted
    fleet.assert_clean()
    assert fleet.bench.raw.keys("cl:offer:*") == []


def test_part_that_is_answered_twice_is_paid_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.add(), fleet.add()
    job = fleet.submit()
    _, other = fleet.share()
    link, many = other.core.dispatch._link, other.core.dispatch._link.many

    def fail_after_an_answer(commands: list) -> list:
        replies: list = many(commands)
        if other.loop._in_flight.is_unsent:
            monkeypatch.undo()
            raise StoreUnavailable("the reply got lost")
        return replies

    def go_on() -> None:
        while True:
            other.round()

    monkeypatch.setattr(link, "many", fail_after_an_answer)
    with pytest.raises(StoreUnavailable):
        go_on()
    fleet.run_out(job)
    fleet.assert_answered(job)
    usage = fleet.bench.get(job).describe().usage
    assert usage is not None
    assert (usage.windows, fleet.lost_windows()) == (fleet.alone()["windows"], 0)


def test_canceled_document_ends_on_both_cores(fleet: Fleet) -> None:
    fleet.add(), fleet.add()
    job = fleet.submit()
    own, other = fleet.share()
    assert other.parts == 1
    fleet.bench.cancel(job)
    for worker in (own, other):
        worker.round()
        worker.round()
        assert worker.loop._in_flight.is_empty
    fleet.assert_clean()
    usage = fleet.bench.get(job).describe().usage
    assert usage is not None
    assert usage.windows == own.runner.work.windows + other.runner.work.windows


def test_document_that_failed_before_is_read_by_one_core(fleet: Fleet) -> None:
    fleet.add()
    job = fleet.submit()
    [first] = fleet.workers
    first.round()
    fleet.bench.upkeep.return_own(str(first.core.core))
    first.loop._in_flight.take_unfinished()
    other = fleet.add()
    fleet.run_out(job)
    fleet.assert_answered(job)
    assert sorted(worker.runner.work.windows > 10 for worker in (first, other)) == [False, True]


def test_parts_that_redis_lost_are_read_here(fleet: Fleet) -> None:
    fleet.add(), fleet.add()
    job = fleet.submit()
    fleet.share()
    fleet.bench.raw.delete(*fleet.bench.raw.keys("cl:offer:*"))
    fleet.run_out(job)
    fleet.assert_answered(job)
    fleet.assert_clean()


def test_exchange_that_got_lost_loses_no_windows(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.add(), fleet.add()
    job = fleet.submit()
    own, other = fleet.share()
    for worker in (own, other):
        link, many = worker.core.dispatch._link, worker.core.dispatch._link.many

        def fail(commands: list, many=many, link=link) -> list:  # type: ignore[no-untyped-def]
            many(commands)
            monkeypatch.undo()
            raise StoreUnavailable("the reply got lost")

        monkeypatch.setattr(link, "many", fail)
        with pytest.raises(StoreUnavailable):
            worker.round()
    fleet.run_out(job)
    fleet.assert_answered(job)


def test_short_question_is_not_held_up_by_a_part(fleet: Fleet) -> None:
    fleet.add(), fleet.add()
    document = fleet.submit()
    _, other = fleet.share()
    lone = fleet.submit("ada wrote the program")
    other.round()
    other.round()
    assert fleet.bench.get(lone).status == "succeeded"
    fleet.run_out(document)
    fleet.assert_answered(document)


def test_poison_in_a_part_fails_the_item_alone_and_as_on_one_core(fleet: Fleet) -> None:
    fleet.add(), fleet.add()
    poisoned = DOCUMENT + " [unused1]"
    [expected] = Runner.open(FixedBackend(), fleet.artifact).results_of([Query(QUESTION, poisoned)])
    job = fleet.submit(poisoned)
    fleet.run_out(job)
    [result] = fleet.bench.results(job)
    assert {name: result[name] for name in expected} == expected
    fleet.assert_clean()


def test_core_that_answered_a_larger_job_reads_a_part_at_once_and_after_a_question_it_stays_free(fleet: Fleet) -> None:
    _, other = fleet.add(), fleet.add()
    larger = fleet.bench.submit(20, version=fleet.version)
    fleet.run_out(larger)
    assert other.loop._asked == -math.inf
    job = fleet.submit()
    fleet.share()
    assert other.parts == 1
    lone = fleet.submit("ada wrote the program")
    fleet.run_out(lone)
    assert max(worker.loop._asked for worker in fleet.workers) > -math.inf
    fleet.run_out(job)
    fleet.assert_answered(job)
