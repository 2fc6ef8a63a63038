"""The documents keep up with the code."""

import re
from pathlib import Path

import typer.main

from api.errors import HTTP_CODES
from corelane import errors
from corelane.cli.app import make_cli
from corelane.metrics import definitions
from corelane.settings import Settings
from tests.tools.snippets import FENCE, ROOT, pages

OPERATIONS = ROOT / "docs" / "02-operations.md"
METRICS = ROOT / "docs" / "11-monitoring.md"

PAGES = [*pages(), ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]

#: A file of the code, with its folder: `corelane/log.py`, `corelane/store/lua/*.lua`.
CODE_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.*-]+\.(?:py|lua))`")


def error_classes(base: type[errors.CorelaneError] = errors.CorelaneError) -> list[type[errors.CorelaneError]]:
    """Return the public tree. A package may refine a class for itself, under the same code."""
    children = [child for child in base.__subclasses__() if child.__module__ == errors.__name__]
    return [base, *(found for child in children for found in error_classes(child))]


def settings_table() -> str:
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        shown = "" if default is None or field.default_factory or name == "models_dir" else f"`{default}`"
        if isinstance(default, tuple):
            shown = ""
        rows.append(f"| `CORELANE_{name.upper()}` | {shown} | {field.description} |")
    return "\n".join(rows)


def test_every_setting_stands_in_the_operations_guide() -> None:
    shown = OPERATIONS.read_text().partition("<!-- settings: begin -->\n")[2].partition("\n<!-- settings: end -->")[0]
    assert shown == settings_table()


def test_every_setting_has_a_sentence() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_every_error_code_has_a_section() -> None:
    sections = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "03-problems.md").read_text(), re.MULTILINE))
    codes = {error.code for error in error_classes()} | set(HTTP_CODES.values()) | {"http_error"}
    assert sections == codes


def test_error_codes_are_told_apart() -> None:
    codes = [error.code for error in error_classes()]
    assert len(codes) == len(set(codes))


def metrics_table() -> str:
    rows = ["| metric | kind | meaning |", "|---|---|---|"]
    for metric in definitions.ALL.values():
        labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
        rows.append(f"| `{metric.name}{labels}` | {metric.kind} | {metric.help} |")
    return "\n".join(rows)


def test_every_metric_stands_in_the_page_of_monitoring() -> None:
    shown = METRICS.read_text().partition("<!-- metrics: begin -->\n")[2].partition("\n<!-- metrics: end -->")[0]
    assert shown == metrics_table()


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
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", FENCE.sub("", page.read_text())):
            there = page.parent / target if target else page
            assert there.exists(), f"{page}: {target}"
            assert not anchor or there.suffix != ".md" or anchor in anchors(there), f"{page}: {target}#{anchor}"


def test_code_files_named_in_the_documents_exist() -> None:
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]  # it names what there was
    named = [(page.name, path) for page in pages for path in CODE_FILE.findall(page.read_text())]
    assert not [(page, path) for page, path in named if not any(ROOT.glob(path))]


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


def test_every_command_stands_in_the_client_guide() -> None:
    table = (ROOT / "docs" / "08-client.md").read_text().partition("# Commands")[2]
    for name, command in typer.main.get_command(make_cli()).commands.items():  # type: ignore[attr-defined]
        assert re.search(rf"`{name}\b", table), name
        for each in getattr(command, "commands", ()):
            assert re.search(rf"`{name} (\w+\\\|)*{each}\b", table), (name, each)
