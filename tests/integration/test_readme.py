"""What the README tells a newcomer to type is typed here."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import Fleet

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "01-api.md", ROOT / "examples" / "README.md")

#: Set up everything or start something else; the fresh-machine run and the fleet of these tests are their proof.
ELSEWHERE = ("make ", "docker ")


def commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            lines = re.sub(r"\\\n", " ", block)
            for command in re.split(r"\n(?=curl|make|\.venv|docker)", lines.strip()):
                text = re.sub(r"\s+#.*$", "", command, flags=re.MULTILINE).strip()
                if not text.startswith(ELSEWHERE):
                    found.append(text)
    return list(dict.fromkeys(found))


def run(command: str, fleet: Fleet, folder: Path) -> subprocess.CompletedProcess[str]:
    text = command.replace("http://127.0.0.1:8000", fleet.url).replace(
        ".venv/bin/corelane", f"{sys.executable} -m corelane"
    )
    text = text.replace("-o answers.jsonl", f"-o {folder}/answers.jsonl")
    env = dict(os.environ) | {"CORELANE_PORT": str(urlsplit(fleet.url).port), "CORELANE_DATA_DIR": str(fleet.data)}
    return subprocess.run(text, shell=True, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110)


def test_there_are_commands_to_try() -> None:
    assert len(commands()) >= 5
    assert {command.split()[0] for command in commands()} == {"curl", ".venv/bin/corelane"}


@pytest.mark.parametrize("command", commands())
def test_command_does_what_the_page_says(command: str, fleet: Fleet, tmp_path: Path) -> None:
    done = run(command, fleet, tmp_path)
    if "doctor" not in command:
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if command.startswith("curl -s ") and "Prefer" in command:
        assert json.loads(done.stdout)["results"][0]["answer"] is not None
    if command.startswith("curl -si "):
        assert re.search(r"^HTTP/1.1 202", done.stdout, re.MULTILINE)
    if " ask " in command:
        assert "Tomasz Wieczorek" in done.stdout
    if " batch " in command:
        assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 30


def test_answer_shown_in_the_readme_is_the_answer_given(fleet: Fleet) -> None:
    [shown] = re.findall(r"```json\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    expected = json.loads(shown)["results"][0]["answer"]
    [command] = [command for command in commands() if "completed in March" in command]
    body = re.search(r"-d '(\{.*\})'", command)
    assert body is not None
    result = fleet.api.post("/v1/jobs", json=json.loads(body[1]), headers={"Prefer": "wait=30"}).json()["results"][0]
    assert {key: result["answer"][key] for key in ("text", "start", "end")} == {
        key: expected[key] for key in ("text", "start", "end")
    }
