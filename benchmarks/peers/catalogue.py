"""The peers, each as its own documentation recommends it, with the same tuning: one process a core, one thread each."""

from collections.abc import Sequence
from typing import Any

from benchmarks.peers import asking
from benchmarks.peers.peer import Commands, Peer

#: Texts of a list, where a peer takes lists: those that sentence-transformers puts into a batch by itself.
LIST = 32


def starting(module: str, *arguments: str) -> Commands:
    """Return how a peer is started whose server is one of the modules here."""
    return lambda python, _: [[str(python), "-m", f"benchmarks.peers.servers.{module}", *arguments]]


def starting_each(module: str, *arguments: str) -> Commands:
    """Return the commands of a peer with a port for each process. A process gets its port as first argument."""
    return lambda python, given: [
        [str(python), "-m", f"benchmarks.peers.servers.{module}", str(given.port + index), *arguments]
        for index in range(given.workers)
    ]


def lists(texts: Sequence[list[str]], _: int) -> list[list[str]]:
    """Return lone texts as lists of 32."""
    return [[text for (text,) in texts[first : first + LIST]] for first in range(0, len(texts), LIST)]


def lists_by_length(texts: Sequence[list[str]], workers: int) -> list[list[str]]:
    """Return lone texts as lists of 32 of about one length, the longest first."""
    return lists(sorted(texts, key=lambda each: -len(each[0])), workers)


def shares(texts: Sequence[list[str]], workers: int) -> list[list[str]]:
    """Return lone texts as one list for each process."""
    return [[text for (text,) in texts[index::workers]] for index in range(workers)]


LITSERVE: dict[str, Any] = {
    "package": "litserve",
    "commands": starting("lit"),
    "ready": "/health",
    "environment": "litserve",
}
LIT_TEXTS: dict[str, Any] = LITSERVE | {"asker": asking.vectors, "commands": starting("lit", "texts")}
#: LitServe's lists of 32 are large enough without its batching, and stay apart from each other that way.
LIT_LISTS: dict[str, Any] = LIT_TEXTS | {"callers": (), "connections": 8, "variables": {"PEER_BATCH": "1"}}
LOOP: dict[str, Any] = {"asker": asking.loop, "port_each": True, "callers": (1,), "bulk": shares}

QUESTIONS = (
    Peer(name="litserve", title="LitServe", asker=asking.predict, **LITSERVE),
    Peer(
        name="ray-serve",
        title="Ray Serve",
        package="ray",
        asker=asking.predict,
        commands=starting("ray_serve"),
        ready="/-/healthz",
        environment="ray",
        # The second keeps Ray on loopback, as it is by itself where it supports no cluster: else it finds the machine's
        # own address, and `_node_ip_address="127.0.0.1"` is resolved to that.
        variables={"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"},
    ),
)

#: Needs no environment of its own.
LOOP_IN_THREADS = Peer(
    name="loop-in-threads",
    title="loop of sentence-transformers, a thread a core",
    package="sentence-transformers",
    commands=starting_each("loop", "sentence_transformers", "threads"),
    processes=1,
    **LOOP,
)
TEXTS = (
    Peer(name="litserve", title="LitServe", **LIT_TEXTS),
    Peer(name="litserve-lists", title="LitServe, lists of 32", bulk=lists, **LIT_LISTS),
    Peer(name="litserve-sorted", title="LitServe, lists of 32 by length", bulk=lists_by_length, **LIT_LISTS),
    Peer(
        name="loop",
        title="loop of sentence-transformers, a process a core",
        package="sentence-transformers",
        commands=starting_each("loop", "sentence_transformers"),
        **LOOP,
    ),
    LOOP_IN_THREADS,
    Peer(
        name="fastembed",
        title="loop of fastembed, a process a core",
        package="fastembed onnxruntime",
        commands=starting_each("loop", "fastembed"),
        environment="fastembed",
        **LOOP,
    ),
    Peer(
        name="llama.cpp",
        title="llama.cpp's server",
        package="xllamacpp",
        asker=asking.openai,
        commands=starting_each("llama"),
        ready="/health",
        port_each=True,
        environment="llama",
        bulk=lists,
        connections=8,
    ),
)
