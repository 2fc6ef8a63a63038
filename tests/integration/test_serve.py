"""`corelane serve` as a command: it ends well when asked, its parts come back, and it says what is wrong before."""

import ast
import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import redis
from typer.testing import CliRunner, Result

from corelane.cli import own_fleet
from corelane.cli.app import make_cli
from corelane.cli.doctor import check_service
from corelane.settings import Settings
from corelane.tasks.question_answering.wire import Question
from tests.integration.test_bad_input import children
from tests.tools.fakes import save_server_stand_in
from tests.tools.fleet import FLOWER, Fleet, launch_fleet, start_fleet
from tests.tools.redis import client_of
from tests.tools.waiting import eventually

#: A core that takes a little of its work at a time, and a second for it.
SLOW = {"CORELANE_NULL_BATCH_S": "1", "CORELANE_CLAIM_TOKENS": "4000"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Fleet]]:
    """Start two, without a model, where a Redis of the distribution is installed; the second is slow at its work. Tests
    may end them last.
    """
    folders = [tmp_path_factory.mktemp("pair") for _ in range(2)]
    installed = save_server_stand_in(tmp_path_factory.mktemp("bin"), "Redis server v=7.0.15 sha=00000000:0").parent
    path = os.pathsep.join((str(installed), os.environ["PATH"]))
    common = {"CORELANE_TARGET": "null", "CORELANE_WEBHOOK_SECRET": "", "PATH": path}
    fleets = [
        launch_fleet(folder, folder, "--cores", "1", **common, **own)
        for folder, own in zip(folders, ({}, SLOW), strict=True)
    ]
    yield [fleet.wait_ready() for fleet in fleets]
    assert not any(fleet.stop() for fleet in fleets if fleet.process.poll() is None)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def noted_parts(fleet: Fleet) -> dict[str, dict]:
    return fleet.noted()["parts"]


def kill_when_up(fleet: Fleet, name: str, launches: int = 1) -> None:
    eventually(lambda: noted_parts(fleet)[name]["launches"] == launches and noted_parts(fleet)[name]["is_up"])
    os.kill(noted_parts(fleet)[name]["pid"], signal.SIGKILL)


