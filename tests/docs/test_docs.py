"""The documents keep up with the code."""

import re
from pathlib import Path

import typer.main

from corelane.cli.app import make_cli
from corelane.settings import Settings
from corelane.settings.names import OTHERS
from docs import generate
from tests.tools.snippets import FENCE, ROOT, pages

PAGES = [*pages(), *(ROOT / name for name in ("CHANGELOG.md", "SECURITY.md", "benchmarks/README.md"))]

#: The page of each plugin too.
LINKED = [*PAGES, *(ROOT / "corelane").rglob("README.md")]

#: A file of the code, with its folder: `corelane/log.py`, `corelane/store/lua/*.lua`.
CODE_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.*-]+\.(?:py|lua))`")

#: A page that is named from the root, and its anchor.
PAGE = re.compile(r"(?<![\w/])(docs/[\w-]+\.md)(?:#([\w-]+))?")

#: Kinds of files that name pages.
NAMING = (".py", ".lua", ".md", ".yml", ".yaml", ".json", ".toml", ".sh", ".env", ".html", ".Dockerfile")


def test_reference_is_what_the_code_says() -> None:
    assert generate.PAGE.read_text() == generate.make_page(), "run `make docs`"


def test_openapi_document_is_what_the_code_gives() -> None:
    assert generate.DOCUMENT.read_bytes() == generate.make_document(), "run `make docs`"


def test_every_setting_has_a_sentence() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_error_codes_are_told_apart() -> None:
    codes = [error.code for error in generate.error_classes()]
    assert len(codes) == len(set(codes))


def test_commands_named_in_the_documents_exist() -> None:
    known = set(typer.main.get_command(make_cli()).commands)  # type: ignore[attr-defined]
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        named = set(re.findall(r"(?:^|[`/ ])corelane ([a-z]+)\b(?= |`|$)", page.read_text(), re.MULTILINE))
        assert named - {"is", "a", "import"} <= known, page


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere() -> None:
    for page in LINKED:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", FENCE.sub("", page.read_text())):
            there = page.parent / target if target else page
            assert there.exists(), f"{page}: {target}"
            assert not anchor or there.suffix != ".md" or anchor in anchors(there), f"{page}: {target}#{anchor}"


def test_pages_named_in_code_and_configuration_exist() -> None:
    """Messages, docstrings, alert rules and manifests name pages: `docs/monitoring.md#corelanedown`."""
    named = set[tuple[str, str]]()
    for folder in ("api", "workers", "compile", "corelane", "deploy", "benchmarks", "examples", "tests", "models"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in NAMING:
                named |= set(PAGE.findall(path.read_text()))
    for path in ROOT.iterdir():
        if path.is_file() and (path.suffix in NAMING or path.name in ("Dockerfile", "Makefile", ".env.example")):
            named |= set(PAGE.findall(path.read_text()))
    assert len(named) > 20
    for page, anchor in named:
        assert (ROOT / page).exists(), page
        assert not anchor or anchor in anchors(ROOT / page), f"{page}#{anchor}"


def test_settings_named_in_the_documents_exist() -> None:
    known = {f"CORELANE_{name.upper()}" for name in Settings.model_fields} | OTHERS | {"CORELANE_AUHT"}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert set(re.findall(r"CORELANE_[A-Z0-9_]+(?![A-Z0-9_…*])", page.read_text())) <= known, page


def test_code_files_named_in_the_documents_exist() -> None:
    pages = [page for page in PAGES if page.parent.name != "retired"]  # what there was
    named = [(page.name, path) for page in pages for path in CODE_FILE.findall(page.read_text())]
    assert not [(page, path) for page, path in named if not any(ROOT.glob(path))]


def test_files_of_the_map_are_below_the_folders_of_their_rows() -> None:
    """A bare name, as `link.py`, stands beside or below a file or folder that its row names with its path."""
    for row in re.findall(r"^\|.*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE):
        named = re.findall(r"`([\w./-]+)`", row)
        places = [ROOT / name for name in named if "/" in name or (ROOT / name).is_dir()]
        folders = [place if place.is_dir() else place.parent for place in places] or [ROOT / "api", ROOT / "corelane"]
        for name in named:
            if re.fullmatch(r"\w+\.(py|lua)", name):
                assert any(next(folder.rglob(name), None) for folder in folders), f"{name}: {row}"


def test_prose_is_wrapped_at_100_columns() -> None:
    """Tables, headings and fences may be wider, and so may a line that has no space to break at."""
    wide = []
    for page in PAGES:
        text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            prose = "" if line.startswith(("|", "#")) else line.strip().removeprefix("- ")
            if len(line) > 100 and " " in prose:
                wide.append(f"{page.relative_to(ROOT)}:{number}")
    assert not wide
