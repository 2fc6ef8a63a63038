"""The bench on a real service: every way to ask, a worker that stands still, and the command."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import cycle
from pathlib import Path

import pytest
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.plugins.lab.figures import summarise
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.load import RunPlan
from corelane.plugins.lab.schema import Load, Report, Request, Spread
from corelane.plugins.lab.senders import Manner, Reply, Target
from corelane.plugins.lab.stats import percentile
from corelane.plugins.lab.synthetic import make_items
from corelane.plugins.lab.ways import CorelaneSender
from corelane.tasks.registry import TASKS
from tests.integration.conftest import WEBHOOK_SECRET, Fleet, start_fleet, stop_fleet
from tests.plugins.lab.noting import NAME

ITEMS = make_items("words=30", 6)

WAYS = [
    *(("item", hearing) for hearing in ("wait", "poll", "sse", "webhook")),
    *(("job", hearing) for hearing in ("wait", "poll", "sse", "webhook")),
    *(("lines", hearing) for hearing in ("wait", "poll")),
    ("batch", "poll"),
]

#: A second's requests, requests under way at most, and how long the workers stand still.
RATE, BOUND, STALL_S = 8.0, 4, 2.0


def target(fleet: Fleet) -> Target:
    return Target(fleet.url, options={"no_answer": False}, webhook_secret=WEBHOOK_SECRET)


async def ask_all(fleet: Fleet) -> dict[tuple[str, str], Reply]:
    async def ask(way: str, hearing: str) -> Reply:
        sender = CorelaneSender(target(fleet), Manner(way, hearing, timeout_s=60))  # type: ignore[arg-type]
        await sender.open(1)
        asked = ITEMS.asked[:1] if way == "item" else ITEMS.asked
        reply = await sender.send(0, asked)
        await sender.close()
        return reply

    return dict(zip(WAYS, await asyncio.gather(*(ask(*each) for each in WAYS)), strict=True))


def test_every_way_to_ask_brings_the_same_answers(fleet: Fleet) -> None:
    replies = asyncio.run(ask_all(fleet))
    expected = sorted(replies["job", "wait"].results)
    assert len(expected) == 6
    for (way, hearing), reply in replies.items():
        assert (reply.outcome, reply.error, reply.detail) == ("ok", None, None), (way, hearing)
        assert sorted(reply.results) == (expected[:1] if way == "item" else expected), (way, hearing)
        assert reply.job is not None
        assert reply.sent_s is not None
        assert reply.ended_s is not None
        times = [reply.sent_s, reply.accepted_s, reply.first_s, reply.ended_s]
        known = [each for each in times if each is not None]
        assert known == sorted(known), (way, hearing)
        assert (reply.accepted_s is None) == (hearing == "wait")


def test_latency_from_when_requests_were_due_and_from_their_sending_while_workers_stand_still(fleet: Fleet) -> None:
    """A client with a bound sends late while the service stalls. Both latencies are as the events say."""
    fleet.wait_whole()
    pids = [core["pid"] for core in fleet.states().values()]

    def send_all(number: signal.Signals) -> None:
        for pid in pids:
            os.kill(pid, number)

    def stall(phase: str) -> None:
        if phase == "measured":
            send_all(signal.SIGSTOP)
            threading.Timer(STALL_S, send_all, [signal.SIGCONT]).start()

    load = Load(kind="constant", rate_per_s=RATE)
    plan = RunPlan(load, warmup_s=0.5, duration_s=3.0, tail_s=0.0, max_in_flight=BOUND, processes=1, sender=NAME)
    measured = run_load(target(fleet), ITEMS, plan, stall)
    run = summarise(measured)
    counted = [each for each in measured.requests if each.phase == "measured"]
    assert run.ok == len(counted) == 24

    began_s = datetime.fromisoformat(measured.began_at).timestamp() - (time.time() - time.monotonic())
    due = [began_s + each.number / RATE for each in counted]
    noted = [tuple(map(float, str(each.detail).split())) for each in counted]
    since_due = [ended_s - due_s for due_s, (_, ended_s) in zip(due, noted, strict=True)]
    since_sent = [ended_s - sent_s for sent_s, ended_s in noted]
    assert_within(run.latency, since_due)
    assert_within(run.latency_sent, since_sent)
    assert max(since_due) > 0.9 * STALL_S
    assert sum(since_due) > sum(since_sent) + STALL_S
    # It was no fault of the generator.
    assert run.generator.lateness is not None
    assert run.generator.lateness.max < max((each.sent_s or 0) - each.intended_s for each in counted)

    # The service's own clock says the same of a request that stood still.
    errors = [abs(of_service(fleet, each, began_s) - latency(each)) for each in counted if latency(each) > 1]
    assert min(errors) < 0.05


def latency(request: Request) -> float:
    return (request.ended_s or 0) - request.intended_s


def of_service(fleet: Fleet, request: Request, began_s: float) -> float:
    """Return the time from when a request was due until its job was final, by the service's clock."""
    job = fleet.api.get(f"/v1/jobs/{request.job}").json()
    finished_s = datetime.fromisoformat(job["finished_at"]).timestamp() - (time.time() - time.monotonic())
    return finished_s - (began_s + request.number / RATE)


