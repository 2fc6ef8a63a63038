"""What `serve` prints: one JSON object a line for programs, lines that can be copied for people."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from corelane.cli.serve import ROLES
from corelane.cli.serve_output import PrettyOutput, as_object, own_command, ready_page
from corelane.cli.webhook_secrets import make_secret
from corelane.settings import Settings


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
    voice = PrettyOutput(Console(file=out, width=80, highlight=False, soft_wrap=True))
    voice.announce(ready_page(settings, "secret", frozenset(ROLES)))
    [line] = [line for line in out.getvalue().splitlines() if line.startswith("Try")]
    assert (
        line == f'Try      {own_command()} ask "Who wrote it?" --context "Ada wrote it." --url http://127.0.0.1:18100'
    )
    assert "Stop     Ctrl-C" in out.getvalue()
    assert f"Secret   {own_command()} webhooks secret --data {tmp_path}" in out.getvalue().splitlines()


def test_command_is_named_by_its_path_where_the_shell_would_not_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert Path(own_command().split()[0]).is_absolute()
