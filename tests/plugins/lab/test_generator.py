import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.errors import InvalidInput, ServiceError, SetupError
from corelane.plugins.lab.figures import summarise
from corelane.plugins.lab.generator import choose_processes, run_load
from corelane.plugins.lab.load import LoadProgress, RunPlan
from corelane.plugins.lab.schema import Load, Request
from corelane.plugins.lab.senders import Manner, Target
from corelane.plugins.lab.session import Session, ask_idle, idle_places, probe
from corelane.plugins.lab.synthetic import make_items
from corelane.plugins.lab.traces import TraceEntry, write_trace
from corelane.plugins.lab.ways import CorelaneSender
from tests.plugins.lab.answering import Answering, answering
from tests.plugins.lab.noting import BROKEN, WORDY

ITEMS = make_items("words=20", 10)


@pytest.fixture
def service() -> Iterator[Answering]:
    with answering() as found:
        yield found


def plan(load: Load, **given: Any) -> RunPlan:
    return RunPlan(load, **({"warmup_s": 0.1, "duration_s": 0.4, "tail_s": 0.1, "processes": 1} | given))


def constant(rate: float) -> Load:
    return Load(kind="constant", rate_per_s=rate)


def send(service: Answering, manner: Manner | None = None) -> Any:
    async def once() -> Any:
        sender = CorelaneSender(Target(service.url), manner or Manner(timeout_s=20))
        await sender.open(1)
        reply = await sender.send(0, ITEMS.asked[:1])
        await sender.close()
        return reply

    return asyncio.run(once())


def test_an_open_loop_sends_each_request_when_it_is_due(service: Answering) -> None:
    phases: list[str] = []
    ticks: list[LoadProgress] = []
    measured = run_load(Target(service.url), ITEMS, plan(constant(50), processes=2), phases.append, ticks.append)
    assert phases == ["measured", "tail"]
    counted = [each for each in measured.requests if each.phase == "measured"]
    assert [each.number for each in measured.requests] == sorted(each.number for each in measured.requests)
    assert len(counted) == 20
    assert {each.process for each in counted} == {0, 1}
    for each in counted:
        assert each.outcome == "ok"
        assert each.intended_s == pytest.approx(each.number / 50)
        assert each.intended_s <= each.sent_s <= each.ended_s  # type: ignore[operator]
    assert measured.window_s == pytest.approx((0.1, 0.5))
    assert measured.generator.requested_per_s == pytest.approx(50)
    assert measured.generator.cpu_s > 0
    assert measured.results is not None
    assert measured.results.checked == 20
    assert all(tick.total.in_flight >= 0 for tick in ticks)


def test_a_report_of_many_megabytes_arrives_whole(service: Answering) -> None:
    measured = run_load(Target(service.url), ITEMS, plan(constant(100), sender=WORDY))
    assert len(measured.requests) >= 40
    assert all(len(each.detail or "") == 100_000 for each in measured.requests if each.outcome == "ok")


def test_a_closed_loop_keeps_so_many_under_way(service: Answering) -> None:
    service.delay_s = 0.02
    load = Load(kind="closed", concurrency=3)
    measured = run_load(Target(service.url), ITEMS, plan(load, duration_s=None, requests=20, warmup_s=0.1))
    counted = [each for each in measured.requests if each.phase == "measured"]
    assert len(counted) == 20
    assert most_at_once(measured.requests) == 3
    assert measured.generator.requested_per_s is None
    assert measured.generator.lateness is None
    assert measured.window_s[1] == max(each.ended_s or 0 for each in counted)
    # Connections are opened before, and kept.
    assert service.connections == 3


def most_at_once(requests: list[Request]) -> int:
    changes = [(each.sent_s, 1) for each in requests] + [(each.ended_s, -1) for each in requests]
    level = most = 0
    for _, change in sorted(changes, key=lambda each: (each[0] or 0, each[1])):
        level += change
        most = max(most, level)
    return most


def test_a_generator_that_is_stopped_for_a_moment_makes_the_run_invalid(service: Answering) -> None:
    """All that was due meanwhile is sent late, and nothing of it goes uncounted."""

    def stop(phase: str) -> None:
        if phase == "measured":
            [child] = multiprocessing.active_children()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGSTOP)
            threading.Timer(1.5, os.kill, (child.pid, signal.SIGCONT)).start()

    measured = run_load(Target(service.url), ITEMS, plan(constant(30), duration_s=1.0), stop)
    run = summarise(measured)
    assert run.requests == run.ok == 30
    assert run.generator.lateness is not None
    assert run.generator.lateness.max > 0.3
    assert any("late" in reason for reason in run.invalid)
    assert run.latency is not None
    assert run.latency_sent is not None
    assert run.latency.max > run.latency_sent.max


