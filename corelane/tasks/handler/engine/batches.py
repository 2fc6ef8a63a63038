"""Batches of a handler: items of one set of options, run by ``predict`` at once or step by step."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.null import AnyShape
from corelane.engine.task import Query, Window
from corelane.errors import CorelaneError, RunFailed, last_line
from corelane.errors.sentences import first_fault
from corelane.log import get_logger
from corelane.tasks.handler.engine.thread import HandlerThread
from corelane.tasks.handler.interface import Handler

log = get_logger(__name__)

#: What was found for an item: its output in stored form, or the error for which it fails; None while it has none.
Found = dict[str, Any] | CorelaneError | None


@dataclass(frozen=True, slots=True)
class HandlerBucket(AnyShape):
    """The bucket of items with the same options; as many rows as the handler takes items."""

    options: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ItemToRun:
    """An item in the handler's own form, as one window whose length is its units."""

    query: Query
    windows: Sequence[Window]
    given: BaseModel
    options: BaseModel | None
    bucket: Bucket


@dataclass(slots=True)
class HandlerRun:
    """A ``predict`` in progress: its steps, if it is a generator, and the seconds that it ran."""

    steps: Iterator[Any] | None = None
    latest: Any = None
    is_over: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class HandlerBatch(WindowBatch):
    """Items instead of tokens."""

    items: Sequence[ItemToRun]
    run: HandlerRun = field(default_factory=HandlerRun)


class BatchOutputs(tuple[Any, ...]):
    """Takes the place of logits: the outputs of a batch, by its items."""

    by_item: dict[int, Found]


class HandlerModel:
    """A handler that is set up, and its thread."""

    def __init__(self, version: str, handler: Handler, thread: HandlerThread) -> None:
        self.version, self.handler, self.thread = version, handler, thread

    def run(self, batch: WindowBatch) -> BatchOutputs:
        """Run a batch, or its next step; raises RunFailed, or RuntimeLost if it takes too long."""
        batch = cast(HandlerBatch, batch)
        run, limit_s = batch.run, self.handler.timeout_s
        began = time.monotonic()
        left_s = None if limit_s is None else max(0.0, limit_s - run.seconds)
        is_last = run.is_over = self.thread.call(lambda: self._step(batch), left_s)
        run.seconds += time.monotonic() - began
        outputs = BatchOutputs()
        found = self._check(run.latest, len(batch.items), is_last=is_last)
        outputs.by_item = {id(item): each for item, each in zip(batch.items, found, strict=False)}
        return outputs

    def _step(self, batch: HandlerBatch) -> bool:
        """Call ``predict``, or ask it for its next outputs; return whether these are the last."""
        run = batch.run
        try:
            if run.steps is None:
                options = batch.items[0].options
                found = self.handler.predict(
                    [item.given for item in batch.items], *([] if options is None else [options])
                )
                if not isinstance(found, Iterator):
                    run.latest = found
                    return True
                run.steps = found
            try:
                run.latest = next(run.steps)
                return False
            except StopIteration:
                return True
        except (Exception, SystemExit) as error:
            if isinstance(error, CorelaneError) and error.retryable:
                raise
            log.info("handler_raised", version=self.version, items=len(batch.items), exc_info=len(batch.items) == 1)
            raise RunFailed(f"predict raised {type(error).__name__}: {last_line(error)}") from error

    def _check(self, found: Any, count: int, *, is_last: bool) -> list[Found]:
        """Return what was found for each item, in stored form; raise RunFailed if that cannot be said."""
        if not isinstance(found, list | tuple):
            raise RunFailed(f"predict gave {type(found).__name__}, and must give a list with an output for each item")
        if len(found) != count and (is_last or len(found) > count):
            raise RunFailed(f"predict gave {len(found)} outputs for {count} items")
        return [self._output(each) if is_last or each is not None else None for each in found]

    def _output(self, output: Any) -> Found:
        if isinstance(output, CorelaneError):
            return output
        if isinstance(output, Exception):
            return RunFailed(f"{type(output).__name__}: {last_line(output)}")
        try:
            form = self.handler.Output
            return (output if isinstance(output, form) else form.model_validate(output)).model_dump(mode="json")
        except ValueError as error:
            fault = first_fault(error) if isinstance(error, ValidationError) else last_line(error)
            return RunFailed(f"predict gave an output that is none: {fault}")
