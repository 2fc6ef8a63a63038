"""Batches of a handler: items of one set of options, run by one call of ``predict``."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any, cast

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.null import AnyShape
from corelane.engine.task import Query, RunnerLimits, Window
from corelane.errors import CorelaneError, CoreLost, OutputTooLarge, RunFailed, RuntimeLost
from corelane.errors.sentences import first_fault
from corelane.log import bind_lines, get_logger
from corelane.tasks.handler.engine.fetching import fetch_all
from corelane.tasks.handler.engine.thread import HandlerThread
from corelane.tasks.handler.files import FileUrl
from corelane.tasks.handler.interface import Handler
from corelane.tasks.handler.values import BYTES, fault_in, is_deep, output_schema

log = get_logger(__name__)

#: Most characters of a handler's own sentence in an item's error.
MOST_WORDS = 2000

#: The end of what callers see of an exception that is not meant for them.
LOG_SAYS = "; the worker's log says more"

#: What was found for an item: its output in stored form, or the error for which it fails.
Found = dict[str, Any] | CorelaneError


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
    files: Sequence[FileUrl]
    options: BaseModel | None
    bucket: Bucket


@dataclass(frozen=True, slots=True, eq=False)
class HandlerBatch(WindowBatch):
    """Items instead of tokens."""

    items: Sequence[ItemToRun]


class BatchOutputs(tuple[Any, ...]):
    """Takes the place of logits: what was found for each item of a batch."""

    found: list[Found]


class HandlerModel:
    """A handler that is set up, and its thread."""

    def __init__(self, version: str, handler: Handler, thread: HandlerThread, limits: RunnerLimits) -> None:
        self.version, self.handler, self.thread, self._limits = version, handler, thread, limits
        #: Whether `Output` has bytes without saying how they are encoded: then they become base64.
        schema = orjson.dumps(output_schema(handler.Output))
        self._has_bytes = BYTES in schema and "ser_json_bytes" not in handler.Output.model_config

    def run(self, batch: WindowBatch) -> BatchOutputs:
        """Run a batch; raises RunFailed, or RuntimeLost if it takes too long. An item without its files fails alone."""
        items, limit_s = cast(HandlerBatch, batch).items, self.handler.timeout_s
        named = [(item.query.owner, item.files) for item in items]
        failed = fetch_all(self._limits.fetch, named, self.handler.max_item_bytes)
        left = [item for number, item in enumerate(items) if number not in failed]
        made = iter(self.thread.call(lambda: self._predict(left), limit_s, f": {limit_s} s") if left else ())
        outputs = BatchOutputs()
        outputs.found = [cast(Found, failed[at]) if at in failed else next(made) for at in range(len(items))]
        return outputs

    def _predict(self, items: Sequence[ItemToRun]) -> list[Found]:
        """Call ``predict``; return what was found for each item, in stored form.

        What it prints and logs meanwhile has the version, the core, and the item or the number of items.
        """
        options, queries = items[0].options, [item.query for item in items]
        bind_lines(**ids_of(self.version, self._limits, queries))
        try:
            found = self.handler.predict([item.given for item in items], *([] if options is None else [options]))
        except (RuntimeLost, CoreLost):
            raise
        except BaseException as error:
            if len(items) == 1 and words_of(error):
                return [cast(CorelaneError, error)]
            # A batch of several items runs again in halves, down to the item at fault.
            raise self.raised("predict", error, queries) from None
        if not isinstance(found, list | tuple):
            raise RunFailed(f"predict gave {type(found).__name__}, and must give a list with an output for each item")
        if len(found) != len(items):
            raise RunFailed(f"predict gave {len(found)} outputs for {len(items)} items")
        return [self._output(each, query) for each, query in zip(found, queries, strict=True)]

    def _output(self, output: Any, query: Query) -> Found:
        if isinstance(output, BaseException):
            return cast(CorelaneError, output) if words_of(output) else self.raised("predict", output, [query], "gave")
        form, made = self.handler.Output, output
        try:
            made = output if isinstance(output, form) else form.model_validate(output)
            found: dict[str, Any] = made.model_dump(mode="python" if self._has_bytes else "json")
            found = to_jsonable_python(found, bytes_mode="base64") if self._has_bytes else found
            size = len(raw := orjson.dumps(found))
            # A null may have been a number that JSON has no word for.
            fault = fault_in(made.model_dump()) if b"null" in raw or is_deep(raw) else None
        except ValidationError as error:
            fault = first_fault(error, own_words=False)
        except BaseException as error:
            fault = fault_in(made)
            if fault is None:
                return self.raised("Output", error, [query])
        if fault is not None:
            return RunFailed(f"predict gave an invalid output: {fault}")
        if size > self._limits.max_output_bytes:
            return OutputTooLarge(
                f"the output has {size:,} bytes as JSON, and at most {self._limits.max_output_bytes:,} are taken: have "
                "the handler return less, or the operator raise CORELANE_MAX_OUTPUT_BYTES"
            )
        return found

    def raised(self, call: str, error: BaseException, queries: Sequence[Query], verb: str = "raised") -> RunFailed:
        """Return the error of items for an exception in the handler's code; see ``explain``."""
        ids = ids_of(self.version, self._limits, queries)
        return RunFailed(explain(type(self.handler), call, error, ids, verb, frames=self._limits.handler_frames))


def ids_of(version: str, limits: RunnerLimits, queries: Sequence[Query] = ()) -> dict[str, str]:
    """Return what lines of a handler's log are about: version, core, the job if it is one, the item or how many."""
    ids = {"version": version, "core": str(limits.core)}
    jobs = {query.job for query in queries}
    if len(jobs) == 1 and "" not in jobs:
        ids["job"] = jobs.pop()
    if queries:
        ids |= {"item": str(queries[0].index)} if len(queries) == 1 else {"items": str(len(queries))}
    return ids


def explain(
    kind: type[Handler],
    call: str,
    error: BaseException,
    ids: Mapping[str, str],
    verb: str = "raised",
    *,
    frames: bool,
) -> str:
    """Log an error of a handler's code; return what callers see of it: its type, with ``frames`` its place, no text.

    The text may hold anything. Only errors of ``corelane.errors`` are meant for callers. The traceback of a batch of
    several items is left out, as the batch runs again in halves.
    """
    name, package = type(error).__name__, kind.__module__.partition(".")[0]
    log.warning("handler_failed", call=call, error=name, exc_info=None if "items" in ids else error, **ids)
    if (words := words_of(error)) is not None:
        return f"{call} {verb} {name}: {words}"
    own = [
        f" at {Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if frames and str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    return f"{call} {verb} {name}{own[-1] if own else ''}{LOG_SAYS}"


def words_of(error: BaseException) -> str | None:
    """Return the sentence of an error that is meant for callers; None if it is not, or cannot be stored."""
    with suppress(Exception):
        if isinstance(error, CorelaneError) and orjson.dumps([error.code, error.detail]):
            return error.detail[:MOST_WORDS] or None
    return None