def test_a_client_with_a_bound_holds_requests_back_and_is_not_late(service: Answering) -> None:
    service.delay_s = 0.06
    alone = plan(constant(30), max_in_flight=1, warmup_s=0.0, tail_s=0.0)
    measured = run_load(Target(service.url), ITEMS, alone)
    assert most_at_once(measured.requests) == 1
    held = [each.sent_s - each.intended_s for each in measured.requests if each.sent_s is not None]
    assert max(held) > 0.3
    assert measured.generator.held >= 6
    assert measured.generator.lateness is not None
    assert measured.generator.lateness.max < max(held)


def test_a_generator_that_cannot_connect_says_so() -> None:
    with pytest.raises(SetupError, match="nothing listens at"):
        run_load(Target("http://127.0.0.1:9"), ITEMS, plan(constant(5)))
    assert multiprocessing.active_children() == []


def test_processes_are_chosen_by_the_load() -> None:
    assert choose_processes(plan(constant(10), processes=0)) == 1
    assert choose_processes(plan(constant(10), processes=5)) == 5
    assert choose_processes(plan(Load(kind="closed", concurrency=2), processes=5)) == 2


def test_a_refusal_is_counted_or_sent_again(service: Answering) -> None:
    service.refusals = [429]
    reply = send(service)
    assert (reply.outcome, reply.error, reply.ended_s, reply.retries) == ("refused", "overloaded", None, 0)
    service.refusals = [422]
    reply = send(service)
    assert (reply.outcome, reply.error, reply.detail) == ("error", "overloaded", "too much work")
    service.refusals = [429, 429]
    reply = send(service, Manner(timeout_s=20, retries_refusals=True))
    assert (reply.outcome, reply.retries) == ("ok", 2)
    assert reply.ended_s >= reply.sent_s


def test_a_request_that_takes_too_long_is_given_up(service: Answering) -> None:
    service.delay_s = 30
    reply = send(service, Manner(timeout_s=0.1))
    assert (reply.outcome, reply.error) == ("unfinished", "timeout")
    assert reply.sent_s is not None or reply.ended_s is None


def test_a_broken_connection_is_an_error_of_its_own(service: Answering) -> None:
    service.breaks = True
    reply = send(service)
    assert (reply.outcome, reply.error) == ("error", "connection_lost")


def test_the_idle_service_is_asked_each_question_once(service: Answering) -> None:
    workload = make_items("words=20", 5)
    asked = plan(constant(20))
    times = ask_idle(Target(service.url), workload, asked, idle_places(workload, asked))
    assert len(times) == len(workload.idle) == 5
    assert sorted(body["context"] for body in service.bodies) == sorted(
        each.fields["context"] for each in workload.asked
    )
    service.answer = "other"
    session = Session(Target(service.url), workload, asked)
    point = session.measure("x", constant(20))
    assert point.runs[0].results is not None
    assert point.runs[0].results.differ_from_idle == point.runs[0].results.checked == 8
    # It shows no metrics.
    assert point.runs[0].server is None
    assert session.problems == ["there is nothing here"]


def test_an_idle_service_that_does_not_answer_is_an_error(service: Answering) -> None:
    service.refusals = [500]
    with pytest.raises(ServiceError, match="too much work"):
        ask_idle(Target(service.url), make_items("words=20", 5), plan(constant(20)), [0])


def test_a_modest_rate_comes_from_the_time_of_lone_questions(service: Answering) -> None:
    service.delay_s = 0.05
    rate_per_s, latency_s = probe(Target(service.url), make_items("words=20", 3), plan(constant(1)), 2)
    assert latency_s >= 0.05
    assert 0 < rate_per_s <= 12.1


def test_a_trace_of_jobs_is_not_sent_as_lone_questions(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", [TraceEntry(0.0), TraceEntry(0.1, 3)])
    load = Load(kind="trace", detail={"path": str(tmp_path / "trace")})
    with pytest.raises(InvalidInput, match="--way job"):
        run_load(Target("http://127.0.0.1:9"), ITEMS, plan(load, duration_s=None))


def test_a_caller_that_fails_waits_before_it_asks_again(service: Answering) -> None:
    load = Load(kind="closed", concurrency=2)
    measured = run_load(Target(service.url), ITEMS, plan(load, sender=BROKEN))
    assert {(each.outcome, each.error) for each in measured.requests} == {("error", "sender_broke")}
    times = [each.intended_s for each in measured.requests]
    assert len(times) <= 2 * (2 + (times[-1] - times[0]) / 0.1)
