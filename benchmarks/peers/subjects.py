"""What is measured: each peer, and Corelane itself, each started alone and stopped before the next."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import benchmarks.runs
from benchmarks.peers.outcome import OURS, Service
from benchmarks.peers.peer import Peer, running
from benchmarks.peers.sender import URLS
from benchmarks.peers.servers.given import Given
from corelane import __version__
from corelane.plugins.lab.load import CORELANE_SENDER
from corelane.plugins.lab.senders import Target


class Subject(Protocol):
    """A service that can be started, asked and stopped."""

    @property
    def name(self) -> str:
        """Its name in results."""

    @property
    def sender(self) -> str:
        """The class that asks it."""

    def about(self) -> Service:
        """Return its description, with nothing measured yet."""

    def started(self, given: Given) -> AbstractContextManager[Callable[[], Target]]:
        """Run it for the length of a block, and return a function that waits until it is up."""


@dataclass(frozen=True, slots=True)
class PeerSubject:
    """A peer."""

    peer: Peer

    @property
    def name(self) -> str:
        """Its name in results."""
        return self.peer.name

    @property
    def sender(self) -> str:
        """The class that asks it."""
        return self.peer.sender

    def about(self) -> Service:
        """Return its description."""
        peer = self.peer
        return Service(
            name=peer.name, title=peer.title, manner=peer.manner, licence=peer.licence, versions=peer.versions()
        )

    @contextmanager
    def started(self, given: Given) -> Iterator[Callable[[], Target]]:
        """Run it for the length of a block."""
        with running(self.peer, given) as ready:
            yield lambda: self.target(ready())

    def target(self, urls: list[str]) -> Target:
        """Return where it is asked."""
        return Target(urls[0], options={URLS: urls})


@dataclass(frozen=True, slots=True)
class CorelaneSubject:
    """Corelane, with its API, its Redis and one worker a core."""

    data: Path
    name: str = OURS
    sender: str = CORELANE_SENDER

    def about(self) -> Service:
        """Return its description."""
        import torch

        return Service(
            name=OURS,
            title="Corelane",
            manner="`corelane serve` with its defaults; callers wait in `POST /v1/answers`",
            licence="Apache-2.0",
            versions={"corelane": __version__, "torch": torch.__version__},
        )

    @contextmanager
    def started(self, _: Given) -> Iterator[Callable[[], Target]]:
        """Run the service for the length of a block, or take the one that was lent."""
        with benchmarks.runs.service(self.data) as service:
            yield lambda: Target(service.url, options={"no_answer": False})
