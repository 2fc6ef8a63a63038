"""``corelane serve``: which roles a host has, what is refused before anything starts, and what is printed."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from corelane.cli.serve import ROLES, check_options, choose_roles, in_order
from corelane.cli.serve_output import PrettyOutput, as_object, own_command, ready_page
from corelane.cli.webhook_secrets import make_secret
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


@pytest.mark.parametrize(
    ("part", "line", "event", "level"),
    [
        (
            "redis",
            "10475:M 22 Nov 2026 02:11:10.790 # WARNING Memory overcommit",
            "WARNING Memory overcommit",
            "warning",
        ),
        ("redis", "1:C 2 Nov 2026 02:11:10.790 * oO0O", "oO0O", "info"),
        ("flower", "[E 261122 02:12:15 events:228] Failed to capture", "Failed to capture", "error"),
        ("api", "Traceback (most recent call last):", "Traceback (most recent call last):", "info"),
        ("core0", '{"event": "drained", "level": "warning"}', "drained", "warning"),
        ("core0", '{"event": cut', '{"event": cut', "info"),
        ("compile", "\x1b[32mdone\x1b[0m", "done", "info"),
    ],
)
def test_line_of_a_part_becomes_an_object(part: str, line: str, event: str, level: str) -> None:
    found = as_object(part, line)
    assert (found["part"], found["event"], found["level"]) == (part, event, level)


def test_command_to_try_is_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, cores=2, port=18100, webhook_secret=make_secret(tmp_path))
    out = io.StringIO()
    output = PrettyOutput(Console(file=out, width=80, highlight=False, soft_wrap=True))
    output.announce(ready_page(settings, "secret", frozenset(ROLES)))
    [line] = [line for line in out.getvalue().splitlines() if line.startswith("Try")]
    assert (
        line == f'Try      {own_command()} ask "Who wrote it?" --context "Ada wrote it." --url http://127.0.0.1:18100'
    )
    assert "Stop     Ctrl-C" in out.getvalue()
    assert f"Secret   {own_command()} webhooks secret --data {tmp_path}" in out.getvalue().splitlines()


def test_command_is_named_by_its_path_where_the_shell_would_not_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert Path(own_command().split()[0]).is_absolute()
