"""``corelane doctor``: what it concludes, and that it runs on this machine."""

import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import orjson
import pytest
from pytest_httpserver import HTTPServer
from typer.testing import CliRunner

from corelane.artifacts.calibration import write_calibration
from corelane.artifacts.manifest import Artifact
from corelane.cli.commands import CommandGroup
from corelane.cli.doctor import (
    CHECKS,
    DoctorCheck,
    check_api_port,
    check_artifact,
    check_cores,
    check_disk,
    check_redis,
    check_service,
    check_storage,
    check_torch,
    doctor,
    judge_names,
    judge_redis,
)
from corelane.errors.extras import install_command
from corelane.settings import Settings
from corelane.settings.names import UnknownName
from tests.tools.artifacts import CALIBRATION
from tests.tools.neuron import Machine, neuron_process


@pytest.fixture
def busy_port() -> Iterator[int]:
    """Yield a port where something listens and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=hang_up, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def hang_up(server: socket.socket) -> None:
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


@pytest.mark.parametrize(
    ("info", "state", "told"),
    [
        ({"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "aof_enabled": "1"}, "ok", "redis 7.0.15"),
        ({"server_name": "valkey", "redis_version": "7.2.4", "valkey_version": "9.1.2"}, "ok", "valkey 9.1.2"),
        ({"maxmemory_policy": "allkeys-lru", "aof_enabled": "1"}, "warn", "noeviction"),
        ({"maxmemory_policy": "noeviction", "aof_enabled": "0"}, "warn", "appendonly"),
        ({"role": "slave"}, "fail", "is a replica"),
        ({"slave0": "ip=a,port=1,state=online,offset=9,lag=0"}, "ok", "replies at"),
    ],
)
def test_redis_that_loses_jobs_or_takes_none_is_told_of(info: dict[str, str], state: str, told: str) -> None:
    check = judge_redis("redis://x", {"role": "master"} | info)
    assert (check.state, told in check.found + check.advice) == (state, True)


@pytest.mark.parametrize(("replica", "state"), [("wait_bgsave", "fail"), ("online", "ok")])
def test_replicas_that_must_acknowledge_are_counted(replica: str, state: str) -> None:
    info = {"role": "master", "slave0": f"ip=a,port=1,state={replica},offset=9,lag=0"}
    assert judge_redis("redis://x", info, wanted=1).state == state


def test_no_redis_is_fine_where_one_can_be_started_unless_one_was_named(busy_port: int) -> None:
    check = check_redis(Settings(redis_url=f"redis://127.0.0.1:{busy_port}/0"))
    assert (check.state, check.found.split(": ")[0]) == ("fail", f"none to use at redis://127.0.0.1:{busy_port}/0")
    settings = Settings(redis_url=f"redis://127.0.0.1:{busy_port}/0")
    settings.model_fields_set.discard("redis_url")
    unset = check_redis(settings)
    assert (unset.state in ("ok", "fail"), unset.found.startswith("none at redis://127.0.0.1:")) == (True, True)


def test_mistyped_settings_are_listed_and_one_that_protects_is_a_failure() -> None:
    harmless, guard = UnknownName("CORELANE_PROT", "CORELANE_PORT"), UnknownName("CORELANE_AUHT", "CORELANE_AUTH")
    assert judge_names([]).state == "ok"
    assert (judge_names([harmless]).state, judge_names([harmless, guard]).state) == ("warn", "fail")
    assert judge_names([harmless, guard]).found == "without effect: CORELANE_PROT, CORELANE_AUHT"


@pytest.mark.parametrize(
    ("code", "state", "found"),
    [
        ("print('2.13')", "ok", "2.13, Python 3"),
        ("import no_such_torch", "fail", "ModuleNotFoundError: No module named 'no_such_torch'"),
        ("import os; os.abort()", "fail", "ended with status -6"),
    ],
)
def test_torch_that_cannot_be_imported_is_fatal(code: str, state: str, found: str) -> None:
    check = check_torch(Settings(), code)
    assert (check.state, found in check.found) == (state, True)
    assert (install_command("worker") in check.advice) == (state == "fail")


def test_a_data_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert check_disk(Settings(data_dir=tmp_path / "a" / "b")).found.endswith(f"GiB free for {tmp_path / 'a' / 'b'}")


def test_a_data_folder_that_is_a_file_or_below_one_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "a"):
        assert (check_disk(Settings(data_dir=folder)).state, check_artifact(Settings(data_dir=folder)).state) == (
            "fail",
            "warn",
        )


def test_a_redis_without_that_database_is_a_failure_in_one_sentence(redis_url: str) -> None:
    check = check_redis(Settings(redis_url=redis_url.rpartition("/")[0] + "/99"))
    assert (check.state, "no database of this number" in check.found) == ("fail", True)


def test_free_port_is_fine_and_one_of_something_else_is_warned_of(busy_port: int) -> None:
    assert check_api_port(Settings(port=0)).state == "ok"
    assert check_api_port(Settings(port=busy_port)).state == "warn"


def test_port_of_corelane_is_fine(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/readyz").respond_with_json({"status": "ready"})
    check = check_api_port(Settings(host=httpserver.host, port=httpserver.port))
    assert (check.state, check.found) == ("ok", f"{httpserver.port}: Corelane replies")


def test_a_port_of_another_web_server_is_warned_of(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/readyz").respond_with_data("<html>")
    assert check_api_port(Settings(host=httpserver.host, port=httpserver.port)).state == "warn"


def test_a_model_that_is_not_compiled_is_a_hint(tmp_path: Path) -> None:
    check = check_artifact(Settings(data_dir=tmp_path))
    assert (check.state, check.found.split(" below ")[0]) == ("warn", "qa-minilm is not compiled for cpu yet")


def test_model_is_said_to_be_calibrated_or_not_or_to_be_refused(tiny_artifact: Artifact, tmp_path: Path) -> None:
    manifest = tiny_artifact.manifest
    folder = tmp_path / "artifacts" / manifest.name / manifest.version / "cpu"
    shutil.copytree(tiny_artifact.path, folder)
    settings = Settings(data_dir=tmp_path, model="tiny-qa")
    assert "not calibrated" in check_artifact(settings).found
    path = write_calibration(folder, CALIBRATION.model_copy(update={"version": manifest.version}))
    check = check_artifact(settings)
    assert (check.state, "calibrated on 100 questions of made.json" in check.found) == ("ok", True)
    path.write_text("{}")
    check = check_artifact(settings)
    assert (check.state, "calibrate the model again" in check.advice) == ("fail", True)


def test_the_command_reports_everything_as_json_and_exits_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = CommandGroup()
    app.command()(doctor)
    done = CliRunner().invoke(app, ["--json", "--data", str(tmp_path / "here")])
    report = orjson.loads(done.stdout)
    assert len(report["checks"]) == len(CHECKS)
    assert report["ok"] == all(check["state"] != "fail" for check in report["checks"])
    assert done.exit_code == (0 if report["ok"] else 1)
    found = {check["name"]: check["found"] for check in report["checks"]}
    assert found["disk"].endswith(str(tmp_path / "here"))
    assert str(tmp_path / "here") in found["model"]
    assert CliRunner().invoke(app, []).exit_code == done.exit_code


def test_neuron_cores_are_listed_and_missing_ones_a_reason_not_to_start(tmp_path: Path) -> None:
    with neuron_process(tmp_path, Machine("inf2", devices=(1,)), None) as place:
        found = check_cores(Settings(target="inf2"))
        assert (found.state, found.found) == ("ok", "2 workers, on Neuron cores 2, 3")
        with mock.patch("corelane.plugins.backends.neuron.find_tool", return_value=None):
            missing = check_cores(Settings(target="inf2"))
        assert (missing.state, "neuron-monitor" in missing.advice) == ("warn", True)
        with mock.patch.dict(os.environ, {"NEURON_STAND_IN_FAULT": "torchneuron"}):
            other = check_cores(Settings(target="inf2"))
        assert (other.state, "torch-neuronx 2.14.3.0+standin is TorchNeuron" in other.found) == ("fail", True)
        (place / "machine.json").unlink()
        assert check_cores(Settings(target="inf2")).state == "fail"
    with neuron_process(tmp_path / "inf1", Machine("inf1"), None):
        assert "CORELANE_NEURON_PYTHON" in check_cores(Settings(target="inf1")).found
        inf1 = Settings.model_validate({"target": "inf1", "neuron_python": sys.executable})
        assert check_cores(inf1).found.startswith("4 workers")


def test_storage_of_files_at_a_url_is_written_to_and_its_failure_said(s3: str, settings: Settings) -> None:
    def examine(url: str | None) -> DoctorCheck:
        return check_storage(settings.model_copy(update={"files_url": url}))

    assert examine(f"{s3}/files") == DoctorCheck("files", "ok", f"{s3}/files takes, returns and deletes files")
    assert examine(None).state == "ok"
    missing = examine(f"{s3}-missing/files")
    assert (missing.state, "AWS_ENDPOINT_URL_S3" in missing.advice) == ("fail", True)
    assert "missing" in missing.found


def test_service_with_nothing_to_do_is_well(settings: Settings) -> None:
    assert "no health issue" in check_service(settings).found
