"""Without the plugin: what needs it is refused, and the refusal says what there is or what to install."""

import os
import subprocess
import sys
from pathlib import Path

from corelane.artifacts.manifest import Artifact
from tests.plugins.test_taken_off import without

LOAD = """
import sys
from pathlib import Path
from corelane.artifacts.manifest import read_artifact
from corelane.engine.runner import open_backend
from corelane.engine.cores import core_slots
from corelane.errors import ArtifactRefused, SetupError
from corelane.settings import Settings
try:
    open_backend("cpu").load(read_artifact(Path(sys.argv[1])))
except ArtifactRefused as error:
    print(error.detail)
for ask in (lambda: core_slots(Settings(target="cuda")), lambda: open_backend("cuda")):
    try:
        ask()
    except SetupError as error:
        print(error.detail)
"""


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) | {"PYTHONPATH": without(folder, "backends"), "COLUMNS": "200"}
    return subprocess.run([sys.executable, *argv], env=env, capture_output=True, text=True, check=False)


def test_artifacts_and_cores_of_the_plugin_are_refused(tiny_openvino: Artifact, tmp_path: Path) -> None:
    done = run(tmp_path, "-c", LOAD, str(tiny_openvino.path))
    assert done.returncode == 0, done.stderr
    artifact, cores, backend = done.stdout.splitlines()
    assert "is of format openvino, which no installed plugin reads" in artifact
    assert "[openvino]" in artifact
    for refusal in (cores, backend):
        assert refusal.endswith(": cpu")


def test_command_says_which_targets_and_formats_there_are(tmp_path: Path) -> None:
    for option, value, known in (
        ("--target", "cuda", "'cpu'."),
        ("--format", "openvino", "'auto', 'torchscript'."),
    ):
        (folder := tmp_path / value).mkdir()
        done = run(folder, "-m", "corelane", "compile", "qa-minilm", option, value)
        assert (done.returncode, f"'{value}' is not one of {known}" in done.stderr) == (2, True), done.stderr
