"""A worker and Flower do their work as users of Redis of their own, with the rights of their roles."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import redis

from corelane.cli.redis_server import find_server, server_argv
from corelane.cli.redis_users import with_user
from corelane.engine.cores import die_with_parent
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.acl import Role, rights_of, user_line
from corelane.store.link.blocking import Link
from tests.conftest import free_port
from tests.corelane.store_bench import Bench
from tests.integration.conftest import FLOWER, READY_S
from tests.tools.redis import ANYONE, PASSWORD, client_of
from tests.tools.waiting import eventually


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """Yield the port of a Redis with a user of each role."""
    lines = [ANYONE, *(user_line(role, PASSWORD, rights_of(role)) for role in Role)]
    (tmp_path / "users.acl").write_text("".join(f"{line}\n" for line in lines))
    port = free_port()
    argv = server_argv(find_server(), tmp_path, port, tmp_path / "users.acl")
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.terminate()


def test_worker_and_flower_need_no_more_than_their_roles(server: int, bell: str, tmp_path: Path) -> None:
    urls = {role: with_user(f"redis://127.0.0.1:{server}/0", role, PASSWORD) for role in Role}
    flower_port = free_port()
    env = dict(os.environ) | {
        "CORELANE_TARGET": "null",
        "CORELANE_CORE_HOST": "a",
        "CORELANE_DATA_DIR": str(tmp_path),
        "CORELANE_FLOWER_PORT": str(flower_port),
        "CORELANE_FLOWER_PASSWORD": FLOWER[1],
    }
    parts = {Role.WORKER: ("worker", "--core", "0"), Role.FLOWER: ("flower",)}
    running = []
    with client_of(f"redis://127.0.0.1:{server}/0") as raw, (tmp_path / "log").open("wb") as log:
        eventually(raw.ping)
        try:
            for role, command in parts.items():
                argv = [sys.executable, "-m", "corelane", *command]
                own = env | {"CORELANE_REDIS_URL": urls[role]}
                running.append(subprocess.Popen(argv, env=own, stdout=log, stderr=log, preexec_fn=die_with_parent))
            # Its functions are loaded by a part that may: the worker waits for that.
            settings = Settings(redis_url=urls[Role.SERVICE], data_dir=tmp_path, core_host="a")
            Link(settings.redis_url).run("admit", model="nothing", owner="public")
            eventually(lambda: raw.hget(keys.core("a/0"), "state") == "idle", READY_S)
            job = Bench(settings, raw, bell).submit(3, version="null@0")
            eventually(lambda: raw.hget(keys.job(job), "status") == "succeeded")
            with httpx2.Client(base_url=f"http://127.0.0.1:{flower_port}", auth=FLOWER) as page:
                eventually(lambda: "core0@a" in shown(page))
            assert raw.execute_command("ACL", "LOG") in ([], only_loading(raw))
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(60)


def shown(page: httpx2.Client) -> str:
    try:
        return page.get("/workers", params={"json": "1"}).text
    except httpx2.TransportError:
        return ""


def only_loading(raw: redis.Redis) -> list[object]:
    """Return what was refused if it is the worker's try to load functions alone."""
    refused = raw.execute_command("ACL", "LOG")
    return [each for each in refused if (each["username"], each["object"]) == (Role.WORKER, "function|load")]
