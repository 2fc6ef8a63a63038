"""Run a whole service for the duration of a block, on free ports: for the demo and the benchmarks."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson

from corelane.cli.errors import unwound_by_sigterm
from corelane.cli.folders import PARTS_FILE
from corelane.errors import SetupError
from corelane.settings import read_settings

#: Longest wait for the start, in seconds: compiling on a slow machine takes a minute or two.
READY_S = 600

#: Longest wait for a stop, in seconds: it includes finishing the last batches and flushing data.
STOP_S = 90

LOG_NAME = "service.log"


@contextmanager
def running_service(data: Path, **changes: object) -> Iterator[str]:
    """Run `corelane serve` on all cores and yield its URL; its log is in ``data``. Raises SetupError if it fails.

    ``changes`` are settings that differ from this process's. The service requires no keys. It is also stopped if
    SIGTERM ends this process.
    """
    settings = read_settings()
    # Settings of this process, and the changes; the service's own defaults for all others.
    own = {name: getattr(settings, name) for name in settings.model_fields_set}
    given = {"port": 0, "redis_port": 0, "flower_port": 0} | own | {"auth": "off"} | changes
    data.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "corelane", "serve", "--data", str(data)]
    log = data / LOG_NAME
    with log.open("wb") as out:
        env = settings.environment(**dict.fromkeys(set(type(settings).model_fields) - set(given)) | given)
        service = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=env)  # noqa: S603  # our own command
    try:
        with unwound_by_sigterm():
            yield _wait_until_ready(data / PARTS_FILE, service, log)
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(STOP_S)


def _wait_until_ready(parts: Path, service: "subprocess.Popen[bytes]", log: Path) -> str:
    """Return the URL of the service once it is ready and all its cores are up."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and service.poll() is None:
        with suppress(FileNotFoundError):
            noted = orjson.loads(parts.read_bytes())
            if noted["pid"] == service.pid and noted["is_ready"]:
                return str(noted["api"])
        time.sleep(0.2)
    raise SetupError(f"the service did not start; the end of {log}:\n{log.read_text(errors='replace')[-3000:]}")
