"""Write the tables of docs/models.md: what each architecture comes to, and what to load.

``make models-table`` runs it. The first table is made by compiling a tiny model of each architecture, the second from
the page's own table of shapes.
"""

import itertools
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from compile.model.families import REFUSED
from corelane.artifacts.manifest import TokenizerSpec
from tests.families.checkpoints import CHECKPOINTS
from tests.families.networks import save_tiny, tokenizer_of
from tests.families.rows import ROWS, Row

ROOT = Path(__file__).parents[2]

PAGE = ROOT / "docs" / "models.md"

#: Heads of the table of shapes there.
SHAPES_TITLE = "| shape | architecture | million weights | cost of a token |"

#: How the attentions of a manifest are called on the page.
ATTENTIONS = {"sdpa": "fused", "eager": "plain"}


def architecture_lines() -> Iterator[str]:
    """Yield the table of architectures."""
    from compile.model.loading import quiet_transformers
    from compile.model.timing import one_thread

    yield "| architecture | tokenizer | a row | attention | padding |"
    yield "|---|---|---|---|---|"
    with quiet_transformers(), one_thread(), tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            if not row.refused:
                yield _describe(row, Path(folder) / row.kind)


def _describe(row: Row, folder: Path) -> str:
    """Return the line of an architecture that works."""
    from compile.model.loading import load_model
    from compile.model.reference import wrap
    from compile.model.source import find_source
    from compile.torch.cpu import cast, compiler_args

    model = load_model(find_source(str(save_tiny(row, folder)), folder))
    arguments = dict(each.split("=", 1) for each in compiler_args(cast(wrap(model), "fp32").network, "fp32"))
    tokenizer = (row.tokenizer or tokenizer_of(row.kind)).removesuffix("Tokenizer")
    attention = ATTENTIONS[arguments["attention"]] + (", adapted" if "network" in arguments else "")
    padding = "left out" if arguments["rows"] == "ragged" else "computed"
    return f"| {row.kind} | {tokenizer} | {_row_of(model.spec)} | {attention} | {padding} |"


def _row_of(spec: TokenizerSpec) -> str:
    """Return how a row is put together: ``.`` is a special token, ``0`` that of no answer, Q and C are the texts."""
    template = spec.layout()
    before, between, after = (len(each) for each in (template.before, template.between, template.after))
    row = "." * before + "Q" + "." * between + "C" + "." * after
    shown = row[:-1] + "0" if template.null_last else re.sub(r"^\.", "0", row)
    return f"`{shown}`" + (", types" if any(map(_is_typed, template.part_types())) else "")


def _is_typed(types: tuple[int, ...] | int) -> bool:
    return any(types) if isinstance(types, tuple) else bool(types)


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
