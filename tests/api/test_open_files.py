"""An API process whose callers open many connections: it uses all files that it may open."""

import resource
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import redis

from corelane.settings import Settings
from tests.conftest import free_port
from tests.tools.waiting import eventually

SOFT, HARD, CALLERS = 60, 140, 100


def test_connections_up_to_the_hard_limit_are_taken(settings: Settings, raw: redis.Redis, tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "output"
    with output.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "corelane", "api", "--port", str(port)],
            env=settings.environment(api_processes=1),
            stderr=subprocess.STDOUT,
            stdout=written,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD)),
        )
    try:
        with ExitStack() as stack:
            eventually(lambda: "Running on" in output.read_text())
            for _ in range(CALLERS):
                stack.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
            assert httpx2.get(f"http://127.0.0.1:{port}/livez", timeout=60).status_code == 200
    finally:
        process.terminate()
        assert process.wait(60) == 0
