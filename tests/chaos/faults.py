"""The faults of a chaos run, and the schedule they are drawn by: seeded, so that a run can be repeated.

A fault strikes at once, and may last: what ends it is done later, while others strike. While it lasts it keeps its
victims to itself, so that no two faults disturb the same part. A fault that finds no victim waits for one; if none
comes, that is told in the report.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import redis

from corelane.broker import BELL_ID, BELL_QUEUE, bell_envelope, make_celery, ring_core
from corelane.lanes import Core
from corelane.settings import Settings
from tests.chaos.fleet import ChaosFleet, Part
from tests.chaos.watch import Watch, held_by

#: A fault waits this long for a victim, in seconds.
VICTIM_S = 20

#: Pause between two faults, in seconds.
PAUSE_S = (0.3, 2.0)

#: Longer than a lease (6 s), so that a frozen core wakes up without its work; seconds.
FREEZE_S = (7.0, 9.0)

#: Fault points of the API and the keeper.
API_POINTS = ("submit.payloads_written", "submit.accepted", "feed.payloads_written")
KEEPER_POINTS = ("keeper.leases_returned", "feed.payloads_written")


class NoVictim(Exception):
    """Nothing to strike at now; later perhaps."""


@dataclass
class Scene:
    """What faults strike at, and what of it is struck just now."""

    fleet: ChaosFleet
    watch: Watch
    rng: random.Random
    struck: Counter[str] = field(default_factory=Counter)
    #: Faults that never found a victim.
    missed: Counter[str] = field(default_factory=Counter)
    _taken: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lasting: list[threading.Thread] = field(default_factory=list)
    _failures: list[BaseException] = field(default_factory=list)

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

    def last(self, seconds: float, end: Callable[[], None], *victims: str) -> None:
        """End a fault after ``seconds``, and give its victims back."""

        def later() -> None:
            time.sleep(seconds)
            try:
                end()
            except BaseException as error:
                self._failures.append(error)
            finally:
                self.leave(*victims)

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
        """Raises NoVictim while a fault holds Redis."""
        with self._lock:
            if "redis" in self._taken:
                raise NoVictim

    def worker(self) -> tuple[Part, int]:
        """A worker that is up, and its child; taken."""
        workers = self.fleet.workers
        self.rng.shuffle(workers)
        for part in workers:
            child = self.fleet.child_of(part)
            if child is None:
                continue
            try:
                self.take(part.name)
            except NoVictim:
                continue
            return part, child
        raise NoVictim

    def part(self, *names: str) -> Part:
        """One of these parts, or any; taken. It runs, though perhaps not for long enough to be useful."""
        parts = [part for name, part in self.fleet.parts.items() if not names or name in names]
        self.rng.shuffle(parts)
        for part in parts:
            with contextlib.suppress(NoVictim):
                if part.process.poll() is None:
                    self.take(part.name)
                    return part
        raise NoVictim


def kill_child(scene: Scene) -> None:
    part, child = scene.worker()
    _kill_worker(scene, part, child, child)


def kill_parent(scene: Scene) -> None:
    part, child = scene.worker()
    _kill_worker(scene, part, child, part.pid)


def _kill_worker(scene: Scene, part: Part, child: int, victim: int) -> None:
    """Kill a process of a worker, and measure when what it held is answered."""
    try:
        with scene.fleet.redis.client() as raw:
            part.asked = part.asked or victim == part.pid
            os.kill(victim, signal.SIGKILL)
            with contextlib.suppress(redis.RedisError):
                scene.watch.expect("child" if victim == child else "parent", held_by(raw, str(part.core)))
    except ProcessLookupError:
        raise NoVictim from None
    finally:
        scene.leave(part.name)


def freeze_child(scene: Scene) -> None:
    """Stopped for longer than its lease: it wakes up to commit what others have answered."""
    part, child = scene.worker()
    os.kill(child, signal.SIGSTOP)
    scene.last(scene.rng.uniform(*FREEZE_S), lambda: _wake(child), part.name)


def freeze_parent(scene: Scene) -> None:
    part, _ = scene.worker()
    pid = part.pid
    os.kill(pid, signal.SIGSTOP)
    scene.last(scene.rng.uniform(2, 8), lambda: _wake(pid), part.name)


def freeze_keeper_or_api(scene: Scene) -> None:
    part = scene.part("keeper", "api")
    pid = part.pid
    os.kill(pid, signal.SIGSTOP)
    scene.last(scene.rng.uniform(1, 5), lambda: _wake(pid), part.name)


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def kill_redis(scene: Scene) -> None:
    scene.take("redis")
    scene.fleet.redis.kill()
    scene.last(scene.rng.uniform(0.0, 2.5), scene.fleet.redis.start, "redis")


def shut_redis_down(scene: Scene) -> None:
    scene.take("redis")
    scene.fleet.redis.shut_down()
    scene.last(scene.rng.uniform(0.0, 2.5), scene.fleet.redis.start, "redis")


def freeze_redis(scene: Scene) -> None:
    """What was sent meanwhile is done when it wakes up, though nobody waits for the reply any more."""
    scene.take("redis")
    scene.fleet.redis.freeze()
    scene.last(scene.rng.uniform(1, 8), scene.fleet.redis.thaw, "redis")


def fill_disk(scene: Scene) -> None:
    scene.take("redis")
    scene.fleet.redis.fill_disk()
    scene.last(scene.rng.uniform(3, 6), scene.fleet.redis.free_disk, "redis")


def fill_memory(scene: Scene) -> None:
    scene.take("redis")
    scene.fleet.redis.limit_memory(1)
    scene.last(scene.rng.uniform(1, 4), lambda: scene.fleet.redis.limit_memory(0), "redis")


def forget_scripts(scene: Scene) -> None:
    scene.redis_is_up()
    with scene.fleet.redis.client() as raw, contextlib.suppress(redis.RedisError):
        raw.script_flush()


def kill_api(scene: Scene) -> None:
    part = scene.part("api")
    part.end()
    scene.leave(part.name)


def kill_api_at_a_point(scene: Scene) -> None:
    """Killed, and again in the middle of one of the next submits."""
    _arm(scene, scene.part("api"), API_POINTS)


def kill_keeper(scene: Scene) -> None:
    part = scene.part("keeper")
    part.end()
    scene.leave(part.name)


def stop_in_order(scene: Scene) -> None:
    """Asked to stop, as in an upgrade: a worker hands over what it has not answered."""
    part = scene.part()
    part.end(signal.SIGTERM)
    scene.leave(part.name)


def kill_keeper_at_a_point(scene: Scene) -> None:
    """Killed, and again right after the next time it returned a lease."""
    _arm(scene, scene.part("keeper"), KEEPER_POINTS)


def _arm(scene: Scene, part: Part, points: tuple[str, ...]) -> None:
    part.armed["CORELANE_FAULT_POINTS"] = ",".join(f"{point}:0.3" for point in points)
    part.end()
    scene.leave(part.name)


def cut(scene: Scene) -> None:
    part = scene.part()
    part.proxy.cut()
    scene.leave(part.name)


def half_open(scene: Scene) -> None:
    part = scene.part()
    part.proxy.half_open()
    scene.leave(part.name)


def delay(scene: Scene) -> None:
    part = scene.part()
    part.proxy.delay(scene.rng.uniform(0.2, 0.8))
    scene.last(scene.rng.uniform(2, 6), lambda: part.proxy.delay(0), part.name)


def stall(scene: Scene) -> None:
    part = scene.part()
    part.proxy.stall()
    scene.last(scene.rng.uniform(1, 9), part.proxy.flow, part.name)


def double_bells(scene: Scene) -> None:
    """Rings nobody asked for: by the message that scripts push, and by Celery itself, twice."""
    scene.redis_is_up()
    core = _some_core(scene)
    app = make_celery(Settings(redis_url=scene.fleet.redis.url))
    envelope = bell_envelope(app)
    with contextlib.suppress(Exception), scene.fleet.redis.client() as raw:
        for number in range(scene.rng.randint(1, 5)):
            bell_id = f"chaos-{scene.struck.total()}-{number}"
            raw.lpush(core.queue, envelope.replace(BELL_ID, bell_id).replace(BELL_QUEUE, core.queue))
        ring_core(app, core)
        ring_core(app, core)
    app.close()


def lose_bells(scene: Scene) -> None:
    """The messages on a core's queue vanish, and so does the push that would wake its drain."""
    scene.redis_is_up()
    core = _some_core(scene)
    with scene.fleet.redis.client() as raw, contextlib.suppress(redis.RedisError):
        raw.delete(core.queue, f"cl:wake:{core}")


