"""Redis servers for tests: of any binary and with any options, with TLS, as replicas, watched by Sentinels.

Each has a folder and a port of its own, is empty when it starts first, and ends with the test process. Nothing here
knows Corelane's data.
"""

import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis

from corelane.cli.redis_server import server_argv
from corelane.engine.cores import die_with_parent
from tests.conftest import free_port
from tests.redis_servers.debian import SERVERS
from tests.tools.redis import admin_url, client_of, server_binary, service_url, users_file
from tests.tools.waiting import eventually

#: Servers of ``make redis-servers`` that are tried where one must speak TLS, which the bundled one does not.
SPEAK_TLS = ("redis-8.0", "redis-7.0", "valkey-8.1")

#: Bytes that fit on a full disk; less than a second of load.
LAST_ROOM_BYTES = 16_384

#: What the Sentinels call the primary.
PRIMARY = "corelane"


def find_tls_server() -> Path | None:
    """Return a server that speaks TLS, if one is here."""
    found = {server.name: server.path for server in SERVERS}
    return next((found[name] for name in SPEAK_TLS if found[name].exists()), None)


@dataclass(frozen=True)
class Certificates:
    """Files of a CA, and of a certificate for 127.0.0.1 that servers and clients use alike."""

    ca: Path
    cert: Path
    key: Path

    @property
    def query(self) -> str:
        """Return what a URL says to use them."""
        return f"ssl_ca_certs={self.ca}&ssl_certfile={self.cert}&ssl_keyfile={self.key}"


