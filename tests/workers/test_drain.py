"""One core's drain in this process, on a real Redis, with the null engine."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, partialmethod

import pytest
import redis
from structlog.testing import capture_logs

from corelane.domain.dispatch import Core
from corelane.engine.buckets import Bucket
from corelane.engine.null import NullRunner
from corelane.engine.passes import ForwardPass
from corelane.engine.runner import RunningBatch
from corelane.errors import StoreUnavailable
from corelane.settings import Settings
from corelane.store.dispatch import Exchange, ExchangeRequest, Room
from tests.corelane.store_bench import VERSION, Bench, LoneCore, announce, claimed
from tests.tools.simulated_core import SimulatedCore
from tests.tools.waiting import eventually
from workers.core.drain import MOST_SKIPPED, DrainLoop, DrainReport, drain, skips_after
from workers.core.observer import CoreBatch, CoreObserver
from workers.models.desired import DesiredModel
from workers.models.life import ModelEvent


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(settings, raw, bell)


@pytest.fixture
def core(bench: Bench) -> Iterator[SimulatedCore]:
    settings = bench.settings.model_copy(update={"linger_s": 0.0, "lease_s": 60.0})
    core = SimulatedCore(settings, Core("test", 0), bench.bell, {VERSION: NullRunner(VERSION)})
    core.begin_life()
    announce(settings, "test/0", VERSION, ["default"])
    yield core
    core.close()
    core.dispatch.close()


@pytest.fixture
def lingering(core: SimulatedCore) -> SimulatedCore:
    """Have the core linger."""
    core.settings = core.settings.model_copy(update={"linger_s": 600.0})
    return core


@pytest.fixture
def submitter(bench: Bench) -> Iterator[Callable[[], str]]:
    """Submit a question once the core lingers, from a thread; return its job."""

    def submit() -> str:
        eventually(lambda: bench.raw.get("cl:bell:test/0") == "l")
        return bench.submit(1)

    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(submit).result


def test_lingering_core_claims_in_the_moment_it_is_rung(
    lingering: SimulatedCore, bench: Bench, submitter: Callable[[], str]
) -> None:
    def is_done() -> bool:
        return any(bench.raw.hget(job, "status") == "succeeded" for job in bench.raw.scan_iter("cl:job:*"))

    assert drain(lingering, is_done)["items"] == 1
    assert str(bench.get(submitter()).status) == "succeeded"


def test_core_that_is_stopped_while_it_lingers_hands_back_what_it_claimed(
    lingering: SimulatedCore, bench: Bench, submitter: Callable[[], str]
) -> None:
    def holds_a_claim() -> bool:
        return any(bench.raw.scan_iter("cl:claim:*"))

    assert drain(lingering, holds_a_claim)["items"] == 0
    assert bench.waiting() == {VERSION: 64}
    assert not holds_a_claim()
    assert str(bench.get(submitter()).status) == "running"


def test_report_counts_tokens_and_padding_of_its_batches() -> None:
    report, runner = DrainReport(), NullRunner(VERSION)
    report.refused = 1
    for windows, tokens, padding in ((2, 60, 30), (1, 15, 25)):
        batch = CoreBatch(runner, 0.0, 0.0, answered=windows)
        batch.running = RunningBatch(runner, passes=[ForwardPass(Bucket(64, 16), windows, tokens, padding)])
        report.count(batch)
    found = report.result()
    assert (found["items"], found["batches"], found["refused"]) == (3, 2, 1)
    assert (found["tokens"], found["padding"]) == (75, round(55 / 130, 2))


def test_core_waits_for_second_rows_as_long_as_they_come() -> None:
    skips = [1]
    for _ in range(12):
        skips.append(skips_after(skips[-1], came=False))
    assert (skips[:4], skips[-1]) == ([1, 2, 4, 8], MOST_SKIPPED)
    assert skips_after(MOST_SKIPPED, came=True) == 0
    assert skips_after(0, came=False) == 1


def test_job_canceled_while_its_core_waits_for_a_second_row_does_not_end_the_drain(
    core: SimulatedCore,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canceled = bench.submit(1)
    wait = DrainLoop._wait_for_row

    def cancel_and_wait(loop: DrainLoop) -> None:
        monkeypatch.undo()
        bench.cancel(canceled)
        loop._to_skip = 0
        wait(loop)

    monkeypatch.setattr(DrainLoop, "_wait_for_row", cancel_and_wait)
    assert drain(core, lambda: False)["items"] == 0
    job = bench.submit(1)
    drain(core, lambda: False)
    assert [str(bench.get(each).status) for each in (canceled, job)] == ["canceled", "succeeded"]


def test_core_that_is_stopped_commits_what_it_has_answered(core: SimulatedCore, bench: Bench) -> None:
    job = bench.submit(1)
    assert drain(core, lambda: core.vitals.busy_s > 0)["items"] == 1
    assert str(bench.get(job).status) == "succeeded"


def test_core_that_drained_for_long_rings_itself_again(
    core: SimulatedCore, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.core.drain.DRAIN_S", 0)
    bench.submit(1)
    bench.raw.delete("cl:bell:test/0", "core.test.0")
    assert drain(core, lambda: False)["items"] == 0
    assert bench.raw.llen("core.test.0") == 1


def test_core_whose_batch_does_not_end_lets_its_leases_lapse(core: SimulatedCore, bench: Bench) -> None:
    bench.submit(1)
    core.vitals.running_since = -math.inf
    core.leases = [lease := claimed(LoneCore(core.settings, "test/0")).lease]
    bench.age(10)
    deadline = bench.raw.zscore("cl:leases", lease)
    core._beat()
    assert bench.raw.zscore("cl:leases", lease) == deadline
    core.vitals.rest()
    core._beat()
    assert bench.raw.zscore("cl:leases", lease) > deadline


def test_version_that_was_loaded_again_is_claimed_once_nothing_is_in_progress(
    core: SimulatedCore, bench: Bench
) -> None:
    again = DesiredModel(VERSION, reload_ms=1)
    assert core.models.table.handle(ModelEvent.RELOAD, again)
    assert core.models.table.handle(ModelEvent.LOAD, again, runner=NullRunner(VERSION))
    loop, other = DrainLoop(core, lambda: False), LoneCore(core.settings, "test/0")
    assert loop._request(Room(1), linger=True, wait=False).versions == [VERSION]
    bench.submit(1)
    claim = claimed(other)
    loop._in_flight.add(claim, other.fetch(claim))
    assert loop._request(Room(1), linger=True, wait=False).versions == []


def test_core_that_holds_work_goes_on_while_redis_is_away(
    core: SimulatedCore, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.submit(1)
    loop, away = DrainLoop(core, lambda: False), Exchange({}, set(), None, error=StoreUnavailable("Redis is away"))
    with monkeypatch.context() as without_redis:
        without_redis.setattr(core.dispatch, "exchange", lambda _: away)
        with pytest.raises(StoreUnavailable):
            loop._exchange(Room(100), linger=False)
    loop._exchange(Room(100), linger=False)
    monkeypatch.setattr(core.dispatch, "exchange", lambda _: away)
    loop._exchange(Room(100), linger=False)
    assert core.is_cut_off


class ReadingRunner(NullRunner):
    """Has a document in progress whose tokens have no end."""

    def waiting_tokens(self, most_per_item: int) -> int:
        return most_per_item


def test_core_that_reads_a_document_has_room_for_other_work(bench: Bench) -> None:
    core = SimulatedCore(bench.settings, Core("test", 0), bench.bell, {VERSION: ReadingRunner(VERSION)})
    core.begin_life()
    budget = bench.settings.claim_tokens
    assert DrainLoop(core, lambda: False)._room().tokens == budget - budget // 8
    core.close()


def test_observers_that_raise_are_passed_over_and_logged_once_for_each_kind(
    bench: Bench,
) -> None:
    called: list[str] = []

    def fail(hook: str, *_: object) -> None:
        called.append(hook)
        raise ValueError(hook)

    hooks = [name for name in vars(CoreObserver) if not name.startswith("_")]
    faulty = type("Faulty", (CoreObserver,), {hook: partialmethod(partial(fail, hook)) for hook in hooks})

    def broken(_: object) -> list[CoreObserver]:
        raise ValueError("no observers")

    settings = bench.settings.model_copy(update={"linger_s": 0.0})
    runners = {VERSION: NullRunner(VERSION)}
    with capture_logs() as lines:
        core = SimulatedCore(settings, Core("test", 0), bench.bell, runners, [lambda _: [faulty()], broken])
        core.begin_life()
        announce(settings, "test/0", VERSION, ["default"])
        jobs = [bench.submit(1), bench.submit(40)]
        drain(core, lambda: False)
        assert {str(bench.get(job).status) for job in jobs} == {"succeeded"}
        loop = DrainLoop(core, lambda: False)
        bench.submit(1)
        loop._exchange(Room(100), linger=False)
        loop._hand_over()
        core.close()
        core.dispatch.close()
    said = sorted(line["hook"] for line in lines if line["event"] == "plugin_failed")
    assert said == sorted([*hooks, "observers"])
    assert set(called) == set(hooks)


def test_claim_drops_a_bounded_number_of_canceled_items_and_its_core_comes_again(
    core: SimulatedCore, bench: Bench
) -> None:
    canceled = bench.submit(1)
    [ref] = bench.raw.lrange(f"cl:lane:{VERSION}:1:public", 0, -1)
    bench.cancel(canceled)
    bench.raw.rpush(f"cl:lane:{VERSION}:1:public", *[ref] * 1000)
    bench.raw.hincrby("cl:waiting", VERSION, 1000 * 64)
    bench.raw.hincrby("cl:owed", "public:1", 1000 * 64)
    job = bench.submit(1)
    before = bench.raw.llen(f"cl:lane:{VERSION}:1:public")
    lone = LoneCore(core.settings, "test/0")
    reply = lone.exchange(ExchangeRequest(versions=[VERSION], room=Room(1000), idle=True))
    assert (reply.claim, reply.has_more) == (None, True)
    assert 0 < before - bench.raw.llen(f"cl:lane:{VERSION}:1:public") <= 260
    assert drain(core, lambda: False)["items"] == 1
    assert str(bench.get(job).status) == "succeeded"
    assert bench.waiting() == {}


def test_returned_work_behind_that_of_a_paused_owner_is_found_in_bounded_steps(
    core: SimulatedCore, bench: Bench
) -> None:
    mine, theirs = bench.submit(1, owner="mine"), bench.submit(1, owner="theirs")
    lone = LoneCore(core.settings, "test/0")
    refs = {ref.owner: ref.encode() for ref, _ in claimed(lone).refs}
    bench.raw.rpush(f"cl:returned:{VERSION}", *[refs["theirs"]] * 450, refs["mine"])
    bench.raw.hincrby("cl:waiting", VERSION, 451 * 64)
    bench.with_link(lambda link: link.run("pause", kind="owner", name="theirs", by="me"))
    claims = [lone.claim([VERSION], linger=False) for _ in range(6)]
    assert [claim and claim.jobs for claim in claims] == [None, None, None, None, [mine], None]
    assert bench.get(theirs).succeeded == 0


def test_process_that_ends_to_free_memory_ends_between_drains(core: SimulatedCore, bench: Bench) -> None:
    assert core.begin_drain()
    assert not core.begin_end()
    core.end_drain()
    assert core.begin_end()
    job = bench.submit(1)
    assert drain(core, lambda: False) == {}
    assert str(bench.get(job).status) == "queued"
