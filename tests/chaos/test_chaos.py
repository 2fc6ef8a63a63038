"""Everything that can fail is made to fail, by a seeded schedule, under load. Then an audit from outside: every
accepted item is answered once, every end is told once, and nothing is left over.

In `make test` each kind of fault strikes once; `make chaos` draws hundreds, seed after seed.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.engine.cores import cpu_slots
from tests.chaos.audit import Findings, audit
from tests.chaos.faults import DECK, Scene, schedule, strike_all
from tests.chaos.fleet import ChaosFleet
from tests.chaos.load import Load
from tests.chaos.report import Report
from tests.chaos.watch import Watch

#: The fleet is whole again this long after the last fault, in seconds.
WHOLE_S = 60

#: Most items of a job when a model answers them.
MODEL_ITEMS = 60


@contextmanager
def running(fleet: ChaosFleet) -> Iterator[ChaosFleet]:
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def settings_for(request: pytest.FixtureRequest) -> dict[str, str]:
    """The engine of the fleet: none by default, the built-in model with ``--chaos-model``."""
    if not request.config.getoption("--chaos-model"):
        return {}
    built_in: Path = request.getfixturevalue("built_in_data")
    return {"CORELANE_TARGET": "cpu", "CORELANE_MODEL": "qa-minilm", "CORELANE_ARTIFACTS_DIR": f"{built_in}/artifacts"}


def strike_and_audit(
    fleet: ChaosFleet,
    report: Report,
    settings: Mapping[str, str],
    seed: int,
    faults: list[Callable[[Scene], None]],
) -> Findings:
    rng, began = random.Random(seed), time.monotonic()
    most = {"most_items": MODEL_ITEMS} if settings else {}
    with Watch(fleet.redis) as watch:
        scene = Scene(fleet, watch, rng)
        with Load(fleet.url, seed, **most) as load:
            strike_all(scene, faults)
        fleet.wait_whole(WHOLE_S)
        findings = audit(fleet, load, watch.sight)
    engine = settings.get("CORELANE_TARGET", "null")
    seconds = time.monotonic() - began
    report.add(seed=seed, engine=engine, seconds=seconds, scene=scene, load=load, fleet=fleet, findings=findings)
    return findings


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_every_item_is_answered_once_whatever_fails(
    request: pytest.FixtureRequest, tmp_path: Path, report: Report, seed: int
) -> None:
    settings = settings_for(request)
    only = [name for name in request.config.getoption("--only").split(",") if name]
    count = request.config.getoption("--faults") or len(only or DECK)
    faults = schedule(random.Random(seed), count, only)
    with running(ChaosFleet(tmp_path / "fleet", min(2, len(cpu_slots())), settings)) as fleet:
        findings = strike_and_audit(fleet, report, settings, seed, faults)
    assert findings.jobs > 0
    assert not findings.problems, "\n".join(findings.problems)
