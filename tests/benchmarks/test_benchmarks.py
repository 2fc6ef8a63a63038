"""Every benchmark runs. Quick runs, on one service of a tiny model that those share which need one."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import orjson
import pytest
from typer.testing import CliRunner

from benchmarks.harness import QUICK, ROOT, Serving, lend, serving
from benchmarks.promises import BOUNDS
from corelane.artifacts.manifest import Artifact
from corelane.cli.app import make_cli
from corelane.plugins.lab.cli.output import INVALID, NOT_HELD

FOLDER = ROOT / "benchmarks"

#: The files that can be run; the rest is what they share.
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text())


@pytest.fixture(scope="module")
def service(tiny_artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Lend a service of one core and the tiny model with narrow bounds."""
    data = tmp_path_factory.mktemp("benchmarks")
    root = next(parent for parent in tiny_artifact.path.parents if parent.name == "artifacts")
    shutil.copytree(root, data / "artifacts")
    model = tiny_artifact.manifest.name
    with (
        mock.patch.dict(os.environ, {"CORELANE_CORES": "1"}),
        serving(data, model=model, cores=1, **BOUNDS) as running,
        lend(running),
    ):
        yield running


def load(path: Path) -> ModuleType:
    """Load a benchmark's module as a run of it does."""
    spec = importlib.util.spec_from_file_location(f"benchmarks.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # scripts leave sockets to their end
def test_benchmark_runs(path: Path, service: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), QUICK])
    assert not load(path).main()


def bench(*arguments: str) -> dict[str, Any]:
    """Run `corelane bench`; return its report. A busy machine may make it invalid, or answers of a tiny model wrong."""
    done = CliRunner().invoke(make_cli(), ["bench", *arguments, "--json", "-"])
    assert done.exit_code in (0, NOT_HELD, INVALID), done.output
    report: dict[str, Any] = orjson.loads(done.stdout)
    return report


@pytest.mark.timeout(300)
def test_preset_runs_on_a_service(service: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.plugins.lab.split.FLUSHED_S", 0.01)
    report = bench("preset", "latency-100", "--quick", "--url", service.url)
    [point] = report["points"]
    assert point["runs"][0]["ok"] == 6
    assert point["runs"][0]["server"] is not None
    assert "| published: " in report["extra"]["table"]


@pytest.mark.timeout(300)
def test_batch_beside_questions_is_reported(service: Serving, tmp_path: Path) -> None:
    lines = [
        orjson.dumps({"question": f"Who is number {number}?", "context": f"Number {number} is Ada."})
        for number in range(20)
    ]
    (tmp_path / "questions.jsonl").write_bytes(b"\n".join(lines))
    times = ("--before", "0.5", "--after", "0.5", "--warmup", "0.1")
    options = ("--way", "batch", "--items", "150", "--rate", "20", "--batch-api-key", "another", "--url", service.url)
    found = bench("beside", str(tmp_path / "questions.jsonl"), *options, *times)["beside"]
    assert (found["items"], found["owner"], found["way"]) == (150, "foreign", "batch")
    assert found["progress"][-1][1] == 150
    assert 0 < found["first_result_s"] <= found["makespan_s"]
    assert all(found[part]["count"] for part in ("before", "during", "after"))
    assert (found["batch_answers"]["checked"], found["batch_answers"]["lost"]) == (150, 0)
    assert found["answers"]["lost"] == found["answers"]["twice"] == 0


def test_every_benchmark_is_listed() -> None:
    listed = (FOLDER / "README.md").read_text()
    assert [
        path.name for path in FOLDER.glob("*.py") if path.stem != "__init__" and f"`{path.name}`" not in listed
    ] == []
