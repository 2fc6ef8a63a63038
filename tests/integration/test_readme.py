"""What README and the documents tell a reader to type is typed here, as it stands, on a running service."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from corelane.domain.api_keys import Scope
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.conftest import free_port
from tests.tools.fleet import WEBHOOK_SECRET, Fleet
from tests.tools.snippets import ROOT, Snippet, snippets


def told_once(blocks: Iterable[Snippet]) -> list[Snippet]:
    """Return the blocks without commands that stand on an earlier page too: one start of a program proves both."""
    seen: set[str] = set()
    left = []
    for block in blocks:
        commands = []
        for command in re.split(r"\n(?=\S)", block.text.rstrip()):
            plain = re.sub(r"\s+# .*$", "", command).replace(".venv/bin/", "")
            if plain not in seen:
                seen.add(plain)
                commands.append(command)
        if commands:
            left.append(replace(block, text="\n".join(commands)))
    return left


SHELL = told_once(each for each in snippets() if each.language == "sh" and not each.elsewhere)
PYTHON = [each for each in snippets() if each.language == "python" and not each.elsewhere]

#: Reports every command that failed, by its own text.
PROLOGUE = "set -o pipefail; trap 'echo \"FAILED: $BASH_COMMAND\" >&2' ERR\n"

#: What must be in the output of commands that show an answer, or what became of one.
SHOWN = {
    "completed in March 1889": r'"text":"March 1889"',
    " ask ": "Tomasz Wieczorek|Ada",
    "wrote it in 1843": "Ada",
    "Ada wrote the notes": '"windows":1,',
    "receive_fastapi.py": r"job\.completed job_\w+ succeeded",
    "Idempotency-Key": r"HTTP/1.1 20[02]",
    "-X PUT": r"HTTP/1.1 20[0-2]",
    "curl -N": r"event: job\.completed",
    "| wc -l": r"^30$",
    "batches create": r"batch_\w+",
    "keys create": r"clk_[\w-]{43}",
}


@dataclass
class Place:
    """A folder like a checkout's, in which `corelane` is on the PATH and the service is the fleet."""

    folder: Path
    env: dict[str, str]
    names: dict[str, str]

    def write(self, text: str) -> str:
        """Return a snippet for this service: its address, its ids and a port that is free."""
        for shown, here in self.names.items():
            text = text.replace(shown, here)
        return text


@pytest.fixture
def place(fleet: Fleet, tmp_path: Path) -> Place:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, command in (("corelane", f"{sys.executable} -m corelane"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod((programs / name).stat().st_mode | stat.S_IXUSR)
    link = Link(fleet.redis_url())
    key, _ = ApiKeyStore(link).create("shown in the documents", [Scope.READ])
    link.close()
    with fleet.client() as client:
        job = client.wait(client.submit([{"question": "Who?", "context": "Ada wrote it."}]).id)
    env = dict(os.environ) | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CORELANE_URL": fleet.url,
        "CORELANE_REDIS_URL": fleet.redis_url(),
        "CORELANE_DATA_DIR": str(fleet.data),
        "CORELANE_ARTIFACTS_DIR": str(fleet.artifacts),
        "CORELANE_WEBHOOK_SECRET": WEBHOOK_SECRET,
    }
    names = {
        "http://127.0.0.1:8000": fleet.url,
        "job_0…": job.id,
        "key_01m7z1be42d48jqzz62vr9p8yv": key.id,
        "9000": str(free_port()),
    }
    return Place(tmp_path, env, names)


def test_there_are_snippets_of_every_kind() -> None:
    assert len(SHELL) > 12
    assert len(PYTHON) >= 5
    assert len({each.page for each in SHELL} | {each.page for each in PYTHON}) > 6


@pytest.mark.parametrize("snippet", SHELL, ids=str)
def test_commands_do_what_the_page_says(snippet: Snippet, place: Place) -> None:
    done = subprocess.run(
        ["bash", "-c", PROLOGUE + place.write(snippet.text)],
        cwd=place.folder,
        env=place.env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    said = done.stdout + done.stderr
    # What a machine lacks is for `doctor` to say, and no fault of the page.
    assert not re.findall(r"FAILED: (?!.*\bdoctor\b).*", done.stderr), said
    assert "Traceback" not in said
    assert "urn:corelane:problem" not in said
    for command, shown in SHOWN.items():
        if command in snippet.text:
            assert re.search(shown, said, re.MULTILINE), said
    if "-o answers.jsonl" in snippet.text:
        assert len((place.folder / "answers.jsonl").read_text().splitlines()) == 30


@pytest.mark.parametrize("snippet", PYTHON, ids=str)
def test_python_does_what_the_page_says(
    snippet: Snippet, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"type": "job.completed", "data": {"id": "job_1"}})
    signature = Webhook(WEBHOOK_SECRET).sign("evt_1", datetime.now(UTC), body)
    signed = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(datetime.now(UTC).timestamp())),
        "webhook-signature": signature,
    }
    names: dict[str, Any] = {"secret": WEBHOOK_SECRET, "headers": signed, "body_bytes": body.encode()}
    monkeypatch.chdir(place.folder)
    exec(compile(place.write(snippet.text), str(snippet), "exec"), names)
    if "Webhook" in names:
        assert names["event"]["data"] == {"id": "job_1"}
    if "answers" in names:
        outcomes = [json.loads(line) for line in names["answers"].splitlines()]
        assert len(outcomes) == len((ROOT / "examples" / "batch.jsonl").read_text().splitlines())
        assert all(outcome["response"]["body"]["answer"] for outcome in outcomes)
    if "print(result.answer" in snippet.text:
        assert re.search("Ada 0 3|text='in 1843'|text='1843'", capsys.readouterr().out)


def test_answer_shown_in_the_readme_is_the_answer_given(fleet: Fleet) -> None:
    [shown] = [each for each in snippets() if (each.page, each.language) == ("README.md", "json")]
    expected = json.loads(shown.text)["results"][0]["answer"]
    [command] = [each.text for each in SHELL if "completed in March" in each.text]
    body = re.search(r"-d '(\{.*\})'", command)
    assert body is not None
    result = fleet.api.post("/v1/jobs", json=json.loads(body[1]), headers={"Prefer": "wait=30"}).json()["results"][0]
    assert {key: result["answer"][key] for key in ("text", "start", "end")} == {
        key: expected[key] for key in ("text", "start", "end")
    }
