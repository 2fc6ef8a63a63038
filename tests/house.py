"""Measure the house: how large each part is, what a reader and a user meet, and what imports what.

``make house`` prints the table: each figure beside its limit and, where it is not there yet, the goal. ``make check``
runs it too: it fails where a figure is above its limit. Limits only go down, in the change that lowers the figure, and
a limit is met by taking away: not by packing lines, joining modules or moving code where it is not counted.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import typer
from grimp import build_graph

from corelane.cli.app import make_cli
from corelane.settings import Settings

ROOT = Path(__file__).parents[1]

PACKAGES = ("api", "workers", "compile", "corelane")

#: The folders that hold a folder for each task. A task's own folder counts apart from core.
TASKS = ("corelane/tasks", "compile/tasks")

#: The plugins that stand in the folder of a task, as they serve it alone. They count as plugins all the same.
TASKS_PLUGINS = ("corelane/tasks/question_answering/quality",)

#: What is no core inside of ``corelane``.
OUTSIDE = ("cli", "client", "plugins")

#: Each figure's limit and its goal. The share of tests rose while features went before their tests were cut, with the
#: models of the hub that are held against their libraries, and with what a release needs: upgrades from the last,
#: an even load for hours, the client installed alone. It also brought a page: docs/upgrade.md.
LIMITS: Mapping[str, tuple[float, float]] = {
    "lines: product": (58_203, 51_000),
    "lines: core": (27_298, 25_000),
    "lines: compile": (3_489, 3_050),
    "lines: tasks": (6_553, 5_540),
    "lines: cli, client": (7_706, 5_500),
    "lines: plugins": (13_157, 12_000),
    "lines: tests": (53_882, 42_000),
    "tests ÷ product": (0.93, 0.85),
    "lines: benchmarks": (3_004, 3_000),
    "trip of a question: files": (65, 34),
    "trip of a question: lines": (3_790, 3_000),
    "commands: names at the top": (24, 24),
    "commands: options in all": (228, 224),
    "settings": (80, 70),
    "settings that .env.example shows": (25, 25),
    "lines: docker-compose.yml": (106, 106),
    "docs: pages": (17, 17),
    "docs: words": (33_935, 33_935),
    "files in circles of imports": (0, 0),
    "lines of the longest module of core": (500, 500),
    "modules of core under 40 lines": (0, 0),
    "lines of the longest function": (97, 97),
    "class names defined more than once": (0, 0),
}


#: A module of core with fewer lines belongs into the one that uses it. A door (``plugin.py``) may be as short as it is.
SMALL = 40


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the house beside its limit, and its goal if it is not there yet."""

    name: str
    figure: float

    @property
    def is_above(self) -> bool:
        """Return whether the figure is above its limit."""
        return self.figure > LIMITS[self.name][0]

    def __str__(self) -> str:
        limit, goal = LIMITS[self.name]
        mark = "  above its limit" if self.is_above else "" if self.figure <= goal else f"  goal {goal:,}"
        return f"{self.name:<42}{self.figure:>8,}{limit:>9,}{mark}"


def sources(*folders: Path) -> Iterator[Path]:
    """Yield the Python and Lua files of folders, and files that are given as such."""
    for folder in folders:
        found = [folder] if folder.is_file() else [*folder.rglob("*.py"), *folder.rglob("*.lua")]
        yield from (path for path in found if path.suffix in (".py", ".lua"))


def count_lines(*folders: Path) -> int:
    """Count lines as ``wc -l`` does."""
    return sum(path.read_bytes().count(b"\n") for path in sources(*folders))


def parts_of_the_house() -> dict[str, list[Path]]:
    """Return the folders and files of each part."""
    inside = [path for path in (ROOT / "corelane").iterdir() if path.name not in OUTSIDE]
    tasks = [path for folder in TASKS for path in (ROOT / folder).glob("*/")]
    plugins = [ROOT / "corelane/plugins", *(ROOT / path for path in TASKS_PLUGINS)]
    return {
        "core": [ROOT / "api", ROOT / "workers", *inside],
        "compile": [ROOT / "compile"],
        "cli, client": [ROOT / "corelane/cli", ROOT / "corelane/client"],
        "plugins": plugins,
        "product": [ROOT / name for name in PACKAGES],
        "tasks": tasks,
        "benchmarks": [ROOT / "benchmarks"],
        "tests": [ROOT / "tests"],
    }