def make_certificates(folder: Path) -> Certificates:
    """Make a CA and a certificate signed by it with the openssl command."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(*new, "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.crt")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    openssl(*new, *signed, "-subj", "/CN=corelane", "-keyout", "node.key", "-out", "node.crt")
    return Certificates(folder / "ca.crt", folder / "node.crt", folder / "node.key")


class RedisNode:
    """One server, over all its lives: its port and its folder stay."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        binary: Path | None = None,
        tls: Certificates | None = None,
        password: str = "",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port, self.tls, self.password = folder, free_port(), tls, password
        self._binary = binary or server_binary()
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None
        # The parent that a process dies with is a thread: one that lasts.
        self._launcher = ThreadPoolExecutor(1)

    @property
    def login(self) -> str:
        """Return the part of a URL before the host."""
        return f":{self.password}@" if self.password else ""

    @property
    def url(self) -> str:
        """Return its URL, as settings take it."""
        if self.tls is None:
            return f"redis://{self.login}127.0.0.1:{self.port}/0"
        return f"rediss://{self.login}127.0.0.1:{self.port}/0?{self.tls.query}"

    def client(self) -> Any:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return client_of(self.url, 5)

    def argv(self, *more: str) -> list[str]:
        """Return the command that runs it."""
        place = ["--port", str(self.port)]
        if self.tls is not None:
            place = ["--port", "0", "--tls-port", str(self.port), "--tls-replication", "yes"]
            place += ["--tls-ca-cert-file", str(self.tls.ca), "--tls-cert-file", str(self.tls.cert)]
            place += ["--tls-key-file", str(self.tls.key)]
        if self.password:
            place += ["--requirepass", self.password, "--masterauth", self.password]
        written = ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
        here = ["--bind", "127.0.0.1", "--dir", str(self.folder), "--logfile", str(self.folder / "redis.log")]
        return [str(self._binary), *here, *place, *written, "--repl-diskless-sync-delay", "0", *self._options, *more]

    def start(self, *more: str) -> None:
        """Start it with more options for this life; returns once it answers."""
        self._launch(self.argv(*more))

    def _launch(self, argv: Sequence[str]) -> None:
        self.process = self._launcher.submit(self._open, argv).result()
        with self.client() as client:
            eventually(client.ping)

    @staticmethod
    def _open(argv: Sequence[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
            restore_signals=False,  # Python ignores SIGXFSZ; so must a server whose disk is full
            start_new_session=True,
        )

    def shut_down(self) -> None:
        """Ask it to end in order, everything on disk."""
        self._signal(signal.SIGTERM)
        self._running().wait(60)

    def freeze(self) -> None:
        """Stop it in its tracks; connections stay."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would; returns once it is gone."""
        self._signal(signal.SIGKILL)
        self._running().wait(60)

    def stop(self) -> None:
        """End it, whatever state it is in; harmless if it is over."""
        if self.is_alive:
            self.kill()

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, or is frozen."""
        return self.process is not None and self.process.poll() is None

    def replication(self) -> dict[str, Any]:
        """Return its INFO of replication."""
        with self.client() as client:
            return dict(client.info("replication"))

    def _signal(self, sign: signal.Signals) -> None:
        os.kill(self._running().pid, sign)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self.process is None:
            raise RuntimeError("it was not started")
        return self.process


class DurableRedis(RedisNode):
    """One under which nothing that was accepted may be lost, as the service starts it, but with ``appendfsync always``.

    Its disk is filled by a limit on the size of its files (RLIMIT_FSIZE): an ordinary user may set it on a running
    process, and the server sees a failed write either way. A server of that setting ends itself when a write fails, so
    for the time of a full disk it runs at ``everysec``, and is not to be killed.
    """

    @property
    def url(self) -> str:
        """Return its URL, as the service gets it."""
        return service_url(self.port)

    def client(self) -> Any:
        """Return a plain client that repeats nothing and waits for nothing long."""
        return client_of(admin_url(self.url), 3)

    def argv(self, *more: str) -> list[str]:
        """Return the command that runs it; it tells of writes."""
        own = server_argv(self._binary, self.folder, self.port, users_file(self.folder))
        own += ["--logfile", str(self.folder / "redis.log"), "--appendfsync", "always"]
        return [*own, "--notify-keyspace-events", "Kh", *more]

    def fill_disk(self) -> None:
        """Let its append-only file grow by almost nothing more."""
        with self.client() as client:
            client.config_set("appendfsync", "everysec")
        size = max(file.stat().st_size for file in (self.folder / "appendonlydir").glob("*.incr.aof"))
        self._limit_files(size + LAST_ROOM_BYTES)

    def free_disk(self) -> None:
        """Room again; returns once the server has written what it owes."""
        self._limit_files(resource.RLIM_INFINITY)
        with self.client() as client:
            eventually(lambda: client.info("persistence")["aof_last_write_status"] == "ok")
            client.config_set("appendfsync", "always")

    def limit_memory(self, limit_bytes: int) -> None:
        """Refuse writes beyond so many bytes; 0 ends it."""
        with self.client() as client:
            client.config_set("maxmemory", limit_bytes)

    def _limit_files(self, most_bytes: int) -> None:
        resource.prlimit(self._running().pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


class SentinelNode(RedisNode):
    """One Sentinel. It rewrites its own file, which names the primary."""

    def watch(self, primary: RedisNode, down_ms: int, quorum: int) -> None:
        """Start it for a primary."""
        lines = [f"port {self.port}"]
        if self.tls is not None:
            lines = ["port 0", f"tls-port {self.port}", "tls-replication yes", f"tls-ca-cert-file {self.tls.ca}"]
            lines += [f"tls-cert-file {self.tls.cert}", f"tls-key-file {self.tls.key}"]
        lines += ["bind 127.0.0.1", f"dir {self.folder}", f"logfile {self.folder / 'sentinel.log'}"]
        if self.password:
            lines += [f"requirepass {self.password}", f"sentinel sentinel-pass {self.password}"]
        lines += [f"sentinel monitor {PRIMARY} 127.0.0.1 {primary.port} {quorum}"]
        if primary.password:
            lines += [f"sentinel auth-pass {PRIMARY} {primary.password}"]
        lines += [f"sentinel down-after-milliseconds {PRIMARY} {down_ms}", f"sentinel failover-timeout {PRIMARY} 10000"]
        (self.folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        self.resume()

    def resume(self) -> None:
        """Start it with what its file says; returns once it answers."""
        self._launch([str(self._binary), str(self.folder / "sentinel.conf"), "--sentinel"])


class Replicated:
    """A primary with replicas, and three Sentinels that watch them."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        replicas: int = 1,
        binary: Path | None = None,
        tls: Certificates | None = None,
        password: str = "",
        sentinel_password: str = "",
        down_ms: int = 60_000,
    ) -> None:
        made: dict[str, Any] = {"tls": tls, "binary": binary}
        self.nodes = [
            RedisNode(folder / f"node{place}", *options, password=password, **made) for place in range(1 + replicas)
        ]
        self.sentinels = [
            SentinelNode(folder / f"sentinel{place}", password=sentinel_password, **made) for place in range(3)
        ]
        self.primary = self.nodes[0]
        self._down_ms = down_ms

    @property
    def replicas(self) -> list[RedisNode]:
        """The nodes that are no primary."""
        return [node for node in self.nodes if node is not self.primary]

    @property
    def url(self) -> str:
        """Return the URL that finds the primary through the Sentinels."""
        first, tls = self.sentinels[0], self.primary.tls
        places = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        query = "&".join(
            ([tls.query] if tls else []) + ([f"sentinel_password={first.password}"] if first.password else [])
        )
        scheme = "redis" if tls is None else "rediss"
        return f"{scheme}+sentinel://{self.primary.login}{places}/{PRIMARY}/0" + (f"?{query}" if query else "")

    def start(self) -> None:
        """Start all of it; returns once the replicas are in step and the Sentinels know each other."""
        self.primary.start()
        for node in self.replicas:
            self.follow(node)
        for sentinel in self.sentinels:
            sentinel.watch(self.primary, self._down_ms, quorum=2)
        self.await_whole()

    def mend(self) -> None:
        """Start again what a test ended; returns once all of it is in step, as after a start."""
        for node in self.replicas:
            if not node.is_alive:
                self.follow(node)
        for sentinel in self.sentinels:
            if not sentinel.is_alive:
                sentinel.resume()
        self.await_whole()

    def await_whole(self) -> None:
        """Wait until the primary has all replicas in step, and each Sentinel knows all of them and the others."""
        eventually(lambda: self.primary.replication()["connected_slaves"] == len(self.replicas))
        for node in self.replicas:
            eventually(partial(self._is_in_step, node))
        for sentinel in self.sentinels:
            eventually(partial(self._sees_all, sentinel))

    def follow(self, node: RedisNode) -> None:
        """Start a node as a replica of the primary; returns once it is in step."""
        node.start("--replicaof", f"127.0.0.1 {self.primary.port}")
        eventually(partial(self._is_in_step, node))

    def promote(self) -> RedisNode:
        """Have the Sentinels make a replica the primary, dead or alive as the old one is; return it once all say so."""
        old = self.primary

        def is_replaced() -> bool:
            # Asked again while nothing is under way: a Sentinel gives up where the chosen replica is late.
            if self._named(self.sentinels[0]) == old.port:
                with self.sentinels[0].client() as client:
                    client.execute_command("SENTINEL", "FAILOVER", PRIMARY)
            return {self._named(each) for each in self.sentinels}.isdisjoint({old.port})

        eventually(is_replaced)
        port = self._named(self.sentinels[0])
        [self.primary] = [node for node in self.nodes if node.port == port]
        eventually(lambda: {self._named(each) for each in self.sentinels} == {port})
        eventually(lambda: self.primary.replication()["role"] == "master")
        return self.primary

    def stop(self) -> None:
        """End every server."""
        for node in (*self.sentinels, *self.nodes):
            node.stop()

    def _is_in_step(self, node: RedisNode) -> bool:
        view = node.replication()
        if view.get("master_link_status") == "up" and view["master_port"] == self.primary.port:
            return True
        raise redis.RedisError(f"not in step with {self.primary.port}: {view}")

    def _sees_all(self, sentinel: SentinelNode) -> bool:
        with sentinel.client() as client:
            view = client.sentinel_master(PRIMARY)
        others, nodes = len(self.sentinels) - 1, len(self.replicas)
        return bool(view["num-other-sentinels"] == others and view["num-slaves"] == nodes)

    def _named(self, sentinel: SentinelNode) -> int:
        with sentinel.client() as client:
            return int(client.sentinel_get_master_addr_by_name(PRIMARY)[1])


@contextmanager
def running(*parts: RedisNode | Replicated) -> Iterator[None]:
    """Start servers, and end them."""
    try:
        for part in parts:
            part.start()
        yield
    finally:
        for part in parts:
            part.stop()
