"""One core's drain in this process, on a real Redis, with the null engine."""

from collections.abc import Iterator

import pytest
import redis

from benchmarks.simulated_cores import SimulatedCore
from corelane.domain.dispatch import Core
from corelane.engine.null import NullRunner
from corelane.settings import Settings
from tests.corelane.store_bench import VERSION, Bench, announce
from workers.core.drain import DrainLoop, drain


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings, raw, bell)


@pytest.fixture
def core(bench: Bench) -> Iterator[SimulatedCore]:
    settings = bench.settings.model_copy(update={"linger_s": 0.0, "batch_wait_s": 0.001, "lease_s": 60.0})
    core = SimulatedCore(settings, Core("test", 0), bench.bell, {VERSION: NullRunner(VERSION)})
    core.begin_life()
    announce(settings, "test/0", VERSION, ["default"])
    yield core
    core.close()


def test_report_tells_of_items_and_batches(core: SimulatedCore, bench: Bench) -> None:
    jobs = [bench.submit(1), bench.submit(40)]
    assert drain(core, lambda: False).startswith("41 items")
    assert {str(bench.get(job).status) for job in jobs} == {"succeeded"}


def test_job_canceled_while_its_batch_fills_does_not_end_the_drain(
    core: SimulatedCore,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canceled = bench.submit(1)
    gather = DrainLoop._gather

    def cancel_and_gather(loop: DrainLoop) -> None:
        monkeypatch.undo()
        bench.cancel(canceled)
        gather(loop)

    monkeypatch.setattr(DrainLoop, "_gather", cancel_and_gather)
    assert drain(core, lambda: False).startswith("0 items")
    job = bench.submit(1)
    drain(core, lambda: False)
    assert [str(bench.get(each).status) for each in (canceled, job)] == ["canceled", "succeeded"]
