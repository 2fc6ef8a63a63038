"""A network of hosts with a fleet on it, for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.fleet import HostFleet
from tests.hosts.network import Switch, need_namespaces


@pytest.fixture
def hosts(tmp_path: Path, built_in_data: Path) -> Iterator[HostFleet]:
    """Start a fleet on three hosts that answers with the built-in model; skip where there can be none."""
    need_namespaces()
    settings = {"CORELANE_ARTIFACTS_DIR": f"{built_in_data}/artifacts"}
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
