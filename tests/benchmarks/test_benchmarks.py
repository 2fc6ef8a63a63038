"""Every benchmark runs. Quick runs, on one service of a tiny model that those share which need one."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

from benchmarks.harness import QUICK, ROOT, Serving, lend, serving
from corelane.artifacts.manifest import Artifact

FOLDER = ROOT / "benchmarks"

#: The files that can be run; the rest is what they share.
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text())


@pytest.fixture(scope="module")
def service(tiny_artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Lend a service of one core and the tiny model."""
    data = tmp_path_factory.mktemp("benchmarks")
    root = next(parent for parent in tiny_artifact.path.parents if parent.name == "artifacts")
    shutil.copytree(root, data / "artifacts")
    model = tiny_artifact.manifest.name
    with (
        mock.patch.dict(os.environ, {"CORELANE_CORES": "1"}),
        serving(data, model=model, cores=1) as running,
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


def test_every_benchmark_is_listed() -> None:
    listed = (FOLDER / "README.md").read_text()
    assert [
        path.name for path in FOLDER.glob("*.py") if path.stem != "__init__" and f"`{path.name}`" not in listed
    ] == []
