"""``corelane serve``: which roles a host has, what is refused before anything starts, and what is printed."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from corelane.cli.commands import CommandGroup
from corelane.cli.serve import ROLES, check_options, choose_roles, in_order, serve
from corelane.cli.serve_output import JsonOutput, PrefixedOutput, own_command, ready_facts
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--reload"], "--reload is of no use without --handler"),
        (["--handler", "a:B", "--handler", "c:D"], "--handler serves one class: package and load the others"),
        (["--handler", "shop.models"], "names no handler; names look like package.module:Class"),
        (["--handler", "a:B", "--roles", "api", "--redis", REDIS], "--handler is of no use without the role worker"),
    ],
)
def test_class_that_cannot_be_served_here_is_refused(options: list[str], said: str) -> None:
    app = CommandGroup()
    app.command()(serve)
    done = CliRunner().invoke(app, options)
    assert (done.exit_code, said in done.stderr) == (1, True), done.stderr


def test_what_this_host_offers_is_shown() -> None:
    settings = Settings(redis_url=REDIS, cores=2)
    workers = ready_facts(settings, "", frozenset({"worker"}))
    assert workers == {"roles": "worker", "redis": REDIS, "cores": 2, "model": "qa-minilm"}
    front = ready_facts(settings, "", frozenset({"api", "keeper"}))
    assert front["roles"] == "api, keeper"
    assert {"api", "try", "webhook_secret"} <= set(front)


def test_lines_have_the_name_of_their_part(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, cores=2, port=18100, webhook_secret=make_secret(tmp_path))
    out = io.StringIO()
    output = PrefixedOutput(Console(file=out, width=60, highlight=False, soft_wrap=True))
    output.show("redis", "\x1b[32mready\x1b[0m")
    output.announce(ready_facts(settings, "secret", frozenset(ROLES)))
    first, *lines = out.getvalue().splitlines()
    assert first == "redis      │ ready"
    assert all(line.startswith("corelane   │ ") for line in lines)
    shown = [line.partition(" │ ")[2] for line in lines]
    attempt = f'{own_command()} ask "Who wrote it?" --context "Ada wrote it." --url http://127.0.0.1:18100'
    assert f"try              {attempt}" in shown
    assert f"webhook secret   {own_command()} webhooks secrets show --data {tmp_path}" in shown
    assert "flower password  secret" in shown


def test_programs_get_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput()
    output.say("starting", "warning")
    output.announce({"api": "http://127.0.0.1:8000"})
    said, ready = map(json.loads, capsys.readouterr().out.splitlines())
    assert (said["event"], said["level"], said["part"]) == ("starting", "warning", "serve")
    assert (ready["event"], ready["api"]) == ("ready", "http://127.0.0.1:8000")


def test_command_is_named_by_its_path_where_the_shell_would_not_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert Path(own_command().split()[0]).is_absolute()
