"""`corelane serve` while everything that can fail is made to fail, by a seeded schedule, under load. Then an audit from
outside: every accepted item is answered once, every end is told once and delivered, nothing is left over, and `serve`
itself never ended.

In `make test-long-runs` each kind of fault strikes once; `make chaos` draws hundreds, seed after seed. Seeds of odd
numbers run on the Redis that `serve` starts, the others on one of ours behind a proxy.
"""

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corelane.domain.jobs import DEFAULT_TASK
from tests.chaos.audit import Findings, audit
from tests.chaos.faults import PAUSE_S, SHORT_PAUSE_S, Fault, deck, schedule, strike_all
from tests.chaos.hooks import Hooks, hooks
from tests.chaos.load import OTHERS, Load, make
from tests.chaos.report import Report
from tests.chaos.scene import Scene
from tests.chaos.watch import Watch
from tests.tools.fleet import SHAKEN, Fleet, running

#: The fleet is whole again this long after the last fault, in seconds.
WHOLE_S = 90

#: A job is accepted, answered and told of this long after a fault, or something has stalled, in seconds: far more than
#: is promised.
NEVER_S = 90

#: Most items of a job when a model answers them.
MODEL_ITEMS = 60

#: Threads that follow the jobs they submit, and that only submit small ones: some 600 jobs a minute. Where each kind of
#: fault strikes once, half as many.
THREADS, FEW_THREADS = (6, 4), (3, 2)


def settings_for(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the settings for the engine: none by default, the built-in model with ``--chaos-model``."""
    if not request.config.getoption("--chaos-model"):
        return {}
    built_in: Path = request.getfixturevalue("built_in_data")
    return {"CORELANE_TARGET": "cpu", "CORELANE_MODEL": "qa-minilm", "CORELANE_ARTIFACTS_DIR": f"{built_in}/artifacts"}


def told_again(load: Load, found: Hooks, name: str) -> float:
    """Seconds until a job that is submitted from now on is accepted, answered and told; raises TimeoutError if it is
    not.
    """
    began, seen, tries = time.monotonic(), 0, 1
    job = make(f"{name}-{tries}", 1, webhook={"url": found.url})
    with httpx2.Client(base_url=load.url, timeout=10) as http:
        while not load.submit(http, job):
            if time.monotonic() - began > NEVER_S:
                raise TimeoutError(f"nothing was accepted for {NEVER_S} s")
            time.sleep(0.1)
            tries += 1
            job = make(f"{name}-{tries}", 1, webhook={"url": found.url})
    while time.monotonic() - began < NEVER_S:
        posts = found.found.posts[seen:]
        if any(job.id.encode() in post.body for post in posts):
            return time.monotonic() - began
        seen += len(posts)
        time.sleep(0.05)
    raise TimeoutError(f"{job.id} was not told of for {NEVER_S} s")


def strike_and_audit(
    fleet: Fleet,
    report: Report,
    settings: Mapping[str, str],
    seed: int,
    faults: list[Fault],
    pause_s: tuple[float, float],
    threads: tuple[int, int],
) -> Findings:
    rng, began = random.Random(seed), time.monotonic()
    following, steady = threads
    # The null engine answers every task; the built-in model one.
    most: dict[str, Any] = {"most_items": MODEL_ITEMS} if settings else {"tasks": [DEFAULT_TASK, *OTHERS]}
    sending_s: dict[str, float] = {}
    with hooks(seed) as found, Watch(fleet.redis) as watch, Scene(fleet, watch, rng) as scene:
        with Load(fleet.url, seed, following, steady=steady, hook=found.url, **most) as load:
            told_again(load, found, f"{seed}-first")
            fleet.redis.kill()
            scene.killed["redis"] += 1
            fleet.redis.start()
            sending_s["after Redis was killed alone"] = told_again(load, found, f"{seed}-second")
            struck = time.monotonic()
            strike_all(scene, faults, pause_s)
            ended = time.monotonic()
            sending_s["after the last fault"] = told_again(load, found, f"{seed}-last")
            sending_s["longest silence"] = found.longest_silence(struck, ended)
        fleet.wait_whole(WHOLE_S)
        strange = fleet.strange_ends(scene.killed, scene.asked)
        findings = audit(fleet, load, watch.sight, hooks=found, strange_ends=strange)
    report.add(
        seed=seed,
        engine=settings.get("CORELANE_TARGET", "null"),
        seconds=time.monotonic() - began,
        scene=scene,
        load=load,
        hooks=found,
        sending_s=sending_s,
        findings=findings,
    )
    return findings


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_every_item_is_answered_once_whatever_fails(
    request: pytest.FixtureRequest, tmp_path: Path, report: Report, seed: int
) -> None:
    settings, proxied = settings_for(request), seed % 2 == 0
    only = [name for name in request.config.getoption("--only").split(",") if name]
    wanted = request.config.getoption("--faults")
    count = wanted or len(only or deck(proxied=proxied))
    pause_s, threads = (PAUSE_S, THREADS) if wanted else (SHORT_PAUSE_S, FEW_THREADS)
    faults = schedule(random.Random(seed), count, only, proxied=proxied)
    tasks = {} if settings else {"CORELANE_MODELS": ",".join(OTHERS)}
    with running(Fleet(tmp_path, settings=SHAKEN | tasks | settings, proxied=proxied, shaken=True)) as fleet:
        findings = strike_and_audit(fleet, report, settings, seed, faults, pause_s, threads)
    assert findings.jobs > 0
    assert not findings.problems, "\n".join(findings.problems)
