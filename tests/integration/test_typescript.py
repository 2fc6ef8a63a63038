"""The example in TypeScript, by types made of the service's OpenAPI document: it compiles, and asks as it says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.fleet import Fleet
from tests.tools.snippets import ROOT

MODULES = ROOT / "tests" / "typescript" / "node_modules"

pytestmark = pytest.mark.skipif(not MODULES.is_dir(), reason="there are no tools of TypeScript: make typescript")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the example's folder, as after `npm install`, in a checkout."""
    folder, docs = tmp_path / "examples" / "typescript", tmp_path / "docs"
    shutil.copytree(ROOT / "examples" / "typescript", folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (folder / "node_modules").symlink_to(MODULES)
    docs.mkdir()
    shutil.copy(ROOT / "docs" / "openapi.json", docs)
    return folder


def run(folder: Path, *command: str | Path) -> str:
    quiet = os.environ | {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    done = subprocess.run(command, cwd=folder, env=quiet, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_redocly_finds_no_error_in_the_document(folder: Path) -> None:
    run(folder, MODULES / ".bin" / "redocly", "lint", "../../docs/openapi.json")


def test_example_compiles_by_generated_types_and_asks_one_question_and_many(fleet: Fleet, folder: Path) -> None:
    run(folder, "npm", "run", "build")
    told = run(folder, "node", "dist/ask.js", fleet.url).splitlines()
    assert told == ["succeeded Ada", "2000 Set(1) { 'Ada' }", "422 unknown_model"]
