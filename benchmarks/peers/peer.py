"""A peer: what it is, how it is started, when it is ready, and how it is stopped for certain."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.callers import CALLERS
from benchmarks.harness import ROOT, environment
from benchmarks.peers.asking import Asker
from benchmarks.peers.servers.given import Given, loaded_folder

#: Where the peers' virtual environments are made.
ENVIRONMENTS = ROOT / ".corelane" / "peers"

#: Longest waits for a server to be ready and to stop, in seconds. Ray takes a minute and a half on a busy machine.
READY_S, STOP_S = 300, 20

#: Marks every process that a peer starts, however far down, so that none is left.
MARK = "PEER_RUN"

#: No peer calls home, uses more than one thread a process, or tries for a GPU.
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1"),
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
    "CUDA_VISIBLE_DEVICES": "",
    # As Corelane's workers have it: blocks stay with the process instead of going back after each batch.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}


#: Returns the commands of a peer's processes.
Commands = Callable[[Path, Given], list[list[str]]]


@dataclass(frozen=True)
class Peer:
    """A way to serve the model. ``commands`` are its processes; ``asker`` makes callers for its addresses."""

    name: str
    title: str
    package: str
    asker: Asker
    commands: Commands
    #: The numbers of callers by which it is measured.
    callers: tuple[int, ...] = CALLERS
    #: Returns what is sent in bulk for some items and this many processes, over as many connections at most.
    bulk: Callable[[Sequence[Any], int], Sequence[Any]] = lambda items, _: items
    connections: int = CALLERS[-1]
    #: Its processes; None for one a core.
    processes: int | None = None
    #: The path that GET asks on each port until the port answers; None for a peer without HTTP.
    ready: str | None = None
    #: True if each process listens on its own port: consecutive ports, from ``Given.port`` on.
    port_each: bool = False
    #: The peer's folder among the virtual environments; None for the environment of this process.
    environment: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS / self.environment / "bin" / "python"

    def is_installed(self) -> bool:
        """Return whether the peer's interpreter exists."""
        return self.python.exists()

    def version(self) -> str:
        """Return the versions of the peer's packages."""
        code = "import sys\nfrom importlib.metadata import version\nprint(*map(version, sys.argv[1:]), sep=', ')"
        done = subprocess.run([self.python, "-c", code, *self.package.split()], capture_output=True, check=True)
        return done.stdout.decode().strip()

    def urls(self, given: Given) -> list[str]:
        """Return the URLs where the peer answers."""
        return [f"http://127.0.0.1:{given.port + index}" for index in range(given.workers if self.port_each else 1)]


@contextmanager
def running(peer: Peer, given: Given) -> Iterator[Callable[[], list[str]]]:
    """Run a peer; yield a function that returns its URLs once it answers, or raises RuntimeError with the log's end."""
    folder = Path(given.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / f"{peer.name}.log"
    mark = uuid.uuid4().hex
    variables = {
        **environment(),
        **ENVIRONMENT,
        **given.environment(),
        **peer.variables,
        MARK: mark,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "HOME": str(folder),
        "PATH": f"{peer.python.parent}:{environment()['PATH']}",
    }
    started: list[subprocess.Popen[bytes]] = []

    def ready() -> list[str]:
        wait_until_ready(peer, given, started, log)
        return peer.urls(given)

    try:
        with log.open("ab") as out:
            for command in peer.commands(peer.python, given):
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
                started.append(process)
        yield ready
    finally:
        stop(started, mark)


def wait_until_ready(peer: Peer, given: Given, started: list["subprocess.Popen[bytes]"], log: Path) -> None:
    """Wait until every process of a peer has its model, and every port answers."""
    loaded = loaded_folder(Path(given.folder))
    waiting = [] if peer.ready is None else [url + peer.ready for url in peer.urls(given)]
    deadline = time.monotonic() + READY_S
    while waiting or not loaded.is_dir() or len(list(loaded.iterdir())) < given.workers:
        if time.monotonic() > deadline or any(process.poll() is not None for process in started):
            raise RuntimeError(
                f"{peer.title} did not start; the end of {log}:\n{log.read_text(errors='replace')[-3000:]}"
            )
        with suppress(httpx2.HTTPError):
            if waiting and httpx2.get(waiting[0], timeout=5).status_code < 500:
                waiting.pop(0)
                continue
        time.sleep(0.1)


def stop(started: list["subprocess.Popen[bytes]"], mark: str, patience_s: float = STOP_S) -> list[int]:
    """Stop a peer's processes, first as Ctrl-C does; return those that had to be killed."""
    for process in started:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + patience_s
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
    left = marked(mark)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in started:
        process.wait()
    while marked(mark):
        time.sleep(0.05)
    return left


def marked(mark: str) -> list[int]:
    """Return the living processes that carry a mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found
