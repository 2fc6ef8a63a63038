"""Where the results of a run go, and the file beside it that says what the run asked.

Results are lines in the output. If the output is a table, is packed, or has columns of the input, they are lines in a
file beside it until all are there. Then they are joined with the rows of the input, and the output appears whole.
"""

import fcntl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from corelane.cli.item_lines import OutputState
from corelane.cli.tables.forms import STANDARD
from corelane.errors import InvalidInput
from corelane.tasks.task import Task

if TYPE_CHECKING:
    from corelane.cli.tables.reading import Source


@dataclass(slots=True)
class RunFile:
    """A run: its options, its name, and the lines and items before its oldest unfinished job."""

    path: Path | None
    asks: dict[str, Any]
    name: str
    lines: int = 0
    items: int = 0
    #: What the output has, once it has been joined: counts of lines, of those that failed, and of empty ones.
    joined: dict[str, Any] | None = None
    #: Whether an earlier command began the run.
    is_resumed: bool = False

    def write(self) -> None:
        """Write the file to disk, completely or not at all."""
        if self.path is None:
            return
        temporary = self.path.with_name(f"{self.path.name}.new")
        own = {name: value for name, value in asdict(self).items() if name not in ("path", "is_resumed")}
        temporary.write_bytes(orjson.dumps(own))
        temporary.replace(self.path)

    def require_same(self, asks: Mapping[str, Any], output: Path, names: Mapping[str, str]) -> None:
        """Raise InvalidInput if the output was begun with other options, which are told as ``names`` has them typed."""
        shown = {"None": "not given", "[]": "not given", "False": "given"}
        differ = []
        for name in sorted({*self.asks, *asks}):
            old, new = str(self.asks.get(name)), str(asks.get(name))
            if old != new:
                typed = names.get(name, "--" + name.replace("_", "-"))
                differ.append(f"{typed} was {shown.get(old, old)}, now it is {shown.get(new, new)}")
        if differ:
            raise InvalidInput(
                f"{output} was begun otherwise: {'; '.join(differ)}. Resume it with what it was begun with, name "
                "another output, or start over with --overwrite"
            )


@dataclass(frozen=True, slots=True)
class RunOutput:
    """The output of one run, and its two files beside it."""

    path: Path
    #: Whether results are joined with the rows of the input once all are there.
    is_joined: bool

    @property
    def _lines(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lines") if self.is_joined else self.path

    @property
    def run_path(self) -> Path | None:
        """The file that says what the run asked; None for standard output."""
        return self.path.with_name(f"{self.path.name}.run") if self.path != STANDARD else None

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open what results are written to, line by line: to read and append, locked against other runs."""
        if self.path == STANDARD:
            yield sys.stdout.buffer
            return
        with self._lines.open("a+b") as sink:
            try:
                fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(f"another command is writing {self.path}") from None
            sink.seek(0)
            yield sink

    def read_run(self) -> RunFile | None:
        """Return the run that the output belongs to; None if that is not known."""
        with suppress(FileNotFoundError, orjson.JSONDecodeError, TypeError):
            if (path := self.run_path) is not None:
                return RunFile(path, **orjson.loads(path.read_bytes()), is_resumed=True)
        return None

    def join(self, task: Task, source: "Source", sink: BinaryIO, kept: OutputState) -> None:
        """Write the output from its lines, which are all there, and drop these. A killed command does this again."""
        from corelane.cli.tables.writing import join

        sink.flush()
        join(self.path, task, sink, source, kept.lines)
        if (run := self.read_run()) is not None:
            run.joined = {"lines": kept.lines, "failed": kept.failed, "empty": kept.empty}
            run.write()
        self._lines.unlink(missing_ok=True)

    def joined_before(
        self, sink: BinaryIO, asks: Mapping[str, Any], source: "Source", names: Mapping[str, str]
    ) -> OutputState | None:
        """Return what an output has that an earlier command joined; None if there is none, or lines to go on with.

        Raises InvalidInput if the output is not of this run.
        """
        if not (self.is_joined and self.path.exists()) or fstat(sink.fileno()).st_size:
            return None
        self._lines.unlink(missing_ok=True)
        run = self.read_run()
        if run is None or run.joined is None or run.joined["lines"] != source.count():
            raise InvalidInput(
                f"{self.path} exists, and is not of these items; name another output, or drop it with --overwrite"
            )
        run.require_same(asks, self.path, names)
        return OutputState(**run.joined)
