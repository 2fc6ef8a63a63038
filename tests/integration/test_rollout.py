"""Versions come, go and are moved to while work goes on: real processes, real artifacts, nothing fails meanwhile."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, digest_file
from corelane.cli.app import make_cli
from corelane.domain.jobs import Job
from corelane.errors import ServiceError
from tests.conftest import copy_artifact
from tests.tools.artifacts import compile_model, keep_tiny_artifact, save_tiny_model
from tests.tools.fleet import Fleet, start_fleet
from tests.tools.waiting import eventually

BUCKETS = "4x32,2x64"


def make_version(data: Path, folder: Path, seed: int) -> Artifact:
    """One more version of the same small model."""
    return compile_model(str(save_tiny_model(folder / str(seed) / "tiny-qa", seed)), data, BUCKETS)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return copy_artifact(keep_tiny_artifact("torchscript"), tmp_path_factory.mktemp("rollout"))


@pytest.fixture(scope="module")
def root(first: Artifact) -> Path:
    """Return the artifact root of the fleet."""
    return first.path.parent.parent.parent


@pytest.fixture(scope="module")
def rolling(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a fleet that serves the first version; later versions are compiled while it runs."""
    fleet = start_fleet(tmp_path_factory.mktemp("rolling"), root, "--no-flower", CORELANE_MODEL="tiny-qa")
    yield fleet
    fleet.end()


@pytest.fixture(scope="module")
def second(rolling: Fleet, root: Path) -> Artifact:
    return make_version(root.parent, root.parent / "models", 8)


@pytest.fixture(scope="module")
def corrupt(second: Artifact) -> str:
    """Make a third version with a file that was cut off after it was compiled."""
    third = copy_version(second, "0123456789ab")
    file = third / second.manifest.buckets[0].file
    file.write_bytes(file.read_bytes()[:1000])
    return "tiny-qa@0123456789ab"


@pytest.fixture(scope="module")
def heavy(second: Artifact) -> str:
    """Make a version that says it weighs far more than it gives back."""
    buckets = [bucket.model_dump() | {"bytes": 10**9} for bucket in second.manifest.buckets]
    copy_version(second, "cafecafecafe", buckets=buckets)
    return "tiny-qa@cafecafecafe"


def copy_version(artifact: Artifact, version: str, **changes: object) -> Path:
    """Copy an artifact under another version, which is not the newest."""
    folder = artifact.path.parent.parent / version / "cpu"
    shutil.copytree(artifact.path, folder)
    manifest = artifact.manifest.model_dump() | {"version": version, "created_at": "2020-01-01T00:00:00Z", **changes}
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    return folder


def states(fleet: Fleet, version: str) -> list[str]:
    """How far each core is with a version."""
    return [
        model["state"]
        for core in fleet.states().values()
        for model in core.get("models", [])
        if model["version"] == version
    ]


def wait_ready(fleet: Fleet, version: str) -> None:
    eventually(lambda: states(fleet, version) == ["ready"] * fleet.cores)


@contextmanager
def constant_load(fleet: Fleet) -> Iterator[list[Job]]:
    """Ask `default` one question after the other from four callers; each job as it ended."""
    jobs: list[Job] = []
    stop = threading.Event()

    def ask() -> None:
        with fleet.client() as client:
            while not stop.wait(0.05):
                jobs.append(client.submit([{"question": "who wrote", "context": "ada wrote it . " * 8}], wait_s=60))

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        yield jobs
    finally:
        stop.set()
        for caller in callers:
            caller.join()


def test_version_is_replaced_under_load_and_nothing_fails(rolling: Fleet, first: Artifact, second: Artifact) -> None:
    old, new = first.manifest.version_id, second.manifest.version_id
    assert states(rolling, old) == ["ready"] * rolling.cores
    with rolling.client() as client, constant_load(rolling) as jobs:
        with pytest.raises(ServiceError, match="no version"):
            client.set_alias("default", new)
        client.load_model(new)
        wait_ready(rolling, new)
        assert eventually(lambda: {job.model for job in jobs}) == {old}
        for alias in ("default", "tiny-qa"):
            client.set_alias(alias, new)
        moved = len(jobs)
        client.unload_model(old)
        eventually(lambda: states(rolling, old) == [])
        eventually(lambda: len(jobs) > moved + 20)
    assert [job.counts.succeeded for job in jobs] == [1] * len(jobs)
    assert {job.model for job in jobs[moved + 4 :]} == {new}
    assert [model["id"] for model in rolling.api.get("/v1/models").json()["data"]] == [new]


