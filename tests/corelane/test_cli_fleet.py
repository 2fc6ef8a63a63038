"""``corelane cores``, ``models`` and ``health`` for programs, against a service of real sockets."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.metrics.liveness import LivenessFile
from corelane.settings import Settings
from corelane.store.link.blocking import Link
from tests.corelane.stand_in import StandIn, problem

VERSION = "words@1"


def run(*arguments: str, **env: str) -> Result:
    done = CliRunner(env={"COLUMNS": "200"} | env).invoke(make_cli(), arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def line_of(done: Result) -> dict[str, Any]:
    """Return the one line that was printed."""
    [line] = done.stdout.splitlines()
    found: dict[str, Any] = orjson.loads(line)
    return found


@pytest.fixture
def url(service: StandIn) -> list[str]:
    return ["--json", "--url", service.url]


def test_versions_that_come_and_go_are_placements(service: StandIn, url: list[str]) -> None:
    for command in (("load", "words"), ("reload", VERSION)):
        found = line_of(run("models", *command, *url))
        assert (found["object"], found["version"], found["ready_on"]) == ("placement", VERSION, ["testhost/0"])
    assert "ready_on" not in line_of(run("models", "load", "words", "--wait", "0", *url))
    core = line_of(run("cores", *url))
    assert (core["core"], core["models"][0]["version"]) == ("testhost/0", VERSION)
    assert line_of(run("models", "unload", VERSION, *url))["version"] == VERSION
    assert line_of(run("cores", *url))["models"] == []


def test_models_are_lines_and_an_alias_one(service: StandIn, url: list[str]) -> None:
    service.models = [{"id": "words@1"}, {"id": "words@2"}]
    assert [orjson.loads(line)["id"] for line in run("models", "list", *url).stdout.splitlines()] == [
        "words@1",
        "words@2",
    ]
    for arguments in (("blue",), ("blue", VERSION), ("blue", "--delete")):
        assert line_of(run("models", "alias", *arguments, *url))["weights"] == {VERSION: 1}
    assert line_of(run("models", "alias", "green", *url)) == {
        "object": "alias",
        "alias": "green",
        "weights": {},
        "is_set": False,
    }


def test_what_fails_is_a_sentence_and_no_json(service: StandIn, url: list[str]) -> None:
    service.refusals.append(problem(403, "forbidden", "this key lacks the scope admin"))
    done = run("cores", *url)
    assert (done.exit_code, done.stdout, done.stderr.strip()) == (1, "", "this key lacks the scope admin")


def test_reasons_are_shown_as_they_are(service: StandIn, url: list[str]) -> None:
    run("models", "load", "words", *url)
    service.placed["models"][0] |= {"reason": "a [/damaged] file :warning:", "state": "failed"}
    assert "a [/damaged] file :warning:" in run("cores", *url[1:]).stdout


def test_many_versions_on_a_core_are_counted_and_those_in_trouble_named(service: StandIn, url: list[str]) -> None:
    run("models", "load", "words", *url)
    held = service.placed["models"][0] | {"buckets": [f"8x{n}" for n in range(10)], "bytes": 10**6}
    service.placed["models"] = [held]
    assert run("cores", *url[1:]).stdout.split()[-5:] == [VERSION, "ready", "fp32", "1", "MB"]
    broken = held | {"version": "words@bad", "state": "failed", "reason": "it is damaged"}
    service.placed["models"] = [held] * 17 + [broken]
    shown = run("cores", *url[1:]).stdout.splitlines()
    assert shown[1].rstrip().endswith("17 ready, 17 MB")
    assert shown[2].strip() == "words@bad failed: it is damaged"
    assert len(shown) == 3


def test_a_version_that_no_core_holds_says_what_is_expected(service: StandIn, url: list[str]) -> None:
    model = {"id": VERSION, "state": "open", "weights": {}, "dtype": "fp32", "bytes": 1, "cores": []}
    why = "no core holds words@1, and none is about to"
    service.models = [model | {"unfinished_jobs": 2, "waiting_for": why}, model | {"unfinished_jobs": 0}]
    lines = run("models", "list", *url[1:], COLUMNS="80").stdout.splitlines()
    assert f"{why}  " in lines[1]
    assert "none  " in lines[2]


def test_the_service_is_that_of_the_environment(service: StandIn) -> None:
    assert run("cores", "--json", CORELANE_URL=service.url).exit_code == 0
    elsewhere = run("cores", "--json", "--url", "http://127.0.0.1:9", CORELANE_URL=service.url)
    assert "no Corelane replies at http://127.0.0.1:9" in elsewhere.stderr


def test_refusals_are_told_in_words_of_the_command_line(service: StandIn, url: list[str]) -> None:
    for said, shown in (
        ("this service needs an API key: send `Authorization: Bearer clk_…`", "set CORELANE_API"),
        ("move the alias (PUT /v1/aliases/NAME), or give `force=true`", "(`corelane models alias NAME VERSION`), or"),
        ("move the alias (PUT /v1/aliases/NAME), or give `force=true`", "or give --force"),
        ("there is no model 'x'; GET /v1/models lists what can be asked", "`corelane models list` lists what"),
        ("no living core holds x yet; GET /v1/cores says how far they are", "`corelane cores` says how far"),
    ):
        service.refusals.append(problem(409, "x", said))
        told = run("cores", *url).stderr
        assert shown in told
        assert not re.search("GET|PUT|Bearer|force=", told)


def test_health_of_the_api(service: StandIn) -> None:
    port = str(service.server.port)
    found = run("health", "--json", CORELANE_PORT=port)
    assert (found.exit_code, line_of(found)) == (0, {"ok": True, "api": f"http://127.0.0.1:{port}"})
    assert (found.exit_code, run("health", CORELANE_PORT=port).stdout) == (0, "")
    for question in ((), ("--ready",)):
        service.refusals.append(problem(503, "not_ready", "no core"))
        said = f"no API that is ready replies at http://127.0.0.1:{port}"
        found = run("health", *question, "--json", CORELANE_PORT=port)
        assert (found.exit_code, line_of(found)["ok"], found.stderr.strip()) == (1, False, said)
    for asked in ("--startup", "--live"):
        assert run("health", asked, CORELANE_PORT=port).exit_code == 0
    assert "no API replies at http://127.0.0.1:1" in run("health", "--live", CORELANE_PORT="1").stderr


def test_health_of_a_core(settings: Settings) -> None:
    env = {"CORELANE_REDIS_URL": settings.redis_url, "CORELANE_CORE": "0", "CORELANE_CORE_HOST": "healthy"}
    found = run("health", "--json", **env)
    assert (found.exit_code, line_of(found)) == (1, {"ok": False, "core": "healthy/0", "state": "lost"})
    link = Link(settings.redis_url)
    link("HSET", "cl:core:healthy/0", "state", "busy")
    assert line_of(run("health", "--json", **env)) == {"ok": True, "core": "healthy/0", "state": "busy"}
    link("DEL", "cl:core:healthy/0")
    link.close()


def test_health_by_signs_of_life_asks_nobody(tmp_path: Path) -> None:
    env = {"CORELANE_REDIS_URL": "redis://127.0.0.1:1/0", "CORELANE_HEALTH_DIR": str(tmp_path), "CORELANE_CORE": "0"}
    assert "no sign of life yet" in run("health", "--live", **env).stderr
    LivenessFile(tmp_path, "pod-0/0").write("waiting", "another process holds the core")
    assert run("health", "--live", **env).exit_code == 0
    for question in ("--startup", "--ready"):
        found = run("health", question, "--json", **env)
        assert (found.exit_code, line_of(found)) == (1, {"ok": False, "parts": {"pod-0/0": "waiting"}})
        assert "pod-0/0 is waiting: another process holds the core" in found.stderr
    assert run("health", "--live", "--ready", **env).exit_code == 2
    assert "set CORELANE_HEALTH_DIR" in run("health", "--live", CORELANE_CORE="0").stderr
