"""Write the tables of docs/models.md: which architectures and popular models work, and what to load.

``make models-table`` runs it. The table of models takes its costs from the page's own table of shapes, and that of
popular models what it said before, unless ``MEASURE=1`` tries them again.
"""

import itertools
import math
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from compile.model.adapt import ADAPTED
from compile.model.families import REFUSED
from compile.model.loading import quiet_transformers
from compile.model.timing import one_thread
from corelane.errors import ModelRefused
from tests.families.checkpoints import CHECKPOINTS
from tests.families.popular.lists import INDEPENDENT, POPULAR
from tests.families.popular.rows import Popular
from tests.families.rows import ROWS

ROOT = Path(__file__).parents[2]

PAGE = ROOT / "docs" / "models.md"

#: Heads of the table of shapes there.
SHAPES_TITLE = "| shape | architecture | million weights | cost of a token |"

POPULAR_TITLE = "| model | as | largest difference, or why not |"

#: The files of tokenizers, by their form.
FILES = {"words": "vocab.txt", "merges": "vocab.json", "pieces": "SentencePiece", "json": "tokenizer.json"}

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


def popular_lines(page: str, *, measure: bool = False) -> Iterator[str]:
    """Yield the table of popular models, with what the page says of each, or with what is measured."""
    known = {cells[0]: cells[2] for cells in cells_of(page, POPULAR_TITLE)}
    yield POPULAR_TITLE
    yield "|---|---|---|"
    for row in (*POPULAR, *INDEPENDENT):
        name = f"`{row.name}`"
        parts = [row.kind, FILES[row.form], *([row.dtype] if row.dtype != "float32" else []), row.weights]
        found = measured(row) if measure else known.get(name, "not tried")
        yield f"| {name} | {', '.join(part for part in parts if part != 'safetensors')} | {found} |"


def measured(row: Popular) -> str:
    """Return how far a model is from its reference at most, to the next power of ten, or why it is refused."""
    # It compiles a model, which a check of the page alone does not need.
    from tests.families.popular.held import hold

    with tempfile.TemporaryDirectory() as folder, quiet_transformers(), one_thread():
        try:
            return f"1e{math.ceil(math.log10(hold(row, Path(folder))))}"
        except ModelRefused as error:
            return error.detail


def cells_of(page: str, title: str) -> Iterator[list[str]]:
    """Yield the cells of each row of a table on the page."""
    rows = (line.strip("| ").split(" | ") for line in page.partition(title)[2].splitlines()[2:])
    yield from itertools.takewhile(lambda row: len(row) > 1, rows)


def measured_shapes(page: str) -> dict[str, tuple[float, float]]:
    """Return million weights and the cost of a token by shape."""
    return {cells[0]: (float(cells[2]), float(cells[3])) for cells in cells_of(page, SHAPES_TITLE)}


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
        "popular": popular_lines(page, measure="--measure" in sys.argv),
    }
    for name, lines in tables.items():
        page = put_in(page, name, lines)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
