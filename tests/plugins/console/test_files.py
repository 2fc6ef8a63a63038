"""The console's files: libraries as they were published, and nothing from outside."""

import hashlib
import re

from corelane.plugins.console.pages.mount import FILES

VENDOR = FILES / "vendor"


def test_libraries_are_those_that_were_published() -> None:
    sums = dict(line.split()[::-1] for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    assert set(sums) | {"SHA256SUMS", "README.md"} == {path.name for path in VENDOR.iterdir()}
    for name, wanted in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == wanted, name


def test_licences_and_versions_stand_beside_them() -> None:
    text = (VENDOR / "README.md").read_text()
    for name in ("htmx.org", "uplot"):
        assert re.search(rf"{re.escape(name)}\S*\s\d+\.\d+\.\d+", text), name
    assert "Zero-Clause BSD" in (VENDOR / "htmx.LICENSE").read_text()
    assert "MIT" in (VENDOR / "uPlot.LICENSE").read_text()


def test_own_files_name_no_other_host() -> None:
    for path in FILES.iterdir():
        if path.suffix in (".css", ".js"):
            assert not re.search(r"https?://|url\(|@import|\beval\b|innerHTML", path.read_text()), path.name
