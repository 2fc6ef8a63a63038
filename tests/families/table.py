"""Write the tables of docs/models.md: which architectures work, and what to load.

``make models-table`` runs it. The table of models takes its costs from the page's own table of shapes.
"""

import itertools
import math
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from compile.model.adapt import ADAPTED
from compile.model.families import REFUSED
from tests.families.checkpoints import CHECKPOINTS
from tests.families.rows import ROWS

ROOT = Path(__file__).parents[2]

PAGE = ROOT / "docs" / "models.md"

#: Heads of the table of shapes there.
SHAPES_TITLE = "| shape | architecture | million weights | cost of a token |"

#: Columns at which the list of architectures is wrapped.
WIDTH = 100


def architecture_lines() -> Iterator[str]:
    """Yield the list of architectures that work; a star marks those that are compiled in a changed form."""
    names = [f"`{row.kind}`" + ("\\*" if row.kind in ADAPTED else "") for row in ROWS if not row.refused]
    yield from textwrap.wrap(", ".join(names) + ".", WIDTH, break_on_hyphens=False)


def refusal_lines() -> Iterator[str]:
    """Yield the table of architectures that are refused."""
    yield "| architecture | why it is refused |"
    yield "|---|---|"
    for row in ROWS:
        if row.refused:
            yield f"| {row.kind} | {REFUSED[row.kind]} |"


def model_lines(page: str) -> Iterator[str]:
    """Yield the table of models to load, the cheapest first; a shape that was not measured has no cost."""
    shapes = measured_shapes(page)
    yield "| model | million weights | cost of a token | F1 v1.1 | F1 v2.0 | licence | reads |"
    yield "|---|---:|---:|---:|---:|---|---|"
    for each in sorted(CHECKPOINTS, key=lambda each: (shapes.get(each.shape, (0, math.inf))[1], each.name)):
        shape = shapes.get(each.shape)
        measured = " | " if shape is None else f"{shape[0]:.0f} | {shape[1]:.1f}"
        scores = " | ".join(f"{score:.1f}" if score else "" for score in (each.v1, each.v2))
        yield f"| `{each.name}` | {measured} | {scores} | {each.licence} | {each.language} |"


def measured_shapes(page: str) -> dict[str, tuple[float, float]]:
    """Return million weights and the cost of a token by shape."""
    rows = (line.strip("| ").split(" | ") for line in page.partition(SHAPES_TITLE)[2].splitlines()[2:])
    return {
        cells[0]: (float(cells[2]), float(cells[3])) for cells in itertools.takewhile(lambda row: len(row) > 1, rows)
    }


def put_in(page: str, name: str, lines: Iterator[str]) -> str:
    """Return the page with these lines between the marks of a table."""
    begin, end = f"<!-- {name}: make models-table -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{PAGE} has no marks for {name}")
    return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"


def main() -> int:
    """Write the tables."""
    page = PAGE.read_text()
    tables = {
        "architectures": architecture_lines(),
        "refusals": refusal_lines(),
        "models": model_lines(page),
    }
    for name, lines in tables.items():
        page = put_in(page, name, lines)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
