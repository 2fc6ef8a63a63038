"""Measure the house: lines of each part beside its goal, arrows and circles between modules, names, functions.

``make house`` prints the table. ``make check`` runs it too: it fails where a figure is above its limit. Limits only go
down; a figure that fell far below its limit says so, and the limit follows it in the same change.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from grimp import ImportGraph, build_graph

ROOT = Path(__file__).parents[1]

PACKAGES = ("api", "workers", "compile", "corelane")

#: The folders that hold a folder for each task. A task's own folder counts apart from all other parts.
TASKS = ("corelane/tasks", "compile/tasks")

#: The plugins that stand in the folder of a task, as they serve it alone. They count as plugins all the same.
TASKS_PLUGINS = ("corelane/tasks/question_answering/tune",)

#: What is no core inside of ``corelane``.
OUTSIDE = ("cli", "client", "plugins")

#: Most lines of each part, and the goal. They rose once: when one task became six, and a task a folder of its own.
LINES: Mapping[str, tuple[int, int]] = {
    "core": (32_140, 24_000),
    "compile": (4_760, 4_700),
    "cli, client": (8_410, 6_000),
    "plugins": (23_470, 22_000),
    "product": (68_770, 57_000),
    "benchmarks": (4_420, 4_000),
    "tests": (58_300, 40_000),
}

#: Most lines of the folders of all tasks.
TASK_LINES = 5_950

#: Most lines of each plugin, and the goal.
PLUGINS: Mapping[str, tuple[int, int]] = {
    "accounting": (1_710, 2_200),
    "backends": (830, 1_100),
    "console": (4_480, 4_800),
    "files": (4_260, 4_300),
    "fleet": (860, 800),
    "lab": (7_790, 5_500),
    "tune": (3_560, 3_300),
}

#: Most arrows between the rooms of each package: pairs of ``package.A`` and ``package.B`` where A imports B.
ARROWS: Mapping[str, int] = {"corelane": 78, "api": 22, "workers": 4, "compile": 36}

#: Most circles between modules: groups of modules that import each other.
CIRCLES = 0

#: Most names of classes that are defined more than once.
CLASSES = 0

#: Most lines of a module.
MODULE = 400

#: Most lines of a function.
FUNCTION = 130


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the house beside its limit, and its goal if that differs."""

    name: str
    figure: int
    limit: int
    goal: int | None = None

    @property
    def is_above(self) -> bool:
        """Return whether the figure is above its limit."""
        return self.figure > self.limit

    def __str__(self) -> str:
        goal = self.limit if self.goal is None else self.goal
        mark = "  above its limit" if self.is_above else "" if self.figure <= goal else f"  goal {goal:,}"
        return f"{self.name:<42}{self.figure:>8,}{self.limit:>9,}{mark}"


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


def line_rows() -> Iterator[Row]:
    """Yield the lines of each part and of each plugin."""
    parts = parts_of_the_house()
    added = [ROOT / path for path in TASKS_PLUGINS]
    tasks = set(sources(*parts.pop("tasks"))) - set(sources(*added))
    for part, folders in parts.items():
        apart = tasks | set(sources(*added)) if part == "core" else tasks
        yield Row(f"lines: {part}", count_lines(*(set(sources(*folders)) - apart)), *LINES[part])
    yield Row("lines: tasks", count_lines(*tasks), TASK_LINES)
    plugins = [path for path in (ROOT / "corelane/plugins").iterdir() if (path / "__init__.py").exists()]
    for folder in sorted([*plugins, *added], key=lambda path: path.name):
        yield Row(f"lines: plugin {folder.name}", count_lines(folder), *PLUGINS.get(folder.name, (0, 0)))


def room_of(module: str) -> str:
    """Return the room of a package that a module stands in."""
    inside = module.replace(".", "/").startswith(TASKS_PLUGINS)
    return "plugins" if inside else f"{module}.".split(".")[1]


def arrows(graph: ImportGraph, package: str) -> dict[str, set[str]]:
    """Return the rooms of a package, each with the rooms it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.find_descendants(package):
        for imported in graph.find_modules_directly_imported_by(module):
            room, other = room_of(module), room_of(imported)
            if imported.startswith(f"{package}.") and room != other:
                found[room].add(other)
    return found


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return a circle of modules after another, each without the arrows of those before."""
    left, found = {name: set(those) for name, those in imports.items()}, []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            # A node is listed after the one that it depends on.
            circle: list[str] = error.args[1]
            left[circle[1]].discard(circle[0])
            found.append(circle)
        else:
            return found


def graph_rows() -> Iterator[Row]:
    """Yield the arrows of each package and the circles between modules, and print those."""
    graph = build_graph(*PACKAGES, exclude_type_checking_imports=True)
    for package, most in ARROWS.items():
        yield Row(f"arrows between rooms: {package}", sum(map(len, arrows(graph, package).values())), most)
    found = circles({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    for circle in found:
        sys.stdout.write(f"circle: {' → '.join(circle)}\n")
    yield Row("circles between modules", len(found), CIRCLES)


def code_rows() -> Iterator[Row]:
    """Yield the length of the longest function and the number of class names that are no one's own; print both."""
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
    size, largest = max(
        (count_lines(path), str(path.relative_to(ROOT))) for path in sources(*(ROOT / p for p in PACKAGES))
    )
    sys.stdout.write(f"longest module: {largest}\n")
    yield Row("lines of a module", size, MODULE)
    length, longest = max(functions)
    sys.stdout.write(f"longest function: {longest}\n")
    yield Row("class names defined more than once", len(shared), CLASSES)
    yield Row("lines of a function", length, FUNCTION)


def main() -> int:
    """Print the table; return 1 where a figure is above its limit."""
    rows = [*line_rows(), *graph_rows(), *code_rows()]
    sys.stdout.write(f"{'':<42}{'today':>8}{'limit':>9}\n" + "".join(f"{row}\n" for row in rows))
    return int(any(row.is_above for row in rows))


if __name__ == "__main__":
    sys.exit(main())
