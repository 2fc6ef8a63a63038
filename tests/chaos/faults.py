"""The faults of a chaos run, and the schedule they are drawn by: seeded, so that a run can be repeated.

A fault strikes at once, and may last: what ends it is done later, while others strike. While it lasts it keeps its
victims to itself, so that no two faults disturb the same part. A fault that finds no victim waits for one; if none
comes, that is told in the report. From the end of a fault it is measured how long its victims take to be back.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Collection

import redis

from corelane.broker.app import BELL_ID, BELL_QUEUE, bell_envelope, make_celery, ring_core
from corelane.domain.dispatch import Core
from corelane.settings import Settings
from tests.chaos.scene import NoVictim, Scene
from tests.chaos.watch import held_by
from tests.tools.proxy import Proxy
from tests.tools.servers import DurableRedis

#: A fault waits this long for a victim, in seconds.
VICTIM_S = 20

#: Pause between two faults, in seconds, and where each kind strikes once.
PAUSE_S, SHORT_PAUSE_S = (0.2, 1.6), (0.1, 0.9)

#: Longer than a lease (6 s), so that a frozen core wakes up without its work; seconds.
FREEZE_S = (7.0, 13.0)

#: Fault points of the API and the keeper.
API_POINTS = ("submit.payloads_written", "submit.accepted", "feed.fed")
KEEPER_POINTS = ("keeper.leases_returned", "feed.fed")

Fault = Callable[[Scene], None]


def kill_child(scene: Scene) -> None:
    name, child = scene.worker()
    _kill_worker(scene, name, child, child)


def kill_parent(scene: Scene) -> None:
    name, child = scene.worker()
    _kill_worker(scene, name, child, scene.fleet.pid_of(name))


def _kill_worker(scene: Scene, name: str, child: int, victim: int) -> None:
    """Kill a process of a worker, and measure when what it held is answered."""
    try:
        with scene.fleet.redis.client() as raw:
            os.kill(victim, signal.SIGKILL)
            scene.killed[name] += victim != child
            with contextlib.suppress(redis.RedisError):
                core = str(scene.fleet.core_of(name))
                scene.watch.expect("child" if victim == child else "parent", held_by(raw, core))
    except ProcessLookupError:
        raise NoVictim from None
    finally:
        scene.over("kill_child" if victim == child else "kill_parent", name)


def freeze_child(scene: Scene) -> None:
    """Stop a child for longer than its lease: it wakes up to commit items that others have answered."""
    name, child = scene.worker()
    os.kill(child, signal.SIGSTOP)
    scene.last("freeze_child", scene.rng.uniform(*FREEZE_S), lambda: _wake(child), name)


def freeze_part(scene: Scene) -> None:
    """Any process that `serve` started, but for Redis, stopped for up to 13 s."""
    _freeze(scene, "freeze_part", scene.part(), (1.0, 13.0))


def freeze_sender(scene: Scene) -> None:
    _freeze(scene, "freeze_sender", scene.part("deliveries"), (7.0, 13.0))


def _freeze(scene: Scene, fault: str, name: str, seconds: tuple[float, float]) -> None:
    pid = scene.fleet.pid_of(name)
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        scene.leave(name)
        raise NoVictim from None
    scene.last(fault, scene.rng.uniform(*seconds), lambda: _wake(pid), name)


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def kill_redis(scene: Scene) -> None:
    scene.take("redis")
    scene.fleet.redis.kill()
    scene.killed["redis"] += 1
    scene.last("kill_redis", scene.rng.uniform(0.0, 2.5), scene.fleet.redis.start, "redis")


def kill_redis_twice(scene: Scene) -> None:
    """Killed, up again, and killed again within ten seconds."""
    scene.take("redis")
    began = time.monotonic()
    scene.fleet.redis.kill()
    scene.killed["redis"] += 2

    def again() -> None:
        scene.fleet.redis.start()
        time.sleep(max(0.0, min(began + 9, time.monotonic() + scene.rng.uniform(0.5, 6)) - time.monotonic()))
        scene.fleet.redis.kill()
        scene.fleet.redis.start()

    scene.last("kill_redis_twice", scene.rng.uniform(0.0, 1.0), again, "redis")


def shut_redis_down(scene: Scene) -> None:
    scene.take("redis")
    scene.fleet.redis.shut_down()
    scene.asked["redis"] += 1
    scene.last("shut_redis_down", scene.rng.uniform(0.0, 2.5), scene.fleet.redis.start, "redis")


def freeze_redis(scene: Scene) -> None:
    """Freeze Redis: commands sent meanwhile are done when it wakes up, though nobody waits for the reply any more."""
    scene.take("redis")
    scene.fleet.redis.freeze()
    scene.last("freeze_redis", scene.rng.uniform(3, 10), scene.fleet.redis.thaw, "redis")


def stop_redis_shortly(scene: Scene) -> None:
    scene.take("redis")
    scene.fleet.redis.freeze()
    scene.last("stop_redis_shortly", scene.rng.uniform(0.1, 1.5), scene.fleet.redis.thaw, "redis")


def fill_disk(scene: Scene) -> None:
    server = scene.fleet.redis
    if not isinstance(server, DurableRedis):
        raise TypeError("only our own Redis can have a full disk")
    scene.take("redis")
    server.fill_disk()
    scene.last("fill_disk", scene.rng.uniform(3, 6), server.free_disk, "redis")


def fill_memory(scene: Scene) -> None:
    scene.take("redis")
    try:
        scene.fleet.redis.limit_memory(1)
    except redis.RedisError:
        scene.leave("redis")
        raise NoVictim from None
    scene.last("fill_memory", scene.rng.uniform(1, 4), lambda: scene.fleet.redis.limit_memory(0), "redis")


def forget_library(scene: Scene) -> None:
    scene.redis_is_up()
    with scene.fleet.redis.client() as raw, contextlib.suppress(redis.RedisError):
        raw.function_flush("SYNC")


def kill_api(scene: Scene) -> None:
    _kill(scene, "kill_api", scene.part("api"))


def kill_keeper(scene: Scene) -> None:
    _kill(scene, "kill_keeper", scene.part("keeper"))


def kill_sender(scene: Scene) -> None:
    _kill(scene, "kill_sender", scene.part("deliveries"))


def kill_flower(scene: Scene) -> None:
    _kill(scene, "kill_flower", scene.part("flower"))


def _kill(scene: Scene, fault: str, name: str) -> None:
    scene.fleet.signal(name, signal.SIGKILL)
    scene.killed[name] += 1
    scene.over(fault, name)


def kill_all_but_the_api(scene: Scene) -> None:
    """Kill the keeper, the sender and a worker at the same moment."""
    names = ["keeper", "deliveries", scene.rng.choice(scene.fleet.workers)]
    if not all(map(scene.fleet.is_up, names)):
        raise NoVictim
    scene.take(*names)
    for name in names:
        scene.fleet.signal(name, signal.SIGKILL)
        scene.killed[name] += 1
    scene.over("kill_all_but_the_api", *names)


def kill_api_at_a_point(scene: Scene) -> None:
    """Killed, and again in the middle of one of the next submits."""
    _arm(scene, "kill_api_at_a_point", scene.part("api"), API_POINTS)


def kill_keeper_at_a_point(scene: Scene) -> None:
    """Killed, and again right after the next time it returned a lease."""
    _arm(scene, "kill_keeper_at_a_point", scene.part("keeper"), KEEPER_POINTS)


def _arm(scene: Scene, fault: str, name: str, points: tuple[str, ...]) -> None:
    scene.fleet.arm(name, ",".join(f"{point}:0.3" for point in points))
    _kill(scene, fault, name)


def stop_in_order(scene: Scene) -> None:
    """Asked to stop, as in an upgrade: a worker hands over what it has not answered."""
    name = scene.part()
    scene.fleet.signal(name, signal.SIGTERM)
    scene.asked[name] += 1
    scene.over("stop_in_order", name)


def cut(scene: Scene) -> None:
    """All connections of a part to Redis end."""
    name = scene.part()
    ports = scene.fleet.ports_of(name)
    if scene.fleet.proxy is not None:
        scene.fleet.proxy.cut(ports)
    else:
        with contextlib.suppress(redis.RedisError), scene.fleet.redis.client() as raw:
            for client in raw.client_list():
                if int(client["addr"].rpartition(":")[2]) in ports:
                    raw.client_kill_filter(_id=client["id"])
    scene.over("cut", name)


def half_open(scene: Scene) -> None:
    name = scene.part()
    _proxy(scene).half_open(scene.fleet.ports_of(name))
    scene.over("half_open", name)


def delay(scene: Scene) -> None:
    name = scene.part()
    proxy, ports = _proxy(scene), scene.fleet.ports_of(name)
    proxy.delay(scene.rng.uniform(0.2, 0.8), ports)
    scene.last("delay", scene.rng.uniform(2, 6), lambda: proxy.delay(0, ports), name)


def stall(scene: Scene) -> None:
    name = scene.part()
    proxy, ports = _proxy(scene), scene.fleet.ports_of(name)
    proxy.stall(ports)
    scene.last("stall", scene.rng.uniform(1, 9), lambda: proxy.flow(ports), name)


def _proxy(scene: Scene) -> Proxy:
    if scene.fleet.proxy is None:
        raise TypeError("there is no proxy before this Redis")
    return scene.fleet.proxy


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
    """Delete the messages on a core's queue, and the push that would wake its drain."""
    scene.redis_is_up()
    core = _some_core(scene)
    with scene.fleet.redis.client() as raw, contextlib.suppress(redis.RedisError):
        raw.delete(core.queue, f"cl:wake:{core}")


