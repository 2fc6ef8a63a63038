"""Planning from a running service: a trace of its jobs, and what its model weighs."""

from pathlib import Path

import orjson
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.plugins.lab.traces import read_trace
from tests.integration.conftest import Fleet


def test_a_trace_has_the_jobs_that_were_asked(fleet: Fleet, tmp_path: Path) -> None:
    items = [{"question": f"Who kept letter {number}?", "context": "Ada kept every letter."} for number in range(3)]
    with fleet.client() as client:
        job = client.submit(items, wait_s=30)
        client.wait(job.id)
    trace = tmp_path / "trace.ndjson"
    done = CliRunner().invoke(make_cli(), ["plan", "record", str(trace), "--last", "1h", "--url", fleet.url])
    assert done.exit_code == 0, done.output
    entries = read_trace(trace)
    assert entries[0].at_s == 0
    assert any(entry.items == 3 and entry.tokens for entry in entries)


def test_hosts_are_planned_by_what_a_worker_and_its_model_weigh(fleet: Fleet) -> None:
    done = CliRunner().invoke(make_cli(), ["plan", "hosts", "--json", "--url", fleet.url])
    rooms = {room["instance"]: room for room in orjson.loads(done.stdout)}
    assert rooms["inf1.2xlarge"]["workers"] == 4
    assert rooms["inf1.2xlarge"]["models_per_core"] > 10
