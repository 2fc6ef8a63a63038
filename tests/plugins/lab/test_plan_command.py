"""``corelane plan``, without a service: profiles, traces and what fits on hosts."""

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.errors import InvalidInput
from corelane.plugins.lab.cli.plan_service import seconds_of
from corelane.plugins.lab.planning.profile import Profile, ShapeTime
from corelane.plugins.lab.traces import read_trace


def run(*arguments: str) -> Result:
    return CliRunner().invoke(make_cli(), ["plan", *arguments])


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """Return the file of a profile: one row of 384 tokens takes 10 ms."""
    shapes = [ShapeTime(rows=4, length=384, base_s=0.002, row_s=0.008)]
    path = tmp_path / "core.json"
    path.write_text(Profile(version="v@1", shapes=shapes, cpus=2, device_bytes=10**8).model_dump_json(by_alias=True))
    return str(path)


@pytest.fixture
def quick(profile: str) -> list[str]:
    return ["--profile", profile, "--instance", "cpu", "--instance", "inf2.xlarge"]


def test_hosts_for_a_rate_are_told_and_written_down(quick: list[str], tmp_path: Path) -> None:
    done = run("--rate", "60", "--p95", "100", *quick, "--write", str(tmp_path / "compose.plan.yml"))
    assert done.exit_code == 0, done.output
    assert "inf2.xlarge" in done.stdout
    assert "guessed" in done.stdout
    assert "60 requests/s" in done.stdout
    override = (tmp_path / "compose.plan.yml").read_text()
    assert override.startswith("# 60 requests/s")
    assert "services:" in override


def test_a_plan_as_json_has_each_candidate(quick: list[str], tmp_path: Path) -> None:
    done = run("--rate", "60", "--p95", "100", *quick, "--json", "--write", str(tmp_path / "patch.yml"))
    plan = orjson.loads(done.stdout)
    assert [each["instance"] for each in plan["candidates"]] == ["inf2.xlarge", "cpu"]
    assert plan["candidates"][0]["per_hour"] == 0.7582
    assert plan["candidates"][1]["guess"] is None
    assert '"kind": "StatefulSet"' in (tmp_path / "patch.yml").read_text()


def test_a_trace_is_made_of_a_bench_run_and_planned_for(quick: list[str], tmp_path: Path) -> None:
    requests, trace = tmp_path / "requests.ndjson", tmp_path / "trace.ndjson"
    lines = [{"intended_s": 5 + n / 20, "items": 2, "tokens": 300, "outcome": "ok"} for n in range(60)]
    requests.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    assert run("record", str(trace), "--requests", str(requests)).exit_code == 0
    entries = read_trace(trace)
    assert (entries[0].at_s, entries[-1].at_s, entries[0].items, entries[0].tokens) == (0.0, 2.95, 2, 300)
    done = run("--trace", str(trace), "--p95", "200", *quick, "--json")
    assert orjson.loads(done.stdout)["items_per_s"] == pytest.approx(40, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rate", "5"], "give the objective: --p95 MS"),
        (["--p95", "100"], "give either --rate or --trace"),
        (["--rate", "5", "--p95", "4"], "no number of cores is done with 95% within 4 ms"),
        (["--rate", "5", "--p95", "100", "--instance", "none.large"], "none.large: no such type of host"),
    ],
)
def test_what_cannot_be_planned_is_refused(profile: str, arguments: list[str], sentence: str) -> None:
    done = run(
        *arguments,
        "--profile",
        profile,
        *([] if "none.large" in arguments else ["--instance", "cpu"]),
    )
    assert done.exit_code == 1
    assert sentence in done.stderr


def test_hosts_show_what_binds_the_workers() -> None:
    rooms = {room["instance"]: room for room in orjson.loads(run("hosts", "--model-mb", "100", "--json").stdout)}
    assert (rooms["inf1.xlarge"]["workers"], rooms["inf1.xlarge"]["bound_by"]) == (3, "vCPU")
    assert (rooms["inf2.48xlarge"]["host_gib"], rooms.get("cpu")) == (768, None)
    assert "inf1.24xlarge" in run("hosts", "--model-mb", "100").stdout


def test_times_are_read_with_their_units() -> None:
    assert [seconds_of(text) for text in ("90s", "10m", "1.5h")] == [90, 600, 5400]
    with pytest.raises(InvalidInput, match="no time such as 90s"):
        seconds_of("soon")
