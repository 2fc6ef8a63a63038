"""Which roles a host has, and what is refused before anything starts."""

import pytest

from corelane.cli.serve import ROLES, check_options, choose_roles, in_order
from corelane.cli.serve_output import ready_page
from corelane.errors import SetupError
from corelane.settings import Settings

REDIS = "redis://queue.example:6379/0"


def test_everything_runs_unless_roles_are_given() -> None:
    assert choose_roles(None, has_redis=False) == frozenset(ROLES)
    assert choose_roles(None, has_redis=True) == frozenset(ROLES) - {"redis"}
    assert "flower" not in choose_roles(None, has_redis=False, has_flower=False)


def test_roles_are_those_given() -> None:
    assert choose_roles("worker", has_redis=True) == {"worker"}
    assert choose_roles(" api, redis ,keeper,", has_redis=False) == {"api", "redis", "keeper"}
    assert in_order({"flower", "worker", "redis"}) == ["redis", "worker", "flower"]


@pytest.mark.parametrize(
    ("wanted", "has_redis", "about"),
    [
        ("worker", False, "--redis URL or CORELANE_REDIS_URL"),
        ("api,redis", True, "drop one of the two"),
        ("wroker", True, "'wroker' is no role; choose among redis, keeper, worker"),
        (",", True, "names no role"),
    ],
)
def test_unclear_roles_are_refused(wanted: str, has_redis: bool, about: str) -> None:
    with pytest.raises(SetupError, match=about):
        choose_roles(wanted, has_redis=has_redis)


def test_options_of_roles_that_are_not_here_are_refused() -> None:
    check_options({"port": 8000, "cores": None}, frozenset({"api"}))
    with pytest.raises(SetupError, match="--flower-port is of no use without the role flower"):
        check_options({"flower_port": 1}, frozenset({"api"}))


def test_page_shows_what_this_host_offers() -> None:
    settings = Settings(redis_url=REDIS, cores=2)
    workers = ready_page(settings, "", frozenset({"worker"}))
    assert "2 cores, qa-minilm" in workers.panel
    assert "API" not in workers.panel
    assert "Webhooks" not in workers.panel
    assert (workers.below, workers.facts) == (
        "",
        {"roles": ["worker"], "redis": REDIS, "cores": 2, "model": "qa-minilm"},
    )
    front = ready_page(settings, "", frozenset({"api", "keeper"}))
    assert "ready[/]: api, keeper" in front.panel
    assert {"api", "try"} <= set(front.facts)
