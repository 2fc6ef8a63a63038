"""Two cores leave and come back under load, again and again: in order, killed, or killed while they stop in order, as
platforms do that ignore the grace period. Nothing is lost and nothing is answered twice.

``make scale`` does it fifty times.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from corelane.domain.dispatch import Core
from tests.chaos.audit import audit
from tests.chaos.load import Load
from tests.chaos.watch import Watch
from tests.tools.fleet import SHAKEN, Fleet, child_of, launch, running
from tests.tools.waiting import eventually

#: How a core leaves.
WAYS = ("in order", "killed", "killed while it stops")

#: A worker that is asked to stop has ended well within this, in seconds.
STOP_S = 60

#: Longest time that the fleet has both cores, or none, in seconds.
BOTH_S, NONE_S = 2.0, 1.5

CORES = (0, 1)

#: Threads that follow the jobs they submit, and that only submit.
THREADS, STEADY = 3, 2


class Workers:
    """The workers of a fleet's cores, which the test starts and ends."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def scale_out(self, index: int) -> None:
        """Start the worker of a core."""
        env = (
            os.environ | SHAKEN | {"CORELANE_REDIS_URL": self._fleet.redis.url, "CORELANE_CORE_HOST": self._fleet.host}
        )
        argv = [sys.executable, "-m", "corelane", "worker", "--core", str(index)]
        self._processes[index] = launch(argv, env, self._fleet.data / f"core{index}.log")

    def scale_in(self, index: int, way: str, rng: random.Random) -> None:
        """End the worker of a core, which does not come back."""
        process = self._processes.pop(index)
        if way != "killed":
            process.terminate()
        if way == "killed while it stops":
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, 0.5))
        if way != "in order":
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)

    def wait_up(self) -> None:
        """Wait until each of them serves its core."""
        for index, process in self._processes.items():
            core = Core(self._fleet.host, index)
            eventually(partial(child_of, self._fleet.redis, core, process.pid))


def wasted(fleet: Fleet) -> dict[str, int]:
    """Return the tokens that were read in vain, by reason."""
    metric = "corelane_wasted_tokens_total|"
    with fleet.redis.client() as raw:
        sums = raw.hgetall("cl:metrics")
    return {name.removeprefix(metric): int(total) for name, total in sums.items() if name.startswith(metric)}


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nothing_is_lost_or_answered_twice_while_cores_come_and_go(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds, seed = request.config.getoption("--rounds"), request.config.getoption("--seed")
    rng = random.Random(seed)
    ways: Counter[str] = Counter()
    front = ("--roles", "keeper,api")
    with running(Fleet(tmp_path, *front, settings=SHAKEN, proxied=True)) as fleet:
        workers = Workers(fleet)
        for index in CORES:
            workers.scale_out(index)
        workers.wait_up()
        with Watch(fleet.redis) as watch:
            with Load(fleet.url, seed, THREADS, steady=STEADY) as load:
                for _ in range(rounds):
                    time.sleep(rng.uniform(0, BOTH_S))  # of load
                    for index in rng.sample(CORES, len(CORES)):
                        ways[way := rng.choice(WAYS)] += 1
                        workers.scale_in(index, way, rng)
                    time.sleep(rng.uniform(0, NONE_S))
                    for index in CORES:
                        workers.scale_out(index)
                    workers.wait_up()
            findings = audit(fleet, load, watch.sight, strange_ends=fleet.strange_ends())
        with capsys.disabled():
            sys.stdout.write(
                f"\n{rounds} times from 2 cores to 0 to 2 ({dict(ways)}): {findings.jobs} jobs, {findings.items} "
                f"items, {findings.lost} lost, {findings.repeated_results} twice; read in vain: {wasted(fleet)}\n"
            )
        for index in CORES:
            workers.scale_in(index, "in order", rng)
    assert findings.jobs > 0
    assert not findings.problems, "\n".join(findings.problems)
