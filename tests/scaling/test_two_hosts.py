"""Two hosts with an autoscaler each share the cores of one service: the first is filled first, and when its `serve` is
gone the other takes its place.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.client import Client
from corelane.tasks.question_answering.wire import Question
from tests.chaos.processes import environment, launch
from tests.conftest import free_port
from tests.scaling.test_autoscaler import ITEMS, JOBS, SERVING, SETTINGS
from tests.tools.waiting import eventually

#: A host has stopped its parts and ended well within this, in seconds.
STOP_S = 60

STOPPED = {"a/0": "stopped", "b/0": "stopped"}


@contextmanager
def host(name: str, folder: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run some roles as a host of this name, whose cores may all be stopped."""
    argv = [sys.executable, "-m", "corelane", "serve", "--data", str(folder / name), *options]
    settings = SETTINGS | {"CORELANE_CORE_HOST": name, "CORELANE_MIN_CORES": "0"}
    process = launch(argv, environment(settings), folder / f"{name}.log")
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_S)


def noted(folder: Path) -> dict[str, str]:
    """Return where the service is, once it is ready."""
    found: dict[str, str] = {}

    def is_ready() -> bool:
        try:
            found.update(json.loads((folder / "parts.json").read_bytes()))
        except FileNotFoundError:
            return False
        return bool(found["is_ready"])

    eventually(is_ready)
    return found


def states(client: Client) -> dict[str, str]:
    """Return the state of each core, in one word for those that serve."""
    return {core["core"]: "up" if core["state"] in SERVING else core["state"] for core in client.cores()}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("raw")
def test_hosts_are_filled_in_order_and_one_that_is_gone_is_replaced(tmp_path: Path, redis_url: str) -> None:
    redis = ("--redis", redis_url)
    worker = ("--roles", "worker", "--cores", "1", *redis)
    with (
        host("front", tmp_path, "--roles", "keeper,api", "--port", str(free_port()), *redis),
        Client(noted(tmp_path / "front")["api"]) as client,
        host("a", tmp_path, *worker) as first,
        host("b", tmp_path, *worker),
    ):
        # A service that never had a core has one started.
        eventually(lambda: "up" in states(client).values())
        eventually(lambda: states(client) == STOPPED)
        items = [Question(question="What is it?", context=f"It is number {n}.") for n in range(ITEMS)]
        jobs = [client.submit(items).id for _ in range(JOBS)]
        eventually(lambda: states(client) == {"a/0": "up", "b/0": "up"})
        assert client.scaling().fixed == 0
        for job in jobs:
            client.cancel(job)
        eventually(lambda: states(client) == STOPPED)
        first.send_signal(signal.SIGINT)
        assert first.wait(STOP_S) == 0
        eventually(lambda: states(client) == {"b/0": "stopped"})
        assert client.wait(client.submit(items[:1]).id).status == "succeeded"
        assert states(client).keys() == {"b/0"}