def _some_core(scene: Scene) -> Core:
    core = scene.rng.choice(scene.fleet.workers).core
    assert core is not None
    return core


def move_clock(scene: Scene) -> None:
    """The wall clock of one part's host jumps by hours, and stays there."""
    part = scene.part()
    part.move_clock(scene.rng.uniform(600, 80_000) * scene.rng.choice((-1, 1)))
    scene.leave(part.name)


#: Every fault with how often it comes up in one deck.
DECK: dict[Callable[[Scene], None], int] = {
    kill_child: 8,
    kill_parent: 4,
    freeze_child: 2,
    freeze_parent: 1,
    freeze_keeper_or_api: 1,
    kill_redis: 3,
    shut_redis_down: 1,
    freeze_redis: 1,
    fill_disk: 1,
    fill_memory: 1,
    forget_scripts: 2,
    kill_api: 3,
    kill_api_at_a_point: 2,
    kill_keeper: 2,
    kill_keeper_at_a_point: 1,
    stop_in_order: 3,
    cut: 5,
    half_open: 3,
    delay: 2,
    stall: 2,
    double_bells: 3,
    lose_bells: 3,
    move_clock: 2,
}


def schedule(rng: random.Random, count: int, only: Collection[str] = ()) -> list[Callable[[Scene], None]]:
    """``count`` faults, of the kinds in ``only`` if it names some: each kind once in random order, then whole decks,
    shuffled.
    """
    kinds = {fault: times for fault, times in DECK.items() if not only or fault.__name__ in only}
    if len(kinds) < len(only):
        raise ValueError(f"not all of {sorted(only)} are faults: {sorted(fault.__name__ for fault in DECK)}")
    drawn = list(kinds)
    rng.shuffle(drawn)
    while len(drawn) < count:
        deck = [fault for fault, times in kinds.items() for _ in range(times)]
        rng.shuffle(deck)
        drawn += deck
    return drawn[:count]


def strike_all(scene: Scene, faults: list[Callable[[Scene], None]]) -> None:
    """One after another, with pauses, until all have ended."""
    try:
        for fault in faults:
            time.sleep(scene.rng.uniform(*PAUSE_S))
            if strike(scene, fault):
                scene.struck[fault.__name__] += 1
            else:
                scene.missed[fault.__name__] += 1
    finally:
        scene.settle()


def strike(scene: Scene, fault: Callable[[Scene], None]) -> bool:
    """Strike once a victim is there; False if none came."""
    deadline = time.monotonic() + VICTIM_S
    while time.monotonic() < deadline:
        try:
            fault(scene)
        except NoVictim:
            time.sleep(0.1)
        else:
            return True
    return False
