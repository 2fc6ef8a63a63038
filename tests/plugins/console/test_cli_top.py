"""``corelane top``: on a pseudo-terminal, in a pipe, and what fits into few lines."""

import io
import signal
import sys
from contextlib import AbstractContextManager
from typing import Any

import orjson
import pytest
from pytest_httpserver import HTTPServer
from rich.console import Console
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.domain.conditions import HealthIssue
from corelane.domain.overview import (
    CoreOverview,
    CoreVersion,
    ModelOverview,
    Overview,
    WaitingInfo,
)
from corelane.plugins.console.top import render, title
from tests.corelane.stand_in import StandIn, problem
from tests.tools.terminal import Terminal, terminal

LEAVE_SCREEN, SHOW_CURSOR = "\x1b[?1049l", "\x1b[?25h"


@pytest.fixture
def service(httpserver: HTTPServer) -> StandIn:
    return StandIn(httpserver)


def overview(text: str, cores: int = 2, **more: Any) -> Overview:
    return Overview(
        at="2026-11-22T08:00:00.000Z",
        waiting=WaitingInfo(text=text),
        cores=[CoreOverview(name=f"host/{n}", state="busy", busy=0.5, items=n) for n in range(cores)],
        **more,
    )


def set_text(service: StandIn, text: str) -> None:
    service.overview = overview(text).model_dump(mode="json")


def on_terminal(service: StandIn) -> AbstractContextManager[Terminal]:
    top = [sys.executable, "-m", "corelane", "top", "--url", service.url, "--interval", "0.2"]
    return terminal(top, 100)


def test_terminal_follows_the_service_and_is_as_before_after_ctrl_c(service: StandIn) -> None:
    set_text(service, "7 waiting, clear in 3 s")
    with on_terminal(service) as shown:
        shown.until("7 waiting, clear in 3 s.*host/1")
        set_text(service, "5 waiting, clear in 2 s")
        shown.until("5 waiting")
        shown.resize(24, 30)
        shown.until("5 waiting, clear in 2 s[^\n]*…")
        shown.type("\x03")
        assert shown.end() == 0
        assert LEAVE_SCREEN in shown.seen
        assert SHOW_CURSOR in shown.seen
        assert "Traceback" not in shown.seen


def test_lost_connection_is_shown_with_the_last_state_until_the_service_is_back(service: StandIn) -> None:
    set_text(service, "7 waiting")
    with on_terminal(service) as shown:
        shown.until("7 waiting")
        service.is_away = True
        lost = shown.until("no reply for [1-9][0-9]* s: .*host/1")
        assert "7 waiting" in lost
        set_text(service, "6 waiting")
        service.is_away = False
        assert "no reply" not in shown.until("6 waiting[^✗]*host/1")
        shown.type("\x03")
        assert shown.end() == 0


def test_terminal_is_as_before_after_sigterm(service: StandIn) -> None:
    set_text(service, "7 waiting")
    with on_terminal(service) as shown:
        shown.until("7 waiting")
        shown.process.send_signal(signal.SIGTERM)
        assert shown.end() == 143
        assert LEAVE_SCREEN in shown.seen


def test_refusal_ends_it_with_the_sentence(service: StandIn) -> None:
    service.refusals.append(problem(403, "forbidden", "this key lacks the scope read"))
    with on_terminal(service) as shown:
        assert shown.end() == 1
        after = shown.seen.rpartition(LEAVE_SCREEN)[2]
        assert "this key lacks the scope read" in after
        assert "Traceback" not in after


