"""Every part does its work as a user of ``deploy/redis/users.acl``, with no right more."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from corelane.cli.redis_server import find_server, server_argv
from corelane.cli.redis_users import SERVICE, WORKER, with_user
from corelane.client import Client
from corelane.domain.webhook_secrets import new_secret
from corelane.engine.cores import die_with_parent
from tests.conftest import free_port
from tests.integration.asked_jobs import items
from tests.tools.fleet import FLOWER, READY_S
from tests.tools.receivers import receiver
from tests.tools.redis import PASSWORD, client_of, users_file
from tests.tools.waiting import eventually

FLOWERS = "corelane-flower"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """Yield the port of a Redis with the users of ``deploy/redis``."""
    port = free_port()
    argv = server_argv(find_server(), tmp_path, port, users_file(tmp_path, is_on=True))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.terminate()


def test_parts_do_a_job_from_submit_to_webhook_with_the_rights_of_the_file(server: int, tmp_path: Path) -> None:
    flower_port, api_port = free_port(), free_port()
    env = dict(os.environ) | {
        "CORELANE_TARGET": "null",
        "CORELANE_AUTH": "off",
        "CORELANE_CORE_HOST": "a",
        "CORELANE_DATA_DIR": str(tmp_path),
        "CORELANE_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        "CORELANE_WEBHOOK_SECRET": new_secret(),
        "CORELANE_FLOWER_PORT": str(flower_port),
        "CORELANE_FLOWER_PASSWORD": FLOWER[1],
    }
    parts = [
        (WORKER, "worker", "--core", "0"),
        (FLOWERS, "flower"),
        (SERVICE, "api", "--port", str(api_port)),
        (SERVICE, "keeper"),
        (SERVICE, "deliveries"),
    ]
    running = []
    with client_of(f"redis://127.0.0.1:{server}/0") as raw, (tmp_path / "log").open("wb") as log, receiver() as hooks:
        eventually(raw.ping)
        try:
            for user, *command in parts:
                argv = [sys.executable, "-m", "corelane", *command]
                own = env | {"CORELANE_REDIS_URL": with_user(f"redis://127.0.0.1:{server}/0", user, PASSWORD)}
                running.append(subprocess.Popen(argv, env=own, stdout=log, stderr=log, preexec_fn=die_with_parent))
            with Client(f"http://127.0.0.1:{api_port}") as client:
                eventually(client.ready, READY_S)
                job = client.submit(items(3)["items"], webhook={"url": hooks.url})
                assert [each.status for each in client.iter_results(job.id)] == ["succeeded"] * 3
                eventually(lambda: hooks.posts)
            with httpx2.Client(base_url=f"http://127.0.0.1:{flower_port}", auth=FLOWER) as page:
                eventually(lambda: "core0@a" in shown(page))
            refused = {(each["username"], each["object"]) for each in raw.execute_command("ACL", "LOG")}
            assert refused <= {(WORKER, "function|load")}  # its try to load functions
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
