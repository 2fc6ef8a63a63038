import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.plugins.lab.cli.options import OfferedLoad
from corelane.plugins.lab.cli.output import Outputs, finish, hidden_arguments
from corelane.plugins.lab.load import ramp_load, stages_load, steady_load, trace_load
from corelane.plugins.lab.schema import Load, Report
from corelane.plugins.lab.traces import TraceEntry, write_trace
from tests.plugins.lab.answering import Answering, answering
from tests.plugins.lab.reports_for_tests import point_at, report_of


@pytest.fixture
def service() -> Iterator[Answering]:
    with answering() as found:
        yield found


def bench(service: Answering, *argv: str) -> Result:
    short = ("--synthetic", "words=20", "--limit", "4", "--warmup", "0", "--tail", "0", "--processes", "1")
    return CliRunner().invoke(make_cli(), ["bench", "--url", service.url, "--api-key", "clk_x", *short, *argv])


def test_a_load_that_the_generator_cannot_offer_is_invalid_and_its_exit_code_is_3(
    service: Answering, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    options = ("--requests", "600", "--check", "off", "--assert", "p95<1ms", "--json", str(path))
    done = bench(service, "--rate", "100000", *options)
    assert done.exit_code == 3, done.output
    report = Report.model_validate_json(path.read_bytes())
    assert not report.valid
    assert any("late" in reason for reason in report.invalid)
    assert "late" in done.output
    assert report.points[0].runs[0].requests == 600


def test_wrong_answers_under_load_are_told_by_exit_code_1(service: Answering, tmp_path: Path) -> None:
    """The idle service is asked four times; from then on it answers something else."""
    path = tmp_path / "report.json"
    service.turns_after, service.answer_later, service.delay_s = 4, "other", 0.02
    done = bench(service, "--concurrency", "1", "--requests", "6", "--json", str(path))
    assert done.exit_code == 1, done.output
    report = Report.model_validate_json(path.read_bytes())
    assert report.valid
    results = report.points[0].runs[0].results
    assert results is not None
    assert (results.checked, results.differ_from_idle) == (6, 6)
    assert report.service.version == "9.9"
    # What was asked for is in the report, the key is not.
    assert report.configuration["requests"] == 6
    assert report.configuration["check"] == "idle"
    assert "clk_x" not in path.read_text()


@pytest.mark.parametrize(("text", "code"), [("p95<60s", None), ("p95<1ms", 1), ("goodput<0.5", 1)])
def test_an_assertion_that_does_not_hold_is_told_by_exit_code_1(text: str, code: int | None) -> None:
    report = report_of([point_at(5.0)])
    assert code_of(report, Outputs(assertion=[text])) == code


def code_of(report: Report, outputs: Outputs) -> int | None:
    try:
        finish(report, outputs)
    except typer.Exit as end:
        return end.exit_code
    return None


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--rate", "3", "--ramp", "1..2"], "exclude each other"),
        (["--arrivals", "gamma"], "gamma:CV"),
        (["--arrivals", "poisson:2"], "gamma:CV"),
        (["--ramp", "5"], "5..50"),
        (["--sweep", "--rate", "3"], "exclude each other"),
        (["--assert", "p95"], "no assertion"),
        (["--objective", "fast"], "no objective"),
        (["--way", "batch", "--hearing", "sse"], "polling"),
        (["--way", "job", "--hearing", "webhook"], "CORELANE_WEBHOOK_SECRET"),
        (["--rate", "0"], "above 0"),
        (["--sender", "nothing:Here"], "no sender"),
        (["--sender", "corelane.plugins.lab.ways:Nobody"], "no sender"),
        (["--serve"], "leave --url out"),
        (["--url", "http://127.0.0.1:9"], "no Corelane answers"),
    ],
)
def test_options_that_cannot_be_are_refused(argv: list[str], complaint: str, service: Answering) -> None:
    done = bench(service, "--check", "off", *argv)
    assert done.exit_code == 1
    assert complaint in done.output


def test_loads_say_what_they_are(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", [TraceEntry(0.0), TraceEntry(1.0)])
    kinds = [
        steady_load(3, 0.0, 1),
        steady_load(3, 1.0, 1),
        steady_load(3, 2.0, 1),
        ramp_load("1..5", 10, 1.0, 1),
        stages_load("1@5s,3@5s", 0.0, 1),
        trace_load(tmp_path / "trace", 2.0),
        Load(kind="closed", concurrency=7, seed=1),
    ]
    assert [load.kind for load in kinds] == ["constant", "poisson", "gamma", "ramp", "stages", "trace", "closed"]
    assert [load.rate_per_s for load in kinds[:5]] == [3, 3, 3, 1, 2]
    assert all(Load.model_validate(json.loads(load.model_dump_json())) == load for load in kinds)


def test_a_run_lasts_half_a_minute_unless_something_else_says_how_long() -> None:
    assert OfferedLoad(rate=3.0).duration_s == 30
    assert OfferedLoad(rate=3.0, requests=9).duration_s is None
    assert OfferedLoad(stages="1@5s").duration_s is None
    assert OfferedLoad(stages="1@5s", duration=3.0).duration_s == 3
    assert OfferedLoad(concurrency=2).duration_s == 30
    assert OfferedLoad().load is None


def test_a_key_is_hidden_in_the_command_line() -> None:
    assert hidden_arguments(["bench", "--api-key", "clk_1", "--batch-api-key=clk_2", "--rate", "3"]) == [
        *("bench", "--api-key", "…", "--batch-api-key=…", "--rate", "3")
    ]
