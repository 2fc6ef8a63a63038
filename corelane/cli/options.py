"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from corelane.domain.jobs import Priority


def choice(values: Sequence[str], description: str) -> Any:
    """Return an option with a fixed set of values, which may depend on the installed plugins."""

    def parse(value: str) -> str:
        if value not in values:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, values))}.")
        return value

    return typer.Option(parser=parse, metavar=f"<{'|'.join(values)}>", help=description)


PriorityOption = Annotated[Priority, typer.Option(help="Jobs of higher priority are answered first.")]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="Where results go; an interrupted run resumes an existing file.")
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="FIELD=COLUMN", help="Read a field of the item from a table's column; may be repeated."
    ),
]
JobsOption = Annotated[int, typer.Option(min=1, max=64, help="Jobs in flight at a time.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Start over, dropping an existing output.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")]