def assert_within(found: Spread | None, truth: list[float]) -> None:
    assert found is not None
    ordered = sorted(truth)
    assert found.mean == pytest.approx(sum(truth) / len(truth), rel=0.05)
    assert found.p95 == pytest.approx(percentile(ordered, 95), rel=0.05)
    assert found.max == pytest.approx(ordered[-1], rel=0.05)


def test_the_command_measures_and_writes_what_came_of_it(fleet: Fleet, tmp_path: Path) -> None:
    argv = ["bench", "--url", fleet.url, "--synthetic", "words=30", "--limit", "4", "--rate", "4", "--warmup", "0.5"]
    argv += ["--duration", "1.5", "--objective", "60s", "--assert", "errors==0"]
    files = {"--json": "report.json", "--requests-out": "requests.ndjson", "--csv": "rows.csv", "--markdown": "rows.md"}
    argv += [part for option, name in files.items() for part in (option, str(tmp_path / name))]
    done = CliRunner().invoke(make_cli(), argv)
    report = Report.model_validate_json((tmp_path / "report.json").read_bytes())
    # A busy machine may make the generator late; then the run says so.
    assert done.exit_code == (0 if report.valid else 3), done.output
    [point] = report.points
    run = point.runs[0]
    assert run.ok == run.requests > 0
    assert run.goodput is not None
    assert run.goodput.share == 1
    assert run.results is not None
    assert (run.results.checked, run.results.lost, run.results.twice) == (run.items, 0, 0)
    assert run.results.differ_from_idle == 0
    assert run.server is not None
    assert report.service.model.startswith("qa-minilm@")
    assert report.service.cores == sorted(fleet.states())
    assert report.machine.cores > 0
    lines = [json.loads(line) for line in (tmp_path / "requests.ndjson").read_text().splitlines()]
    assert sum(line["phase"] == "measured" for line in lines) == run.requests
    assert [each["holds"] for each in report.assertions] == [True]
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 2
    assert "4/s" in (tmp_path / "rows.md").read_text()


def test_two_services_are_measured_in_turn(fleet: Fleet, tmp_path: Path) -> None:
    """The same service twice: both reports are of one session, and whether they differ is said."""
    argv = ["bench", "ab", fleet.url, fleet.url, "--synthetic", "words=30", "--limit", "4", "--warmup", "0.5"]
    argv += ["--blocks", "3", "--slot", "2", "--tail", "0", "--json", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(make_cli(), argv)
    a, b = (Report.model_validate_json((tmp_path / "out" / f"{side}.json").read_bytes()) for side in "ab")
    assert done.exit_code == (0 if a.valid and b.valid else 3), done.output
    assert a.pairing is not None
    assert b.pairing is not None
    assert (a.pairing.session, a.pairing.side) == (b.pairing.session, "A")
    assert len(a.points[0].runs) == len(b.points[0].runs) == 6
    if done.exit_code == 0:
        assert json.loads(done.stdout)["paired"]


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("null")
    found = start_fleet(folder, folder, "--no-flower", CORELANE_TARGET="null")
    yield found
    stop_fleet(found)


@pytest.mark.parametrize(("task", "way"), [*zip(TASKS, cycle(("item", "job", "lines")))])
def test_a_model_of_any_task_is_measured(task: str, way: str, null: Fleet, tmp_path: Path) -> None:
    at, path = ("--url", null.url), tmp_path / "report.json"
    loaded = CliRunner().invoke(make_cli(), ["models", "load", f"{task}@0", *at])
    assert loaded.exit_code == 0, loaded.output
    options = ("--way", way, "--items-per-job", "3", "--requests", "4", "--concurrency", "1", "--warmup", "0")
    asked = ("--model", f"{task}@0", "--limit", "4", "--json", str(path))
    done = CliRunner().invoke(make_cli(), ["bench", *at, *options, *asked, "--processes", "1"])
    assert path.exists(), done.output
    report = Report.model_validate_json(path.read_bytes())
    check, items = report.points[0].runs[0].results, 4 if way == "item" else 12
    assert check is not None
    assert (check.checked, check.lost, check.twice, check.differ_from_idle) == (items, 0, 0, 0), done.output
    assert (report.workload.task, report.points[0].runs[0].failed) == (task, 0)
    assert report.workload.tokens > 0
