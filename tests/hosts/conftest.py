"""A network of hosts with a fleet on it, for one test; the null engine answers, or the built-in model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.fleet import HostFleet, running_hosts
from tests.hosts.network import Switch, need_namespaces

#: The built-in model.
MODEL = {"CORELANE_TARGET": "cpu", "CORELANE_MODEL": "qa-minilm"}


@pytest.fixture
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostFleet]:
    """Start a fleet on three hosts; skip where there can be none."""
    need_namespaces()
    settings: dict[str, str] = {}
    if request.config.getoption("--chaos-model"):
        settings = MODEL | {"CORELANE_ARTIFACTS_DIR": f"{request.getfixturevalue('built_in_data')}/artifacts"}
    with Switch(tmp_path) as switch, running_hosts(HostFleet(tmp_path, switch, settings)) as fleet:
        yield fleet


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a ``seed`` once for each of ``--rounds``."""
    if "seed" in metafunc.fixturenames:
        first, rounds = metafunc.config.getoption("--seed"), metafunc.config.getoption("--rounds")
        metafunc.parametrize("seed", range(first, first + rounds))
