"""The Redis of the component: its file is one that a server takes, with the users of `deploy/redis`."""

import subprocess
from pathlib import Path

import pytest
import redis

from corelane.cli.redis_server import find_server
from corelane.store.link.blocking import Link
from corelane.store.schema import require_schema
from tests.conftest import free_port
from tests.deploy.kubernetes_tools import KUBERNETES
from tests.tools.redis import PASSWORD, client_of, filled_users
from tests.tools.waiting import eventually


def test_server_takes_the_file_and_lets_our_user_in_alone(tmp_path: Path) -> None:
    (tmp_path / "users.acl").write_text(f"user default reset off\n{filled_users()}")
    text = (KUBERNETES / "components" / "redis" / "redis.conf").read_text()
    for inside, here in (("/data", tmp_path), ("/run/auth", tmp_path)):
        assert f" {inside}" in text
        text = text.replace(f" {inside}", f" {here}")
    port = free_port()
    (tmp_path / "redis.conf").write_text(f"{text}\nport {port}\nbind 127.0.0.1\nlogfile {tmp_path}/log\n")
    server = subprocess.Popen([find_server(), str(tmp_path / "redis.conf")], stdout=subprocess.DEVNULL)
    try:
        url = f"redis://corelane:{PASSWORD}@127.0.0.1:{port}/0"
        ours = client_of(url)
        eventually(ours.ping)
        link = Link(url)
        require_schema(link)
        assert link.now_ms() > 0
        link.close()
        ours.close()
        with client_of(f"redis://127.0.0.1:{port}/0") as nobody, pytest.raises(redis.AuthenticationError):
            nobody.ping()
    finally:
        server.terminate()
        assert server.wait(60) == 0
