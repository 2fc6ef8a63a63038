"""``corelane run module:Class``: items of a class of yours, run in this process without a service.

Its log, with what it prints and the tracebacks, goes to standard error. Results of lines are lines of JSON.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import orjson

from corelane.cli.item_lines import NumberedLine, number_lines, read_line, results_of, write_line
from corelane.cli.tables.forms import STANDARD, Form, form_of
from corelane.domain.jobs import EarlierIds, JobStatus, Result
from corelane.engine.task import RunnerLimits
from corelane.errors import InvalidInput, SetupError
from corelane.log import configure_logging
from corelane.settings import Settings, read_settings
from corelane.store.plugin import file_fetcher
from corelane.tasks.handler.engine.local import LocalHandler, opened
from corelane.tasks.handler.engine.packaging import manifest_of
from corelane.tasks.handler.engine.source import look_here, name_of
from corelane.tasks.task import Task


def run_item(path: str, read: Callable[[Task], Mapping[str, Any]], options: Mapping[str, Any]) -> Result:
    """Return the result of the item that ``read`` gives."""
    with opened_class(path) as local:
        [result] = results_in(local, iter([NumberedLine(0, orjson.dumps(read(local.task)))]), options)
        return result


def run_lines(path: str, source: Path, output: Path, options: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Write the results of lines; return whether no line failed. Raises InvalidInput for files of another form."""
    if tables := [each for each in (source, output) if form_of(each) != Form()]:
        raise InvalidInput(f"{tables[0]}: a class in this process reads and writes lines of JSON; serve it for tables")
    if output != STANDARD and output.exists() and not overwrite:
        raise InvalidInput(f"{output} exists, and such a run is not resumed: name another file, or give --overwrite")
    reading = nullcontext(sys.stdin.buffer) if source == STANDARD else source.open("rb")
    is_whole = True
    with opened_class(path) as local, reading as lines, _opened_output(output) as sink:
        for result in results_in(local, number_lines(lines), options):
            is_whole = is_whole and result.status is JobStatus.SUCCEEDED
            sink.write(write_line(result.model_dump(mode="json")))
        sink.flush()
    return is_whole


def results_in(local: LocalHandler, lines: Iterator[NumberedLine], options: Mapping[str, Any]) -> Iterator[Result]:
    """Yield the result of each line, in order."""
    read = map(partial(read_line, local.task, ids=EarlierIds()), lines)
    with closing(results_of(local.task, read, partial(local.results, options=options))) as results:
        yield from results


@contextmanager
def opened_class(path: str) -> Iterator[LocalHandler]:
    """Set up a class in this process; raises ArtifactRefused or LoadFailed."""
    settings = read_settings()
    configure_logging(settings.log_level, settings.log_format)
    look_here()
    manifest = manifest_of(path, name_of(path), "cpu", (path,), in_place=True)
    with TemporaryDirectory() as folder, opened(manifest, Path(folder), local_limits(path, settings)) as local:
        yield local


@contextmanager
def _opened_output(path: Path) -> Iterator[BinaryIO]:
    if path == STANDARD:
        yield sys.stdout.buffer
        return
    try:
        sink = path.open("wb")
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from None
    with sink:
        yield sink


def local_limits(path: str, settings: Settings) -> RunnerLimits:
    """Return the limits of a class that runs in this process."""
    return RunnerLimits(
        max_output_bytes=settings.max_output_bytes,
        handlers=(path,),
        handler_frames=True,
        fetch=file_fetcher(settings),
    )
