"""Requests that nobody would send, made from the OpenAPI document and sent over real sockets: no answer is a 5xx, and
each is one that the document foresees. `--fuzz 700 -o timeout=3600` sends tens of thousands.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.fleet import Fleet, start_fleet

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)


@pytest.fixture
def null_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Start a service of its own, as requests may move aliases and unload versions; its core answers at once."""
    fleet = start_fleet(tmp_path, tmp_path, "--cores", "1", "--no-flower", CORELANE_TARGET="null")
    yield fleet
    fleet.end()


def test_every_answer_to_any_request_is_foreseen(
    null_fleet: Fleet, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    examples = request.config.getoption("--fuzz")
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{null_fleet.url}/openapi.json"]
    command += ["-n", str(examples), "-c", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"]
    command += ["--continue-on-failure", "--request-timeout", "30", "--suppress-health-check", "all"]
    hooks = {"SCHEMATHESIS_HOOKS": "tests.integration.fuzz_hooks", "PYTHONWARNINGS": "ignore"}
    env = dict(os.environ) | hooks | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, check=False, env=env, text=True, timeout=3600, cwd=tmp_path)
    told = done.stdout
    assert done.returncode == 0, told[-6000:] + done.stderr[-2000:]
    found = re.search(r"([\d,]+) generated, ([\d,]+) passed", told)
    assert found is not None, told[-3000:]
    generated, passed = (int(number.replace(",", "")) for number in found.groups())
    assert generated == passed > 100 * examples // 10
    with null_fleet.client() as client:
        assert client.ready()
    print(found[0])  # noqa: T201  # `pytest -s` shows it
