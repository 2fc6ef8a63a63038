"""Each plugin taken off the list: the service answers, and the command line and the API say nothing of it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest

from corelane.plugin import GROUP, all_plugins
from corelane.tasks.question_answering.wire import Question
from tests.tools.fleet import start_fleet
from tests.tools.redis import admin_url, client_of

#: The plugins that come with Corelane, those in the folder of a task too.
NAMES = [plugin.name for plugin in all_plugins() if type(plugin).__module__.startswith("corelane.")]

#: A service in one process: the API, the loops of its keeper and its sender, and a core.
SERVE = """
import json, typer
from fastapi.testclient import TestClient
from api.app import create_app
from corelane.broker.app import bell_envelope, make_celery
from corelane.cli.app import make_cli
from corelane.domain.dispatch import Core
from corelane.engine.backends.plugin import added_formats, all_targets
from corelane.log import configure_logging
from corelane.plugin import installed
from workers.plugin import WorkerPlugin
from corelane.settings import Settings
from workers.core.drain import drain
from workers.core.process import CoreProcess
from workers.roles import loops_by_queue

groups = typer.main.get_command(make_cli()).commands
settings = Settings()
configure_logging(settings.log_level, "json")
app, celery = create_app(settings), make_celery(settings)
observers = [plugin.observers for plugin in installed(WorkerPlugin)]
core = CoreProcess(settings, Core("test", 0), bell_envelope(celery), observers=observers)
core.start(lambda: False)
loops = [loop for make, _ in loops_by_queue(celery, settings).values() for loop in make()]
for loop in loops:
    loop.start()
while not core.versions:
    drain(core, lambda: False)
with TestClient(app) as api:
    job = api.post("/v1/jobs", json={"question": "Who wrote it?", "context": "Ada wrote it."}).json()
    while job["finished_at"] is None:
        drain(core, lambda: False)
        job = api.get(job["urls"]["self"]).json()
    assert job["status"] == "succeeded", job
    assert api.get("/metrics").is_success
for loop in loops:
    loop.ask_to_stop()
for loop in loops:
    loop.join(60)
core.close()
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


def without(folder: Path, *names: str) -> str:
    """Write metadata of Corelane that does not list these plugins; return the PYTHONPATH under which it goes first."""
    own = distribution("corelane")
    listed = folder / "listed"
    info = listed / f"corelane-{own.version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: corelane\nVersion: {own.version}\n")
    kept = [each for each in own.entry_points if each.group == GROUP and each.name not in names]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{each.name} = {each.value}\n" for each in kept))
    return os.pathsep.join((str(listed), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep)


def serve(redis_url: str, data: Path, path: str | None = None) -> Shown:
    """Run a service on an empty Redis, in a process that finds plugins by ``path``; return what it shows."""
    with client_of(admin_url(redis_url)) as client:
        client.flushall()
    given = {"REDIS_URL": redis_url, "DATA_DIR": str(data), "TARGET": "null", "LINGER_S": "0"}
    env = dict(os.environ) | {f"CORELANE_{name}": value for name, value in given.items()}
    env |= {"PYTHONPATH": path} if path else {}
    run = subprocess.run([sys.executable, "-c", SERVE], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert '"level":"error"' not in run.stdout + run.stderr
    return Shown(**{name: frozenset(those) for name, those in json.loads(run.stdout.splitlines()[-1]).items()})


@pytest.fixture(scope="module")
def whole(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return serve(redis_url, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("name", NAMES)
def test_service_answers_without_a_plugin(name: str, whole: Shown, redis_url: str, tmp_path: Path) -> None:
    rest = serve(redis_url, tmp_path, without(tmp_path, name))
    assert whole.less(rest), "it gave nothing that anyone sees"
    assert rest.less(whole) == {}


def test_fleet_answers_without_any_plugin(tmp_path: Path) -> None:
    env = {"CORELANE_TARGET": "null", "PYTHONPATH": without(tmp_path, *NAMES)}
    fleet = start_fleet(tmp_path, tmp_path, "--cores", "1", "--no-flower", **env)
    try:
        with fleet.client() as client:
            job = client.submit([Question(question="Who wrote it?", context="Ada wrote it.")])
            assert client.wait(job.id).status == "succeeded"
        assert fleet.api.get("/metrics").is_success
        assert fleet.api.get("/openapi.json").is_success
    finally:
        assert fleet.stop() == 0
    assert "error" not in {
        json.loads(line).get("level") for line in fleet.log.read_text().splitlines() if line[:1] == "{"
    }
