"""What posts webhooks, on its own: a Redis, the keeper and the sender as real processes, and a receiver."""

import base64
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path

from pydantic import SecretStr

from corelane.cli.roles import deliveries_argv, keeper_argv
from corelane.domain.ids import new_id
from corelane.errors import Unavailable
from corelane.settings import Settings
from tests.chaos.server import RedisServer
from tests.conftest import free_port
from tests.deliveries_for_tests import schedule
from tests.receivers import Receiver, receiver
from tests.waiting import eventually

HOST = "posting"

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


class Posting:
    """The processes by name, each of which may be stopped, killed and launched again."""

    def __init__(self, folder: Path, found: Receiver) -> None:
        self.found = found
        self.redis = RedisServer(folder, free_port())
        self.settings = Settings(
            redis_url=self.redis.url,
            data_dir=folder,
            core_host=HOST,
            webhook_secret=SecretStr(SECRET),
            webhook_allowed_networks=(ip_network("127.0.0.0/8"),),
            log_format="json",
        )
        self._argvs = {"keeper": keeper_argv(HOST), "sender": deliveries_argv(HOST)}
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ids: list[str] = []

    def launch(self, name: str) -> None:
        """Start a part, after its end if it runs."""
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._argvs[name], env=self.settings.environment(core=None), stdout=log, stderr=log
            )

    def signal(self, name: str, sign: signal.Signals) -> None:
        """Send a signal to a part; one that is killed is waited for."""
        process = self._processes[name]
        os.kill(process.pid, sign)
        if sign == signal.SIGKILL:
            process.wait(60)

    def log(self, name: str) -> str:
        """Return a part's log."""
        return (self._folder / f"{name}.log").read_text()

    def announce(self, count: int) -> list[str]:
        """Announce so many events, each until Redis took it; their ids."""
        ids = []
        for _ in range(count):
            subject = new_id("batch")
            while True:
                try:
                    ids.append(schedule(self.settings, "batch.completed", subject, "public", self.found.url, {"n": 1}))
                    break
                except Unavailable:
                    time.sleep(0.1)
        self.ids += ids
        return ids

    def posted_after(self, most_s: float = 60, count: int = 1) -> float:
        """Seconds until events that are announced now have arrived; raises TimeoutError if they do not."""
        began, wanted = time.monotonic(), set(self.announce(count))
        eventually(lambda: wanted <= set(self.found.ids), most_s)
        return time.monotonic() - began

    def stop(self) -> None:
        """End everything."""
        for process in self._processes.values():
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
                process.wait(60)
        self.redis.stop()


@contextmanager
def posting(folder: Path) -> Iterator[Posting]:
    """All parts, started; ended in the end."""
    folder.mkdir(exist_ok=True)
    lock = threading.Lock()

    def answer(_: int) -> tuple[int, dict[str, str], bytes]:
        """One at a time, so that some always wait."""
        with lock:
            time.sleep(0.01)
        return 204, {}, b""

    with receiver(answer) as found:
        parts = Posting(folder, found)
        try:
            parts.redis.start()
            parts.launch("keeper")
            parts.launch("sender")
            yield parts
        finally:
            parts.stop()
