"""``corelane`` as a process: what it imports, colours and completes."""

import os
import re
import shlex
import subprocess
import sys

import orjson
import pytest

from corelane import __version__
from corelane.settings import read_settings
from tests.corelane.stand_in import StandIn

PYTHON = shlex.quote(sys.executable)

#: What only servers, workers and compilers need.
HEAVY = {
    "torch",
    "numpy",
    "celery",
    "kombu",
    "redis",
    "fastapi",
    "starlette",
    "hypercorn",
    "transformers",
    "tokenizers",
}

#: Codes that colour, or move the cursor.
ESCAPE = "\x1b"


def run(
    *arguments: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *options, "-m", "corelane", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=os.environ | (env or {})
    )


def imported(done: "subprocess.CompletedProcess[str]") -> set[str]:
    """Return the top-level packages that a process run with ``-X importtime`` imported."""
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE)}


def test_commands_that_ask_a_service_import_nothing_of_a_server(service: StandIn) -> None:
    helped = imported(run("--help", options=("-X", "importtime")))
    assert "typer" in helped
    assert not helped & (HEAVY | {"httpx2", "standardwebhooks"})
    asked = imported(run("ask", "Who?", "-c", "Ada wrote it.", "--url", service.url, options=("-X", "importtime")))
    assert "httpx2" in asked
    assert not asked & HEAVY


@pytest.mark.parametrize(
    "asked", [("ask", "Wer fährt?", "-c", "Ä fährt."), ("run", "one", "question=Wer?", "context=Ä fährt.")]
)
def test_arguments_are_read_as_utf_8_in_the_c_locale_too(asked: tuple[str, ...], service: StandIn) -> None:
    for mode in ("0", "1"):
        done = run(*asked, "--url", service.url, env={"LC_ALL": "C", "PYTHONUTF8": mode, "PYTHONIOENCODING": ""})
        assert done.returncode == 0, done.stderr
        assert "Ä" in str(service.bodies[-1])
    refused = run("ask", "\udcc4?", "-c", "Ada wrote it.", "--url", service.url)
    assert "a text in it is not UTF-8" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
def test_pipes_and_no_color_are_not_coloured(service: StandIn, env: dict[str, str]) -> None:
    for arguments in (("ask", "Who?", "-c", "Ada wrote it."), ("jobs", "list"), ("jobs", "show", "job_no")):
        done = run(*arguments, "--url", service.url, env=env)
        # What is bold or dim is no colour, and NO_COLOR leaves it; a pipe gets none of either.
        assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|9[0-7])m", done.stdout + done.stderr)
        assert env or ESCAPE not in done.stdout + done.stderr


def test_json_is_never_coloured(service: StandIn) -> None:
    done = run("ask", "Who?", "-c", "Ada wrote it.", "--json", "--url", service.url, env={"FORCE_COLOR": "1"})
    assert (done.returncode, ESCAPE in done.stdout, len(done.stdout.splitlines())) == (0, False, 1)


def test_bash_learns_to_complete() -> None:
    # Which shell it is for is seen by the parent process; the second command keeps bash from becoming the first.
    shown = subprocess.run(
        ["bash", "-c", f"{PYTHON} -m corelane --show-completion; true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "_corelane_completion" in shown.stdout, shown.stderr
    asked = {"_CORELANE_COMPLETE": "complete_bash", "COMP_WORDS": "corelane bat", "COMP_CWORD": "1"}
    assert run(env=asked).stdout.split() == ["batch", "batches"]


def test_a_mistyped_setting_is_told_of_by_every_command_and_role_but_by_the_children_of_serve() -> None:
    wrong = {"CORELANE_AUHT": "required", "CORELANE_FOO_BAR": "1"}
    done = run("files", "--help", env=wrong)
    assert "CORELANE_AUHT is not a setting" in done.stderr
    assert "CORELANE_AUTH, which protects the service, is not in force" in done.stderr
    assert "CORELANE_FOO_BAR" in done.stderr
    lines = [orjson.loads(line) for line in run("api", "--help", env=wrong).stderr.splitlines()]
    assert [(line["event"], line["setting"], line["level"]) for line in lines] == [
        ("unknown_setting", "CORELANE_AUHT", "error"),
        ("unknown_setting", "CORELANE_FOO_BAR", "warning"),
    ]
    child = read_settings().environment() | wrong
    assert run("api", "--help", env=child).stderr == ""


def test_the_version_is_told() -> None:
    assert run("--version").stdout == f"corelane {__version__}\n"
