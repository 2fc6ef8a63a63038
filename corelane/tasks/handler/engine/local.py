"""A handler in this process, without a service: ``corelane run`` asks it, and packaging tries its example."""

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any, cast

import orjson
from pydantic import ValidationError

from corelane.artifacts.manifest import Artifact, Manifest
from corelane.domain.jobs import Item, Result
from corelane.engine.backends.protocol import Backend
from corelane.engine.task import Query, RunnerLimits
from corelane.errors import ArtifactRefused, InvalidInput, LoadFailed
from corelane.errors.sentences import first_fault
from corelane.log import PrintedLines
from corelane.tasks.handler.engine.batches import LOG_SAYS
from corelane.tasks.handler.engine.runner import HandlerRunner
from corelane.tasks.handler.engine.source import own_examples
from corelane.tasks.handler.task import HandlerTask
from corelane.tasks.handler.wire import HandlerItem
from corelane.tasks.results import model_result

#: Items that are given to the handler at a time; it cuts them into batches.
ITEMS = 256


class LocalHandler:
    """A handler that is set up in this process."""

    def __init__(self, runner: HandlerRunner, manifest: Manifest) -> None:
        self._runner = runner
        self.version = manifest.version_id
        self.task = HandlerTask().of_version(self.version, {"facts": manifest.facts})

    def results(self, items: Iterator[Item], options: Mapping[str, Any]) -> Generator[Result, None, None]:
        """Yield the result of each item, in order; raises InvalidInput for wrong options, or RuntimeLost."""
        try:
            given = self.task.options.model_validate(options)
        except ValidationError as error:
            raise InvalidInput(f"options: {first_fault(error)}") from None
        first = 0
        while some := list(islice(items, ITEMS)):
            texts = [cast(HandlerItem, item).text for item in some]
            queries = [Query(None, text, given, index=first + n) for n, text in enumerate(texts)]
            with redirect_stdout(PrintedLines(sys.stdout)):
                found = self._runner.results_of(queries)
            for n, (item, result) in enumerate(zip(some, found, strict=True)):
                if result["error"] is not None:
                    # The traceback is above, on the same terminal.
                    result["error"] |= {"detail": result["error"]["detail"].removesuffix(LOG_SAYS)}
                yield model_result({"index": first + n, "id": item.id, **result}, self.version)
            first += len(some)


@contextmanager
def opened(manifest: Manifest, folder: Path, limits: RunnerLimits) -> Iterator[LocalHandler]:
    """Set up the handler of a manifest; raises ArtifactRefused or LoadFailed."""
    try:
        with redirect_stdout(PrintedLines(sys.stdout)):
            runner = HandlerRunner.open(cast(Backend, None), Artifact(path=folder, manifest=manifest), limits)
    except LoadFailed as error:
        raise LoadFailed(error.detail.removesuffix(LOG_SAYS)) from None
    yield LocalHandler(runner, manifest)
    runner.close()


def try_example(manifest: Manifest, folder: Path, limits: RunnerLimits) -> str:
    """Ask a handler the example that its Input gives; return what became of it. Raises ArtifactRefused if it fails."""
    facts = manifest.facts
    example, options = next(own_examples(facts["input_schema"]), None), facts["options_schema"] or {}
    if example is None:
        return 'its Input gives no example, so predict was not tried: json_schema_extra={"examples": [{…}]} gives one'
    if manifest.target != "cpu" or options.get("required"):
        why = "its Options have fields without a default" if options.get("required") else f"it is for {manifest.target}"
        return f"its example was not tried, as {why}"
    with opened(manifest, folder, limits) as local:
        try:
            item = local.task.item.model_validate(example)
            [result] = local.results(iter([item]), {})
            fault = result.error and result.error.detail
        except (ValidationError, InvalidInput) as error:
            fault = first_fault(error) if isinstance(error, ValidationError) else error.detail
    if fault is not None:
        shown = orjson.dumps(example).decode()
        raise ArtifactRefused(f"{facts['handler']} fails with its own example {shown}: {fault}")
    return "its example was answered"