def _some_core(scene: Scene) -> Core:
    return scene.fleet.core_of(scene.rng.choice(scene.fleet.workers))


def move_clock(scene: Scene) -> None:
    """Move the wall clock of one part's host by hours; it stays there."""
    name = scene.part()
    scene.fleet.move_clock(name, scene.rng.uniform(600, 80_000) * scene.rng.choice((-1, 1)))
    scene.over("move_clock", name)


#: Every fault with how often it comes up in one deck.
DECK: dict[Fault, int] = {
    kill_child: 7,
    kill_parent: 4,
    freeze_child: 2,
    freeze_part: 3,
    freeze_sender: 2,
    kill_redis: 3,
    kill_redis_twice: 2,
    shut_redis_down: 1,
    freeze_redis: 1,
    stop_redis_shortly: 3,
    fill_memory: 1,
    forget_library: 2,
    kill_api: 4,
    kill_api_at_a_point: 2,
    kill_keeper: 3,
    kill_keeper_at_a_point: 1,
    kill_sender: 4,
    kill_flower: 2,
    kill_all_but_the_api: 1,
    stop_in_order: 3,
    cut: 5,
    double_bells: 2,
    lose_bells: 3,
    move_clock: 2,
}

#: What needs our own Redis behind a proxy.
PROXIED: dict[Fault, int] = {fill_disk: 1, half_open: 3, delay: 2, stall: 2}


