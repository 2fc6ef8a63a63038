"""Where an interrupted ``corelane batch`` resumes, in a small file beside its output.

The output holds the lines that are answered. This file holds the name of the run that asked them, so that jobs which
the service still works on, or has answered since, are found again and not asked twice. Without it, or with other
options, lines that are not in the output are asked again.
"""

import hashlib
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

#: Added to the name of an output.
SUFFIX = ".run"


@dataclass(slots=True)
class RunFile:
    """A run's name, and the lines and items before its oldest unfinished job."""

    path: Path | None
    asks: str
    name: str
    lines: int = 0
    items: int = 0

    def write(self) -> None:
        """Write it to disk, whole or not at all."""
        if self.path is None:
            return
        text = orjson.dumps({"asks": self.asks, "name": self.name, "lines": self.lines, "items": self.items})
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_bytes(text)
        temporary.replace(self.path)

    def remove(self) -> None:
        """Remove the file: the run is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def open_run(output: Path | None, asks: object, kept_lines: int) -> RunFile:
    """Return the run that an output belongs to, or a new one that begins after the lines it holds.

    ``asks`` is the model and options that every line is asked with: others make another run.
    """
    path = None if output is None else output.with_name(output.name + SUFFIX)
    digest = hashlib.sha256(orjson.dumps(asks, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    if path is not None:
        with suppress(FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            found = orjson.loads(path.read_bytes())
            run = RunFile(path, digest, str(found["name"]), int(found["lines"]), int(found["items"]))
            if found["asks"] == digest and 0 <= run.lines <= kept_lines and run.items >= 0:
                return run
    run = RunFile(path, digest, f"batch-{uuid.uuid4().hex}", kept_lines)
    run.write()
    return run
