"""What faults strike at: who is struck just now, what was struck, and how long it takes until victims are back."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.watch import Watch
from tests.tools.fleet import Fleet

#: How often those that wait for victims look, in seconds.
LOOK_S = 0.1


class NoVictim(Exception):
    """Nothing to strike at now; later perhaps."""


@dataclass
class Return:
    """The victims of a fault, from its end until all of them are back."""

    fault: str
    ended: float
    away: set[str]
    seconds: float | None = None


@dataclass
class Scene:
    """A fleet under faults."""

    fleet: Fleet
    watch: Watch
    rng: random.Random
    struck: Counter[str] = field(default_factory=Counter)
    #: Faults that never found a victim.
    missed: Counter[str] = field(default_factory=Counter)
    #: Parts by how often they were killed, and asked to stop.
    killed: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    returns: list[Return] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lasting: list[threading.Thread] = field(default_factory=list)
    _failures: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _looker: threading.Thread | None = None

    def __enter__(self) -> "Scene":
        self._looker = threading.Thread(target=self._look, name="looker", daemon=True)
        self._looker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._looker is not None:
            self._looker.join()

    def take(self, *victims: str) -> None:
        """Keep victims to this fault; raises NoVictim if one of them is struck already."""
        with self._lock:
            if self._taken.intersection(victims):
                raise NoVictim
            self._taken.update(victims)

    def leave(self, *victims: str) -> None:
        """Give them back."""
        with self._lock:
            self._taken.difference_update(victims)

    def over(self, fault: str, *victims: str) -> None:
        """End a fault: give its victims back, and measure how long they take to be back."""
        self.returns.append(Return(fault, time.monotonic(), set(victims)))
        self.leave(*victims)

    def last(self, fault: str, seconds: float, end: Callable[[], None], *victims: str) -> None:
        """End a fault after ``seconds``, and give its victims back."""

        def later() -> None:
            time.sleep(seconds)
            try:
                end()
            except BaseException as error:
                self._failures.append(error)
            finally:
                self.over(fault, *victims)

        thread = threading.Thread(target=later, daemon=True)
        self._lasting.append(thread)
        thread.start()

    def settle(self) -> None:
        """Until every fault has ended; raises what went wrong with an end."""
        for thread in self._lasting:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def redis_is_up(self) -> None:
        """Raise NoVictim while a fault holds Redis."""
        with self._lock:
            if "redis" in self._taken:
                raise NoVictim

    def worker(self) -> tuple[str, int]:
        """Take a worker that is up, and its child."""
        workers = self.fleet.workers
        self.rng.shuffle(workers)
        for name in workers:
            child = self.fleet.child_of(name)
            if child is None:
                continue
            with contextlib.suppress(NoVictim):
                self.take(name)
                return name, child
        raise NoVictim

    def part(self, *names: str) -> str:
        """One of these parts, or any but Redis; taken. It is up."""
        chosen = [*(names or self.fleet.names)]
        self.rng.shuffle(chosen)
        for name in chosen:
            with contextlib.suppress(NoVictim):
                if self.fleet.is_up(name):
                    self.take(name)
                    return name
        raise NoVictim

    def _look(self) -> None:
        """Note when victims are back."""
        while not self._over.wait(LOOK_S):
            waiting = [each for each in self.returns if each.seconds is None]
            back = {name for name in set().union(*(each.away for each in waiting)) if self.fleet.is_back(name)}
            for each in waiting:
                each.away -= back
                if not each.away:
                    each.seconds = time.monotonic() - each.ended