def size_rows() -> Iterator[Row]:
    """Yield the lines of each part, and how much of the product the tests are."""
    parts = parts_of_the_house()
    plugins_of_tasks = set(sources(*(ROOT / path for path in TASKS_PLUGINS)))
    tasks = set(sources(*parts.pop("tasks"))) - plugins_of_tasks
    lines = {"tasks": count_lines(*tasks), "product": count_lines(*parts.pop("product"))}
    for part, folders in parts.items():
        apart = tasks | plugins_of_tasks if part == "core" else tasks
        lines[part] = count_lines(*(set(sources(*folders)) - apart))
    yield from (Row(f"lines: {part}", count) for part, count in lines.items())
    yield Row("tests ÷ product", round(lines["tests"] / lines["product"], 2))


def trip_rows() -> Iterator[Row]:
    """Yield the most files and lines that a question may enter; ``tests/integration/test_trip.py`` measures them."""
    source = (ROOT / "tests/integration/test_trip.py").read_text()
    found = re.search(r"^LINES, FILES = ([0-9_]+), ([0-9_]+)$", source, re.MULTILINE)
    assert found is not None
    yield Row("trip of a question: files", int(found[2]))
    yield Row("trip of a question: lines", int(found[1]))


def door_rows() -> Iterator[Row]:
    """Yield how much there is to know of commands, settings and set-up."""

    def count_options(command: object) -> int:
        below = getattr(command, "commands", {}).values()
        own = [each for each in getattr(command, "params", ()) if each.param_type_name == "option"]
        return len(own) + sum(map(count_options, below))

    group = typer.main.get_command(make_cli())
    shown = re.findall(r"^#? ?(?:CORELANE_\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    yield Row("commands: names at the top", len(getattr(group, "commands")))  # noqa: B009  # typer's own class has it
    yield Row("commands: options in all", count_options(group))
    yield Row("settings", len(Settings.model_fields))
    yield Row("settings that .env.example shows", len(shown))
    yield Row("lines: docker-compose.yml", (ROOT / "docker-compose.yml").read_text().count("\n"))


def docs_rows() -> Iterator[Row]:
    """Yield the pages of the docs and their words; the decisions are not counted."""
    pages = list((ROOT / "docs").glob("*.md"))
    yield Row("docs: pages", len(pages))
    yield Row("docs: words", sum(len(page.read_text().split()) for page in pages))


def graph_rows() -> Iterator[Row]:
    """Yield the number of modules that import each other in circles, and print them. Annotations count."""
    graph = build_graph(*PACKAGES)
    imported_by = {name: graph.find_modules_that_directly_import(name) for name in graph.modules}
    circular = sorted(name for name in graph.modules if imported_by[name] & graph.find_upstream_modules(name))
    sys.stdout.write(f"in circles: {', '.join(circular)}\n")
    yield Row("files in circles of imports", len(circular))


def code_rows() -> Iterator[Row]:
    """Yield the form of modules, functions and names, and print what stands out."""
    functions, classes = list[tuple[int, str]](), defaultdict[str, list[str]](list)
    for path in sources(*(ROOT / name for name in PACKAGES)):
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                functions.append((node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.name}"))
            elif isinstance(node, ast.ClassDef):
                classes[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: places for name, places in sorted(classes.items()) if len(places) > 1}
    for name, places in shared.items():
        sys.stdout.write(f"class {name}: {', '.join(places)}\n")
    tasks = set(sources(*(path for folder in TASKS for path in (ROOT / folder).glob("*/"))))
    own = [each for each in sources(*parts_of_the_house()["core"]) if each not in tasks]
    core = sorted((count_lines(each), str(each.relative_to(ROOT))) for each in own)
    modules = [(lines, name) for lines, name in core if name.endswith(".py") and not name.endswith("__.py")]
    small = [f"{name} ({lines})" for lines, name in modules if lines < SMALL and not name.endswith("/plugin.py")]
    sys.stdout.write(f"longest module of core: {core[-1][1]}\nmodules of core under 40 lines: {', '.join(small)}\n")
    length, longest = max(functions)
    sys.stdout.write(f"longest function: {longest}\n")
    yield Row("lines of the longest module of core", core[-1][0])
    yield Row("modules of core under 40 lines", len(small))
    yield Row("lines of the longest function", length)
    yield Row("class names defined more than once", len(shared))


def main() -> int:
    """Print the table; return 1 where a figure is above its limit."""
    rows = [*size_rows(), *trip_rows(), *door_rows(), *docs_rows(), *graph_rows(), *code_rows()]
    sys.stdout.write(f"{'':<42}{'today':>8}{'limit':>9}\n" + "".join(f"{row}\n" for row in rows))
    return int(any(row.is_above for row in rows))


if __name__ == "__main__":
    sys.exit(main())
