"""Each plugin taken off the list: the service answers, and the command line and the API say nothing of it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest

from corelane.domain.jobs import Item
from corelane.plugin import GROUP, installed
from tests.integration.conftest import start_fleet, stop_fleet

NAMES = [plugin.name for plugin in installed() if type(plugin).__module__.startswith("corelane.plugins.")]

SHOW = """
import json, typer
from api.app import create_app
from corelane.cli.app import make_cli
from corelane.engine.backends.added import added_formats, all_targets
from corelane.settings import Settings
groups = typer.main.get_command(make_cli()).commands
app = create_app()
print(json.dumps({
    "commands": sorted(groups),
    "paths": sorted({route.path for route in app.routes if hasattr(route, "path")}),
    "documented": sorted(app.openapi()["paths"]),
    "settings": sorted(Settings.model_fields),
    "backends": sorted([*all_targets(), *added_formats()]),
}))
"""


@dataclass(frozen=True)
class Shown:
    """What a process shows of Corelane."""

    commands: frozenset[str]
    paths: frozenset[str]
    documented: frozenset[str]
    settings: frozenset[str]
    backends: frozenset[str]

    def less(self, other: "Shown") -> dict[str, list[str]]:
        """Return what this shows and another does not, where there is any."""
        found = {name: sorted(getattr(self, name) - getattr(other, name)) for name in self.__dataclass_fields__}
        return {name: those for name, those in found.items() if those}


def without(name: str, folder: Path) -> str:
    """Write metadata of Corelane that does not list a plugin; return the PYTHONPATH under which it goes first."""
    own = distribution("corelane")
    info = folder / f"corelane-{own.version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: corelane\nVersion: {own.version}\n")
    kept = [each for each in own.entry_points if each.group == GROUP and each.name != name]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{each.name} = {each.value}\n" for each in kept))
    return os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)


def show(path: str | None = None) -> Shown:
    env = dict(os.environ) | ({"PYTHONPATH": path} if path else {})
    run = subprocess.run([sys.executable, "-c", SHOW], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return Shown(**{name: frozenset(those) for name, those in json.loads(run.stdout.splitlines()[-1]).items()})


@pytest.fixture(scope="module")
def whole() -> Shown:
    return show()


@pytest.mark.parametrize("name", NAMES)
def test_service_answers_without_a_plugin(name: str, whole: Shown, tmp_path: Path) -> None:
    (folder := tmp_path / "listed").mkdir()
    path = without(name, folder)
    rest = show(path)
    assert whole.less(rest), "it gave nothing that anyone sees"
    assert rest.less(whole) == {}
    fleet = start_fleet(tmp_path, tmp_path, "--cores", "1", "--no-flower", CORELANE_TARGET="null", PYTHONPATH=path)
    try:
        with fleet.client() as client:
            job = client.submit([Item(question="Who wrote it?", context="Ada wrote it.")])
            assert client.wait(job.id).status == "succeeded"
        assert fleet.api.get("/metrics").is_success
        assert fleet.api.get("/openapi.json").is_success
    finally:
        assert stop_fleet(fleet) == 0
    assert "error" not in {
        json.loads(line).get("level") for line in fleet.log.read_text().splitlines() if line[:1] == "{"
    }
