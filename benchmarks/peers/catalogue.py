"""The peers, each as its own documentation recommends it, with the same tuning: one process a core, one thread each."""

from pathlib import Path

from benchmarks.peers import asking
from benchmarks.peers.peer import Commands, Peer
from benchmarks.peers.servers.given import Given
from corelane.cli.redis_server import find_server


def starting(module: str) -> Commands:
    """Return how a peer is started whose server is one of the modules here."""
    return lambda python, _: [[str(python), "-m", f"benchmarks.peers.servers.{module}"]]


def bento_commands(python: Path, given: Given) -> list[list[str]]:
    """Return how BentoML is started."""
    service = "benchmarks.peers.servers.bento:Answers"
    return [[str(python), "-m", "bentoml", "serve", service, "--host", "127.0.0.1", "--port", str(given.port)]]


def sample_commands(python: Path, given: Given) -> list[list[str]]:
    """Return how the sample's servers are started: one Hypercorn a core."""
    return [
        [str(python), "-m", "hypercorn", "benchmarks.peers.servers.sample:app", "-b", f"127.0.0.1:{given.port + core}"]
        for core in range(given.workers)
    ]


def celery_commands(python: Path, given: Given) -> list[list[str]]:
    """Return how the Celery worker is started, and a Redis of its own."""
    redis = [str(find_server()), "--bind", "127.0.0.1", "--port", str(given.port), "--dir", given.folder]
    options = ["-c", str(given.workers), "-Q", "peer", "--without-gossip", "--without-mingle", "-l", "warning"]
    return [
        [*redis, "--save", "", "--appendonly", "no"],
        [str(python), "-m", "celery", "-A", "benchmarks.peers.servers.tasks", "worker", *options],
    ]


LITSERVE = Peer(
    name="litserve",
    title="LitServe",
    package="litserve",
    asker=asking.predict,
    commands=starting("lit"),
    ready="/health",
    environment="litserve",
)
RAY = Peer(
    name="ray-serve",
    title="Ray Serve",
    package="ray",
    asker=asking.predict,
    commands=starting("ray_serve"),
    ready="/-/healthz",
    environment="ray",
    # The second keeps Ray on loopback, as it is by itself where it supports no cluster: else it finds the machine's own
    # address, and `_node_ip_address="127.0.0.1"` is resolved to that.
    variables={"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"},
)
BENTOML = Peer(
    name="bentoml",
    title="BentoML",
    package="bentoml",
    asker=asking.bento,
    commands=bento_commands,
    ready="/readyz",
    environment="bentoml",
)
SAMPLE = Peer(
    name="sample",
    title="FastAPI, the sample's manner",
    package="fastapi hypercorn",
    asker=asking.sample,
    commands=sample_commands,
    ready="/",
    port_each=True,
)
CELERY = Peer(
    name="celery",
    title="Celery and transformers",
    package="celery transformers",
    asker=asking.celery,
    commands=celery_commands,
    scheme="redis",
)

PEERS = (LITSERVE, RAY, BENTOML, SAMPLE, CELERY)