def is_listening(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthcheck").is_success
    except httpx2.TransportError:
        return False


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a role, which becomes another program."""
    argv = [sys.executable, "-m", "corelane", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=dict(os.environ) | env)


def invoke(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(make_cli(), arguments, env=env)


@pytest.fixture
def silent_redis() -> Iterator[str]:
    """Yield the URL of a port that is taken, and that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{held.getsockname()[1]}/0"


def test_every_part_that_is_killed_comes_back(pair: list[Fleet]) -> None:
    fleet = pair[0]
    killed = {name: noted_parts(fleet)[name]["pid"] for name in ("api", "flower", "keeper", "deliveries", "core0")}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    kill_when_up(fleet, "redis")
    kill_when_up(fleet, "redis", launches=2)
    eventually(lambda: all(part["is_up"] and part["launches"] > 1 for part in noted_parts(fleet).values()))
    assert not any(alive(pid) for pid in killed.values())
    with fleet.client() as client:
        eventually(client.ready)
    eventually(lambda: is_listening(fleet.flower_url))
    assert fleet.process.poll() is None


def flower_tasks(fleet: Fleet) -> dict[str, dict]:
    return dict(httpx2.get(f"{fleet.flower_url}/api/tasks?limit=1000", auth=FLOWER, timeout=60).json())


def task_events(fleet: Fleet) -> float:
    """Count the events of tasks that Flower has had."""
    shown = httpx2.get(f"{fleet.flower_url}/metrics", timeout=60).text
    lines = [line for line in shown.splitlines() if line.startswith("flower_events_total{") and 'type="task-' in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_flower_shows_few_tasks_with_their_figures_and_has_them_after_a_restart(pair: list[Fleet]) -> None:
    fleet = pair[0]
    eventually(lambda: is_listening(fleet.flower_url))
    before = task_events(fleet)
    with fleet.client() as client:
        jobs = [client.submit([Question(question="Who?", context=f"It is {n}.")] * 500) for n in range(20)]
        for job in jobs:
            assert client.wait(job.id, 60).counts.succeeded == 500

    def drained() -> list[dict]:
        found = [task for task in flower_tasks(fleet).values() if task["state"] == "SUCCESS"]
        return [ast.literal_eval(task["result"]) for task in found]

    eventually(lambda: sum(result["items"] for result in drained()) >= 10_000)
    assert task_events(fleet) - before < 50
    assert {"items", "batches", "tokens", "seconds", "padding"} <= set(drained()[-1])
    task = next(iter(flower_tasks(fleet).values()))
    assert (task["name"], task["worker"]) == ("corelane.drain", "core0@testhost")
    known = set(flower_tasks(fleet))
    relaunched = restart_flower(fleet, signal.SIGTERM)
    assert known <= set(flower_tasks(fleet))
    for file in (fleet.data / "flower").iterdir():
        file.write_bytes(b"no state of any Flower")
    restart_flower(fleet, signal.SIGKILL, relaunched)
    assert not known & set(flower_tasks(fleet))
    assert list((fleet.data / "flower").glob("*.corrupt"))


def restart_flower(fleet: Fleet, sign: signal.Signals, launches: int = 0) -> int:
    """End Flower; return how often it was launched once it is up again."""
    eventually(lambda: noted_parts(fleet)["flower"]["is_up"] and noted_parts(fleet)["flower"]["launches"] >= launches)
    before = noted_parts(fleet)["flower"]
    os.kill(before["pid"], sign)
    eventually(lambda: noted_parts(fleet)["flower"]["launches"] > before["launches"])
    eventually(lambda: noted_parts(fleet)["flower"]["is_up"] and is_listening(fleet.flower_url))
    return int(before["launches"]) + 1


def test_part_that_does_not_come_up_ends_nothing_and_is_told_everywhere(pair: list[Fleet]) -> None:
    fleet = pair[1]
    eventually(lambda: noted_parts(fleet)["flower"]["is_up"])
    for launches in range(noted_parts(fleet)["flower"]["launches"], 4):
        os.kill(noted_parts(fleet)["flower"]["pid"], signal.SIGKILL)
        eventually(lambda launches=launches: noted_parts(fleet)["flower"]["launches"] > launches)  # type: ignore[misc]

    def told() -> bool:
        return bool(fleet.api.get("/readyz").json()["details"]["parts"]["parts"])

    eventually(told)
    assert fleet.api.get("/readyz").json()["details"]["parts"]["parts"] == ["flower on testhost"]
    with fleet.client() as client:
        # The overview is kept for a second, so it may be older than what `/readyz` has read.
        eventually(lambda: any(each.part == "flower on testhost" for each in client.overview().troubles))
        [issue] = [each for each in client.overview().troubles if each.part == "flower on testhost"]
        assert "was launched" in issue.text
        assert client.ready()
    service = check_service(Settings(redis_url=fleet.redis_url()))
    assert (service.state, "flower on testhost" in service.found) == ("warn", True)


def lines_of(fleet: Fleet) -> list[dict]:
    """Return the lines that are JSON objects: all but those of Redis and Flower."""
    return [json.loads(line) for line in fleet.log.read_bytes().splitlines() if line.startswith(b"{")]


def test_lines_of_every_part_are_in_one_log(pair: list[Fleet]) -> None:
    lines = lines_of(pair[0])
    assert any(line.get("part") == "serve" for line in lines)
    assert {"api", "workers"} <= {line["logger"].partition(".")[0] for line in lines if "logger" in line}
    assert all({"event", "level", "timestamp"} <= set(line) for line in lines)
    assert b"superuser" not in pair[0].log.read_bytes()


def test_command_to_try_works_as_it_stands(pair: list[Fleet]) -> None:
    [ready] = [line for line in lines_of(pair[0]) if line["event"] == "ready"]
    assert ready["api"] == pair[0].url
    done = subprocess.run(ready["try"], shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_webhooks_are_signed_with_a_secret_that_was_made_and_kept(pair: list[Fleet]) -> None:
    fleet, path = pair[0], pair[0].data / "webhook-secret"
    assert path.stat().st_mode & 0o777 == 0o600
    [ready] = [line for line in lines_of(fleet) if line["event"] == "ready"]
    shown = subprocess.check_output(ready["webhook_secret"], shell=True, text=True, timeout=60).strip()
    assert shown == path.read_text().strip()
    for part in ("api", "deliveries", "keeper"):
        environment = Path(f"/proc/{noted_parts(fleet)[part]['pid']}/environ").read_bytes()
        assert f"CORELANE_WEBHOOK_SECRET={shown}".encode() in environment.split(b"\0")
    question = {"question": "Who?", "context": "Ada.", "webhook": {"url": "http://127.0.0.1:9/hook"}}
    assert fleet.api.post("/v1/jobs", json=question).status_code == 202
    chosen = "whsec_" + "A" * 32
    env = {"CORELANE_WEBHOOK_SECRET": chosen}
    assert invoke("webhooks", "secrets", "show", "--data", str(fleet.data), **env).stdout.strip() == chosen


def test_bundled_server_is_taken_where_another_is_installed(pair: list[Fleet]) -> None:
    for fleet in pair:
        arguments = Path(f"/proc/{noted_parts(fleet)['redis']['pid']}/cmdline").read_bytes()
        assert b"valkey" in arguments.partition(b"\0")[0]


def test_redis_is_for_its_user_alone_and_no_password_stands_in_an_argument(pair: list[Fleet]) -> None:
    fleet = pair[0]
    modes = {name: (fleet.data / name).stat().st_mode & 0o777 for name in ("redis", "redis-password")}
    assert modes == {"redis": 0o700, "redis-password": 0o600}
    with client_of(fleet.noted()["redis"]) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    operators = (fleet.data / "redis-password").read_text().strip()
    for part in noted_parts(fleet).values():
        environment = Path(f"/proc/{part['pid']}/environ").read_bytes().decode()
        password = environment.partition("redis://corelane:")[2].partition("@")[0] or operators
        arguments = Path(f"/proc/{part['pid']}/cmdline").read_bytes().decode()
        assert password not in arguments
        assert operators not in arguments + environment


def test_second_fleet_on_the_same_folder_is_refused(pair: list[Fleet]) -> None:
    done = invoke("serve", "--data", str(pair[0].data))
    assert done.exit_code == 1
    assert "another" in done.stderr


def test_ctrl_c_stops_every_part_in_order_and_the_work_that_waits_is_done_after_a_restart(pair: list[Fleet]) -> None:
    fleet = pair[1]
    parts = children(fleet.process.pid)
    assert len(parts) == 6
    items = [Question(id=f"r{n}", question="What is the number?", context=f"The number is {n}.") for n in range(400)]
    with fleet.client() as client:
        job, lines = client.submit(items), client.submit_lines(items)
        eventually(lambda: client.get(job.id).counts.succeeded > 0)
    assert fleet.stop() == 0
    assert not any(alive(pid) for pid in parts)
    assert b"stopped" in fleet.log.read_bytes()
    assert "keep" not in fleet.log.read_text(errors="replace").rpartition("stopping:")[2].replace("keeper", "")
    restarted, secret = datetime.now(UTC), fleet.data / "webhook-secret"
    secret.unlink()
    fast = {"CORELANE_TARGET": "null", "CORELANE_WEBHOOK_SECRET": ""}
    second = start_fleet(fleet.data, fleet.data, "--cores", "1", "--no-flower", **fast)
    try:
        with second.client() as client:
            for each in (job.id, lines.id):
                assert [result.id for result in client.iter_results(each)] == [item.id for item in items]
                final = client.get(each)
                assert final.counts.succeeded == 400
                assert final.finished_at is not None
                assert datetime.fromisoformat(final.finished_at) > restarted
    finally:
        second.end()
    [told] = [line for line in lines_of(second) if "no secret that signs" in line["event"]]
    assert told["level"] == "warning"
    assert len(base64.b64decode(secret.read_text().strip().removeprefix("whsec_"))) == 32


def test_killed_supervisor_leaves_no_orphans(pair: list[Fleet]) -> None:
    fleet = pair[0]
    parts = children(fleet.process.pid)
    assert len(parts) == 6
    fleet.api.close()
    fleet.process.kill()
    fleet.process.wait()
    eventually(lambda: not any(alive(pid) for pid in parts))


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--data", __file__, "this is a file"),
        ("--data", "/proc/nowhere", "it cannot be written"),
        ("--cores", "9999", "--cores 9999: this process may use"),
        ("--redis", "SILENT", "no Redis at SILENT"),
        ("--redis", "NINETY_NINE", "DB index is out of range"),
        ("--host", "192.0.2.1", "nothing can listen on port 8000 of 192.0.2.1"),
        ("--port", "BUSY", "is taken: end what listens there (`ss -ltnp`), or choose another with --port"),
        ("--flower-port", "BUSY", "or choose another with --flower-port"),
        ("--redis-port", "BUSY", "or choose another with --redis-port, or use that Redis with --redis URL"),
    ],
)
def test_refusal_is_one_sentence(
    option: str,
    value: str,
    told: str,
    tmp_path: Path,
    redis_url: str,
    silent_redis: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_fleet, "GIVEN_REDIS_S", 1)
    names = {"NINETY_NINE": redis_url.replace("/0", "/99"), "BUSY": redis_port(redis_url), "SILENT": silent_redis}
    value = names.get(value, value)
    others = {"--data": ["--data", str(tmp_path)], "--flower-port": ["--no-flower"]}
    if option not in ("--redis", "--redis-port"):
        others["--redis-port"] = ["--redis-port", "0"]
    arguments = [each for name, given in others.items() if name != option for each in given]
    done = invoke("serve", *arguments, option, value)
    assert done.exit_code == 1
    *warnings, line = done.stderr.splitlines()
    assert len(warnings) == ("@" in value)  # others see a password on the command line
    assert told.replace("SILENT", silent_redis) in line
    assert "stopping" not in done.stdout


def redis_port(url: str) -> str:
    """Return a port that is busy: that of the Redis of the tests."""
    return str(urlsplit(url).port)


@pytest.mark.parametrize("role", ["api", "flower"])
def test_role_alone_on_a_busy_port_ends_with_one_sentence(role: str, redis_url: str) -> None:
    busy = redis_port(redis_url)
    done = run(role, CORELANE_PORT=busy, CORELANE_FLOWER_PORT=busy, CORELANE_REDIS_URL=redis_url)
    assert done.returncode == 1
    assert f"port {busy} of" in done.stderr
    assert "is taken" in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_setting_is_named_without_a_traceback() -> None:
    done = invoke("api", CORELANE_LEASE_S="soon")
    assert done.exit_code == 1
    assert "CORELANE_LEASE_S cannot be 'soon'" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_travel_through_the_environment_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings(
        data_dir=tmp_path,
        models=("a", "b"),
        webhook_allowed_networks="10.0.0.0/8,fd00::/8",
        webhook_secret="whsec_" + "A" * 32,
    )
    for name, value in given.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == given
