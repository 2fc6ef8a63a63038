"""Where an interrupted ``corelane batch`` is gone on with, in a small file beside its output.

The output says which lines are answered; this says which run asked them, so that jobs the service has under way, or has
answered since, are found again and not asked twice. Without it, or for other options, what is not in the output is
asked anew.
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
    """A run's name, and where its oldest unfinished job begins: after so many lines and items of the whole."""

    path: Path | None
    asks: str
    name: str
    lines: int = 0
    items: int = 0

    def write(self) -> None:
        """Put it on disk, whole or not at all."""
        if self.path is None:
            return
        text = orjson.dumps({"asks": self.asks, "name": self.name, "lines": self.lines, "items": self.items})
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_bytes(text)
        temporary.replace(self.path)

    def remove(self) -> None:
        """The run is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def open_run(output: Path | None, asks: object, kept_lines: int) -> RunFile:
    """The run that an output belongs to, or a new one that begins after the lines it holds.

    ``asks`` is what every line is asked with: another model or other options make another run.
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
