"""The data folder at the command line: the option that names it, and the error if it cannot be used."""

from pathlib import Path
from typing import Annotated

import typer

from corelane.errors import SetupError

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The data folder, as of `corelane serve --data`; CORELANE_DATA_DIR if not given."),
]


def writable_folder(folder: Path) -> Path:
    """Return the folder, made if needed; raise SetupError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".corelane-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise SetupError(f"{folder} cannot be written: {error.strerror}; name another folder with --data") from None
    return folder


def nearest_existing(folder: Path) -> Path:
    """Return the folder, or the first above it that exists and can be read."""
    for path in (folder, *folder.parents):
        try:
            if path.exists():
                return path
        except OSError:
            continue
    return Path("/")