def test_corrupt_version_changes_nothing_but_its_own_status(rolling: Fleet, second: Artifact, corrupt: str) -> None:
    good = second.manifest.version_id
    with rolling.client() as client, constant_load(rolling) as jobs:
        client.load_model(corrupt)
        eventually(lambda: states(rolling, corrupt) == ["failed"] * rolling.cores)
        [reason] = {model["reason"] for core in client.cores() for model in core["models"] if model["reason"]}
        assert "is damaged: its digest is not the manifest's" in reason
        with pytest.raises(ServiceError, match="no version"):
            client.set_alias("default", corrupt)
        served = len(jobs)
        eventually(lambda: len(jobs) > served + 20)
        assert {core["state"] for core in client.cores()} <= {"idle", "busy"}
        client.unload_model(corrupt)
        eventually(lambda: states(rolling, corrupt) == [])
    assert {job.model for job in jobs} == {good}
    assert [job.counts.succeeded for job in jobs] == [1] * len(jobs)


def test_process_that_keeps_an_unloaded_models_memory_is_replaced_and_nothing_fails(
    rolling: Fleet, second: Artifact, heavy: str
) -> None:
    before = {name: core["pid"] for name, core in rolling.states().items()}
    with rolling.client() as client, constant_load(rolling) as jobs:
        client.load_model(heavy)
        wait_ready(rolling, heavy)
        client.unload_model(heavy)
        eventually(lambda: all(core["pid"] != before[name] for name, core in rolling.states().items()))
        wait_ready(rolling, second.manifest.version_id)
        served = len(jobs)
        eventually(lambda: len(jobs) > served + 20)
    assert [job.counts.succeeded for job in jobs] == [1] * len(jobs)
    assert b"WorkerLostError" not in rolling.log.read_bytes()


def test_split_alias_keeps_to_its_weights_and_keys_to_their_version(
    rolling: Fleet, first: Artifact, second: Artifact
) -> None:
    old, new = first.manifest.version_id, second.manifest.version_id
    item = {"question": "who", "context": "ada"}
    with rolling.client() as client:
        client.load_model(old)
        wait_ready(rolling, old)
        client.set_alias("canary", {new: 75, old: 25})
        got = [[client.submit([item], model="canary", sticky_key=f"k{n}").model for n in range(100)] for _ in range(2)]
        assert got[0] == got[1]
        assert 10 <= got[0].count(old) <= 40
        assert len({client.submit([item], model="canary").model for _ in range(40)}) == 2
        with pytest.raises(ServiceError, match="'canary'") as refused:
            client.unload_model(old)
        assert (refused.value.status, refused.value.problem_code) == (409, "version_in_use")
        client.unset_alias("canary")
        with pytest.raises(ServiceError, match="no model"):
            client.submit([item], model="canary")


def test_killed_worker_comes_back_with_what_is_wanted_of_it(rolling: Fleet, second: Artifact) -> None:
    new = second.manifest.version_id
    before = rolling.states()["testhost/0"]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: rolling.states()["testhost/0"]["pid"] != before["pid"])
    wait_ready(rolling, new)
    eventually(lambda: sorted(rolling.states()["testhost/0"]["versions"]) == sorted(before["versions"]))
    models = {model["id"]: model for model in rolling.api.get("/v1/models").json()["data"]}
    assert set(models[new]["aliases"]) == {"default", "tiny-qa"}


def test_version_is_held_by_the_core_where_it_is_wanted(rolling: Fleet, first: Artifact) -> None:
    old = first.manifest.version_id
    item = {"question": "who is held", "context": "ada is"}
    with rolling.client() as client:
        client.unload_model(old)
        eventually(lambda: states(rolling, old) == [])
        client.load_model(old, "testhost/0")
        eventually(lambda: states(rolling, old) == ["ready"])
        job = client.submit([item], model=old, wait_s=60)
        assert (job.status, job.model) == ("succeeded", old)
        with pytest.raises(ServiceError, match="the only core"):
            client.unload_model(old, "testhost/0")
        with pytest.raises(ServiceError, match="no core 'testhost/9'"):
            client.load_model(old, "testhost/9")