def run(service: StandIn, *arguments: str) -> str:
    done = CliRunner().invoke(make_cli(), ["top", "--url", service.url, *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_in_a_pipe_it_is_printed_once(service: StandIn) -> None:
    service.overview = overview("7 waiting").model_dump(mode="json")
    shown = run(service)
    assert "7 waiting" in shown
    assert "\x1b" not in shown
    assert orjson.loads(run(service, "--json")) == service.overview


def test_service_that_does_not_answer_once_is_a_failure(service: StandIn) -> None:
    service.is_away = True
    done = CliRunner().invoke(make_cli(), ["top", "--url", service.url])
    assert (done.exit_code, done.stdout) == (1, "")


def lines(found: Overview, height: int, width: int = 100) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO(), markup=False)
    console.print(render(found, title("http://x"), width, height))
    return console.export_text().splitlines()


MODELS = [ModelOverview(version=f"m@{n}", core_share=n / 100, error_rate=0.5) for n in range(20)]
ISSUES = [HealthIssue(part=f"part{n}", text="is down") for n in range(30)]


@pytest.mark.parametrize("height", [16, 24, 50, 200])
@pytest.mark.parametrize("cores", [0, 1, 64])
def test_few_lines_show_a_part_of_each(height: int, cores: int) -> None:
    found = overview("7 waiting", cores, troubles=ISSUES, models=MODELS)
    if cores:
        found.cores[-1].state = "out_of_service"
    shown = lines(found, height)
    assert len(shown) <= height
    assert "7 waiting" in shown[1]
    if cores:
        assert any("out_of_service" in line for line in shown)


def test_64_cores_and_20_models_fit_a_terminal_of_60_lines() -> None:
    found = overview("7 waiting", 64, models=MODELS)
    shown = lines(found, 60, 120)
    assert "64 cores: 64 busy" in shown
    assert all(any(f"host/{n} ██" in line for line in shown) for n in range(64))
    assert all(any(line.startswith(model.version) for line in shown) for model in MODELS)
    assert not any("more" in line for line in shown)


def test_calm_service_fits_whole() -> None:
    model = ModelOverview(version="qa@1", items_per_s=12.5, compute_p95_s=0.0101, core_share=0.031)
    shown = lines(overview("nothing waits", models=[model]), 24)
    assert len(shown) <= 24
    assert not any("…" in line for line in shown)
    assert shown[-1].split() == ["qa@1", "0", "0.0", "12.5", "10.1", "ms", "3.1%"]


def test_text_of_the_service_is_no_markup_and_cannot_control_the_terminal() -> None:
    issue = HealthIssue("[red]x", text="a\x1b[2Jb [/b]\nc")
    shown = "\n".join(lines(overview("[bold]7", troubles=[issue]), 24))
    assert "[bold]7" in shown
    assert "[red]x: a [2Jb [/b] c" in shown


def test_cores_show_what_their_device_tells_where_there_is_room() -> None:
    found = overview("7 waiting", cores=1)
    found.cores[0].device = {"utilization": 0.89, "host_vcpu": 0.42, "runtime_vcpu": 0.07, "errors": 3}
    wide, narrow = lines(found, 24, 200), lines(found, 24, 70)
    [head], [row] = ([line for line in wide if word in line] for word in ("runtime", "host/0"))
    assert head.split()[:6] == ["core", "state", "busy", "device", "host", "runtime"]
    assert row.split()[3:8] == ["50%", "89%", "3", "errors", "42%", "7.0%"][:5]
    assert not [line for line in narrow if "runtime" in line]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_names_and_states_are_whole_on_a_narrow_terminal(width: int) -> None:
    held = [CoreVersion(version=f"{name}@a83fe913872f", state="ready") for name in ("qa-minilm", "qa-mini-2")]
    found = overview("7 waiting", models=[ModelOverview(version=held[0].version, core_share=0.5, compute_p95_s=99.5)])
    for core in found.cores:
        core.versions = held
    found.cores[1].state, found.cores[1].reasons = "out_of_service", ["status 1202: " + "broken " * 20]
    shown = lines(found, 24, width)
    assert all(len(line) <= width for line in shown)
    cores = [line for line in shown if line.startswith("host/")]
    assert cores[0].split()[:2] == ["host/1", "out_of_service"]
    assert cores[1].split()[:2] == ["host/0", "busy"]
    assert "status" in cores[0]
    assert {"core", "state", "busy", "models"} <= set(shown[shown.index(cores[0]) - 1].split())
    assert any(line.startswith(held[0].version + " ") for line in shown)
