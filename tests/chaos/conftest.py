"""The fleet of one core that gentle tests share; the report of a chaos session, shown after the tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.audit import TIDY_S, wait_until_told_truly
from tests.chaos.report import Report
from tests.tools.fleet import SHAKEN, Fleet, running

HERE = Path(__file__).parent

REPORT = pytest.StashKey[Report]()


@pytest.fixture(scope="session")
def one_core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a fleet of one core whose engine takes no time; tests leave it whole, or on its way there."""
    settings = SHAKEN | {"CORELANE_NULL_BATCH_S": "0", "CORELANE_FEED_TOKENS": "20000"}
    options, folder = ("--cores", "1", "--no-flower"), tmp_path_factory.mktemp("one-core")
    with running(Fleet(folder, *options, settings=settings, proxied=True, shaken=True)) as fleet:
        yield fleet


@pytest.fixture
def one_core_redis(one_core: Fleet) -> Iterator[Any]:
    """Yield a client of its Redis, past the proxies, once it is whole."""
    one_core.wait_whole(60)
    with one_core.redis.client() as client:
        yield client


@pytest.fixture(autouse=True)
def _metrics_tell_the_truth(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check, after each test of a fleet that goes on, that the metrics tell what its store holds."""
    yield
    found = request.node.funcargs
    for fleet in {found[name] for name in ("one_core", "fleet") if isinstance(found.get(name), Fleet)}:
        with fleet.redis.client() as raw:
            assert wait_until_told_truly(raw, TIDY_S) == []


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Report:
    """Return the report of this session."""
    return pytestconfig.stash.setdefault(REPORT, Report())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow chaos tests to `make chaos`."""
    if config.getoption("--faults"):
        return
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip("runs in `make chaos`"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the report."""
    report = config.stash.get(REPORT, None)
    if report is None or not (report.rounds or report.measured):
        return
    terminalreporter.section("chaos")
    for line in report.lines():
        terminalreporter.write_line(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes a ``seed`` once for each of ``--rounds``."""
    if "seed" in metafunc.fixturenames:
        first, rounds = metafunc.config.getoption("--seed"), metafunc.config.getoption("--rounds")
        metafunc.parametrize("seed", range(first, first + rounds))
