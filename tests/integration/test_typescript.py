"""A client in TypeScript by types made of the service's OpenAPI document: it compiles and makes README's calls."""

import os
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest

from tests.tools.fleet import Fleet

HERE = Path(__file__).parents[1] / "typescript"
TOOLS = HERE / "node_modules" / ".bin"

pytestmark = pytest.mark.skipif(not TOOLS.is_dir(), reason="there are no tools of TypeScript: make typescript")

OPTIONS = {"strict": True, "module": "nodenext", "target": "es2022", "types": ["node"], "skipLibCheck": True}


@pytest.fixture
def folder(fleet: Fleet, tmp_path: Path) -> Path:
    """Return a folder with the document, the program and what it is compiled with."""
    (tmp_path / "openapi.json").write_bytes(fleet.api.get("/openapi.json").content)
    (tmp_path / "tsconfig.json").write_bytes(orjson.dumps({"compilerOptions": OPTIONS, "files": ["calls.ts"]}))
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    for name in ("calls.ts", "package.json"):
        shutil.copy(HERE / name, tmp_path)
    return tmp_path


def run(folder: Path, *command: str | Path) -> str:
    quiet = os.environ | {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    done = subprocess.run(command, cwd=folder, env=quiet, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_redocly_finds_no_error_in_the_document(folder: Path) -> None:
    run(folder, TOOLS / "redocly", "lint", "openapi.json")


def test_generated_types_compile_and_make_readmes_calls(fleet: Fleet, folder: Path) -> None:
    run(folder, TOOLS / "openapi-typescript", "openapi.json", "-o", "schema.d.ts")
    run(folder, TOOLS / "tsc", "-p", ".")
    told = run(folder, "node", "calls.js", fleet.url).splitlines()
    assert told[0].startswith("succeeded ")
    assert told[1:] == ["a succeeded 1", "422 unknown_model"]
