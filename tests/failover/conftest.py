"""The service on a given Redis, without a model; the report of promotions, shown after the tests."""

from pathlib import Path

import pytest

from tests.tools.fleet import Fleet, start_fleet

LINES = pytest.StashKey[list[str]]()


def serve_null(folder: Path, redis_url: str, *extra: str, **settings: str) -> Fleet:
    """Start `corelane serve` whose engine answers at once with nothing."""
    null = {"CORELANE_TARGET": "null", "CORELANE_MODEL": "null", "CORELANE_NULL_BATCH_S": "0.02"}
    data = folder / "data"
    data.mkdir()
    return start_fleet(data, folder / "artifacts", "--redis", redis_url, *extra, **(null | settings))


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Return the lines that are shown after the tests."""
    return pytestconfig.stash.setdefault(LINES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print them."""
    if lines := config.stash.get(LINES, []):
        terminalreporter.section("failover")
        for line in lines:
            terminalreporter.write_line(line)
