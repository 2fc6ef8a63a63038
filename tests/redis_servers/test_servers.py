"""Every server that is here takes the ACL file, the library and a job from its beginning to its end."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from corelane.broker.app import make_celery, ring_core
from corelane.cli.redis_server import find_servers, server_argv
from corelane.domain.dispatch import Core
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.library import PREFIX
from corelane.store.upkeep import Upkeep
from tests.conftest import free_port
from tests.corelane.store_bench import VERSION, Bench, announce, answer_all
from tests.redis_servers.debian import SERVERS
from tests.tools.redis import client_of, service_url, users_file
from tests.tools.waiting import eventually

HERE = {path.name: path for path in find_servers()}
HERE |= {server.name: server.path for server in SERVERS if server.path.exists()}


@pytest.fixture(params=HERE)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Yield the port of a running server with a user of each role."""
    port = free_port()
    argv = server_argv(HERE[request.param], tmp_path, port, users_file(tmp_path, is_on=True))
    with (
        subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process,
        client_of(f"redis://127.0.0.1:{port}/0") as anyone,
    ):
        try:
            eventually(anyone.ping)
            yield port
        finally:
            process.terminate()


def test_job_is_answered_and_forgotten_by_a_user_with_few_rights(server: int, bell: str, tmp_path: Path) -> None:
    settings = Settings(redis_url=service_url(server, is_on=True), data_dir=tmp_path, core_host="test", lease_s=60)
    with redis.Redis(port=server, decode_responses=True) as raw:
        raw.execute_command("ACL", "LOG", "RESET")
        bench = Bench(settings, raw, bell)
        core = bench.core("a/0")
        announce(settings, "a/0", VERSION)
        job = bench.submit(3)
        answer_all(core)
        assert raw.hget(keys.job(job), "status") == "succeeded"
        ring_core(make_celery(settings), Core("a", 0))
        assert raw.llen(Core("a", 0).queue) >= 1
        upkeep = Upkeep(settings, bell)
        upkeep.tend()
        upkeep.drop_libraries()
        assert Link(settings.redis_url)("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*") != []
        assert raw.execute_command("ACL", "LOG") == []
