"""Two cores leave and come back under load, again and again: in order, killed, or killed while they stop in order, as
platforms do that ignore the grace period. Nothing is lost and nothing is answered twice.

``make scale`` does it fifty times.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.audit import audit
from tests.chaos.fleet import ChaosFleet
from tests.chaos.load import Load
from tests.chaos.watch import Watch
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


class ScaledFleet(ChaosFleet):
    """A fleet whose cores are started and ended by the test; it is ready with none."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, len(CORES), {"CORELANE_MIN_CORES": "0"})

    def scale_out(self, index: int) -> None:
        """Start the worker of a core."""
        self._add(f"core{index}", [sys.executable, "-m", "corelane", "worker", "--core", str(index)])

    def scale_in(self, index: int, way: str, rng: random.Random) -> None:
        """End the worker of a core, which does not come back."""
        part = self.parts.pop(f"core{index}")
        if way != "killed":
            part.process.terminate()
        if way == "killed while it stops":
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.process.wait(rng.uniform(0, 0.5))
        if way != "in order":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)
        part.process.wait(STOP_S)
        part.clock.close()

    def wasted(self) -> dict[str, int]:
        """Return the tokens that were read in vain, by reason."""
        metric = "corelane_wasted_tokens_total|"
        with self.redis.client() as raw:
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
    fleet = ScaledFleet(tmp_path / "fleet")
    try:
        fleet.start()
        with Watch(fleet.redis) as watch:
            with Load(fleet.url, seed, THREADS, steady=STEADY) as load:
                for _ in range(rounds):
                    time.sleep(rng.uniform(0, BOTH_S))  # of load
                    for index in rng.sample(CORES, len(CORES)):
                        ways[way := rng.choice(WAYS)] += 1
                        fleet.scale_in(index, way, rng)
                    time.sleep(rng.uniform(0, NONE_S))
                    for index in CORES:
                        fleet.scale_out(index)
                    eventually(lambda: len(fleet.workers) == len(CORES) and fleet.is_whole())
            findings = audit(fleet, load, watch.sight, strange_ends=fleet.strange_ends())
        with capsys.disabled():
            sys.stdout.write(
                f"\n{rounds} times from 2 cores to 0 to 2 ({dict(ways)}): {findings.jobs} jobs, {findings.items} "
                f"items, {findings.lost} lost, {findings.repeated_results} twice; read in vain: {fleet.wasted()}\n"
            )
    finally:
        fleet.stop()
    assert findings.jobs > 0
    assert not findings.problems, "\n".join(findings.problems)