def recompile(artifact: Artifact, **changes: object) -> str:
    """Write the artifact as if it were compiled again in place, with other figures; return its manifest's digest."""
    path = artifact.path / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return digest_file(path)


def test_version_compiled_again_in_place_is_loaded_anew_under_load_and_nothing_fails(
    rolling: Fleet, second: Artifact
) -> None:
    version = second.manifest.version_id

    def digests() -> list[tuple[str, str]]:
        return [
            (model["state"], model["manifest_sha256"])
            for core in rolling.states().values()
            for model in core["models"]
            if model["version"] == version
        ]

    before = digest_file(second.path / MANIFEST_NAME)
    assert digests() == [("ready", before)] * rolling.cores
    with rolling.client() as client, constant_load(rolling) as jobs:
        after = recompile(second, no_answer_threshold=-50.0)
        client.reload_model(version)
        eventually(lambda: digests() == [("ready", after)] * rolling.cores)
        wrong = client.reload_model(version, manifest_sha256="0" * 64)
        eventually(
            lambda: [model["asked_at"] for model in models_of(rolling, version)] == [wrong["asked_at"]] * rolling.cores
        )
        eventually(lambda: digests() == [("ready", after)] * rolling.cores)
        assert all("is not the one asked for" in model["reason"] for model in models_of(rolling, version))
        with pytest.raises(ServiceError, match="goes with `all`"):
            client.reload_model(version, "testhost/0", manifest_sha256=after)
        again = recompile(second, no_answer_threshold=0.0)
        client.load_model(version, manifest_sha256=again)
        eventually(lambda: digests() == [("ready", again)] * rolling.cores)
        served = len(jobs)
        eventually(lambda: len(jobs) > served + 20)
    assert [job.counts.succeeded for job in jobs] == [1] * len(jobs)
    assert {job.model for job in jobs} == {version}


def models_of(fleet: Fleet, version: str) -> list[dict]:
    """Return the report of each core on a version."""
    return [model for core in fleet.states().values() for model in core["models"] if model["version"] == version]


def test_commands_show_and_change_the_fleet(rolling: Fleet, first: Artifact, second: Artifact) -> None:
    def corelane(*arguments: str) -> Result:
        return CliRunner().invoke(make_cli(), [*arguments, "--url", rolling.url], env={"COLUMNS": "200"})

    old, new = first.manifest.version_id, second.manifest.version_id
    assert corelane("models", "load", old).stdout.startswith(f"{old} is ready on testhost/0")
    assert (
        corelane("models", "alias", "blue", f"{old}=1", f"{new}=3").stdout == f"blue means {old} (25%), {new} (75%)\n"
    )
    listed = corelane("models", "list").stdout
    assert old in listed
    assert "blue (75%)" in listed
    assert f"{new} ready fp32" in corelane("cores").stdout
    assert corelane("models", "reload", new).stdout.startswith(f"{new} is loaded again on testhost/0")
    unlike = corelane("models", "reload", new, "--manifest", "0" * 64)
    assert (unlike.exit_code, "is not the one asked for" in unlike.stderr) == (1, True)
    assert corelane("models", "reload", new, "--core", "testhost/0").exit_code == 1
    assert corelane("models", "reload", new).exit_code == 0
    refused = corelane("models", "unload", old)
    assert (refused.exit_code, "move the alias first" in refused.stderr) == (1, True)
    corelane("models", "alias", "blue", "--delete")
    assert corelane("models", "unload", old).stdout == f"{old} is unloaded from all\n"
    missing = corelane("models", "load", "tiny-qa@ffff00000000")
    assert (missing.exit_code, "no artifact of tiny-qa@ffff00000000" in missing.stderr) == (1, True)
    corelane("models", "unload", "tiny-qa@ffff00000000")
    assert corelane("models", "load", "tiny-qa").stdout.startswith(new)