def deck(*, proxied: bool) -> dict[Fault, int]:
    """Return the faults there are, with or without a proxy before Redis."""
    return DECK | PROXIED if proxied else DECK


def schedule(rng: random.Random, count: int, only: Collection[str] = (), *, proxied: bool = False) -> list[Fault]:
    """``count`` faults, of the kinds in ``only`` if it names some: each kind once in random order, then whole decks,
    shuffled.
    """
    known = deck(proxied=proxied)
    kinds = {fault: times for fault, times in known.items() if not only or fault.__name__ in only}
    if len(kinds) < len(only):
        raise ValueError(f"not all of {sorted(only)} are faults: {sorted(fault.__name__ for fault in known)}")
    drawn = list(kinds)
    rng.shuffle(drawn)
    while len(drawn) < count:
        more = [fault for fault, times in kinds.items() for _ in range(times)]
        rng.shuffle(more)
        drawn += more
    return drawn[:count]


def strike_all(scene: Scene, faults: list[Fault], pause_s: tuple[float, float]) -> None:
    """One after another, with pauses, until all have ended."""
    try:
        for fault in faults:
            time.sleep(scene.rng.uniform(*pause_s))
            if strike(scene, fault):
                scene.struck[fault.__name__] += 1
            else:
                scene.missed[fault.__name__] += 1
    finally:
        scene.settle()


def strike(scene: Scene, fault: Fault) -> bool:
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
