"""The client alone, as `make client` builds it and real pip installs it, without anything of the service beside it."""

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from corelane import __version__
from tests.tools.fleet import WEBHOOK_SECRET, Fleet
from tests.tools.receivers import receiver
from tests.tools.snippets import ROOT, blocks_of
from tests.tools.waiting import eventually

NAME = f"corelane_client-{__version__}"

#: Imports every module of the installed package, and says what of the service can be imported too.
IMPORTS = """
import pkgutil, sys
from importlib import import_module, util
import corelane
from corelane import Handler
from corelane.errors.extras import install_command

modules = [each.name for each in pkgutil.walk_packages(corelane.__path__, "corelane.")]
for name in modules:
    import_module(name)
served = ["torch", "numpy", "fastapi", "celery", "redis", "api", "corelane.cli", "corelane.settings", "corelane.store"]
print(len(modules) > 80, [name for name in served if util.find_spec(name)])
print(install_command("tables"))
"""

#: The methods that are several requests, and what a refusal and a service that is away become.
CALLS = """
import sys
from corelane.client import Client
from corelane.errors import ServiceError, ServiceUnreachable

url, here = sys.argv[1:]
with Client(url) as client:
    one = {"question": "Who wrote it?", "context": "Ada wrote it in 1843."}
    print([each.answer.text for each in client.predict("default", [one, one])], len(client.cores()) > 0)
    job = client.submit([one] * 3, name="of-the-client-package", wait_s=20)
    print(client.submit([one] * 3, name="of-the-client-package").id == job.id, client.wait(job.id).counts.succeeded)
    print([event.type for event in client.iter_events(job.id)][-1], len(list(client.iter_results(job.id))))
    batch = client.batch(here + "/examples/batch.jsonl")
    client.download_file(batch.output_file_id, "answers.jsonl")
    print(batch.status, len(open("answers.jsonl").readlines()) == batch.request_counts.completed)
    try:
        client.ask("Who?", "Ada.", model="defalt")
    except ServiceError as error:
        print(error.status, error.problem_code)
try:
    Client("http://127.0.0.1:9", patience_s=0).overview()
except ServiceUnreachable as error:
    print(error)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Return what a command prints. Nothing in its environment leads it to this checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAKE"))}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, programs = tmp_path_factory.mktemp("dist"), Path(sys.executable).parent
    probe = f"{sys.executable} -m pip download --quiet --no-deps --dest {folder / 'probe'} setuptools".split()
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("pip reaches no package index")
    run("make", "--old-file=.venv/.installed", "client", f"DIST={folder}", f"BIN={programs}")
    assert {path.name for path in folder.glob("core*")} == {f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz"}
    return folder


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has the wheel alone, with the versions that the service is tested by."""
    folder = tmp_path_factory.mktemp("client")
    run(sys.executable, "-m", "venv", folder)
    pinned, wheel = ROOT / "constraints" / "cpu.txt", dist / f"{NAME}-py3-none-any.whl"
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", pinned, wheel)
    return folder / "bin" / "python"


def test_wheel_and_sdist_say_what_they_are_and_hold_the_same_modules(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"{NAME}-py3-none-any.whl") as wheel, tarfile.open(dist / f"{NAME}.tar.gz") as sdist:
        found = Metadata.from_email(wheel.read(f"{NAME}.dist-info/METADATA"))
        packed = {name for name in wheel.namelist() if name.startswith("corelane/")}
        there = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
        licence = wheel.read(f"{NAME}.dist-info/licenses/LICENSE")
    assert packed == {name for name in there if name.startswith("corelane/") and "." in name}
    assert {"corelane/py.typed", "corelane/client/aio.py"} <= packed
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert (found.name, str(found.version)) == ("corelane-client", __version__)
    assert found.description == (ROOT / "deploy/client/README.md").read_text()
    # What the client needs, the service needs in the same versions.
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {str(each).partition(";")[0] for each in found.requires_dist or ()}
    assert needed <= {*ours["dependencies"], *ours["optional-dependencies"]["tables"]}
    assert str(found.requires_python) == ours["requires-python"]


def test_all_of_the_wheel_is_imported_where_no_service_is(python: Path, tmp_path: Path) -> None:
    whole, missing = run(python, "-c", IMPORTS, cwd=tmp_path).splitlines()
    assert whole == "True []"
    assert missing.endswith("-m pip install 'numpy>=2' 'pyarrow>=26'")


def test_the_main_calls_reach_a_real_service(fleet: Fleet, python: Path, tmp_path: Path) -> None:
    *told, away = run(python, "-c", CALLS, fleet.url, str(ROOT), cwd=tmp_path).splitlines()
    assert told == [
        "['Ada', 'Ada'] True",
        "True 3",
        "job.completed 3",
        "completed True",
        "422 unknown_model",
    ]
    assert "127.0.0.1:9" in away


def test_examples_of_the_documents_and_of_its_own_readme_run(fleet: Fleet, python: Path, tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text((ROOT / "examples/questions.jsonl").read_text())
    with receiver() as hook:
        fleet.api.post("/v1/jobs", json={"question": "Who?", "context": "Ada did.", "webhook": {"url": hook.url}})
        eventually(lambda: len(hook.posts) > 0)
    post = hook.posts[0]
    given = f"body, headers, secret = {post.body!r}, {post.headers!r}, {WEBHOOK_SECRET!r}\n"
    pages = [ROOT / "docs/clients.md", ROOT / "deploy/client/README.md"]
    blocks = [each for page in pages for each in blocks_of(page) if (each.language, each.elsewhere) == ("python", "")]
    assert len(blocks) == 5
    codes = [given + each.text.replace("http://127.0.0.1:8000", fleet.url) for each in blocks]
    told = [run(python, "-c", code, cwd=tmp_path) for code in codes]
    assert ["Ada 0 3" in told[0], "1843" in told[1], *told[2:]] == [True, True, "Ada 0 3\n", "", ""]
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [each["status"] for each in answers] == ["succeeded"] * 30
