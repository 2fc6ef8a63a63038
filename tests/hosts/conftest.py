"""A network of hosts with a fleet on it, for one test; the null engine answers, or the built-in model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.fleet import HostFleet
from tests.hosts.network import Switch, need_namespaces

#: So that work is in flight when a host is cut off, the null engine takes its time.
NULL = {"CORELANE_TARGET": "null", "CORELANE_MODEL": "null", "CORELANE_NULL_BATCH_S": "0.1"}


@pytest.fixture
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostFleet]:
    """Start a fleet on three hosts; skip where there can be none."""
    need_namespaces()
    settings = NULL
    if request.config.getoption("--chaos-model"):
        settings = {"CORELANE_ARTIFACTS_DIR": f"{request.getfixturevalue('built_in_data')}/artifacts"}
    with Switch(tmp_path) as switch:
        fleet = HostFleet(tmp_path / "fleet", switch, settings)
        statuses = {}
        try:
            fleet.start()
            yield fleet
        finally:
            statuses = fleet.stop()
        assert not any(statuses.values()), fleet.last_words()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a ``seed`` once for each of ``--rounds``."""
    if "seed" in metafunc.fixturenames:
        first, rounds = metafunc.config.getoption("--seed"), metafunc.config.getoption("--rounds")
        metafunc.parametrize("seed", range(first, first + rounds))
