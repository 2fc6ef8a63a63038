"""The engine of handlers: items in stored form become items in the handler's own form, and outputs results."""

from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError

from corelane.domain.jobs import JobStatus
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.task import Query, Ready, Result, RunnerWork, TaskEngine, Window, failure
from corelane.errors import CorelaneError, InvalidInput
from corelane.errors.sentences import first_fault
from corelane.tasks.handler.engine.batches import BatchOutputs, HandlerBatch, HandlerBucket, HandlerModel, ItemToRun
from corelane.tasks.handler.files import FileUrl

#: The length of a bucket that holds any item.
ANY_LENGTH = 1 << 62

#: Most units that an item counts for. Sums of many such items are exact in Redis.
MOST_UNITS = 1_000_000_000


class HandlerEngine(TaskEngine[ItemToRun]):
    """Reads items, and makes results of outputs."""

    def __init__(self, model: HandlerModel) -> None:
        self._model, self._handler = model, model.handler
        self.work = RunnerWork()
        self.bucket = HandlerBucket(ANY_LENGTH, model.handler.max_batch)

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[ItemToRun]]:
        """Return each item in the handler's form, or the result that says what is wrong with it."""
        found: list[Ready[ItemToRun]] = []
        for key, query in queries:
            try:
                found.append((key, self._item(query)))
            except CorelaneError as error:
                found.append((key, failure(query, error)))
        return found

    def _item(self, query: Query) -> ItemToRun:
        given = query.options.by_name()
        options = self._options(query, given)
        files: list[FileUrl] = []
        item = self._read(query, "Input", orjson.loads(query.text), files)
        try:
            units = min(MOST_UNITS, max(1, int(self._handler.units(item))))
        except (Exception, GeneratorExit) as error:
            raise self._model.raised("units", error, [query]) from None
        key = orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode()
        bucket = HandlerBucket(ANY_LENGTH, self.bucket.rows, key)
        return ItemToRun(query, (Window(0, units, units),), item, files, options, bucket)

    def _options(self, query: Query, given: dict[str, Any]) -> BaseModel | None:
        if self._handler.Options is None:
            if given:
                raise InvalidInput(f"this handler takes no options, as {next(iter(given))}")
            return None
        return self._read(query, "Options", given)

    def _read(self, query: Query, form: str, value: Any, files: list[FileUrl] | None = None) -> BaseModel:
        try:
            found: BaseModel = getattr(self._handler, form).model_validate(value, context=files)
        except ValidationError as error:
            raise InvalidInput(f"{'options: ' if form == 'Options' else ''}{first_fault(error)}") from None
        except (Exception, GeneratorExit) as error:
            raise self._model.raised(form, error, [query]) from None
        return found

    def fill(self, bucket: Bucket, rows: Sequence[tuple[ItemToRun, Window]], height: int) -> WindowBatch:  # noqa: ARG002
        """Return a batch of items; its arrays only say how many units it has."""
        used = np.broadcast_to(np.int64(0), (1, sum(window.length for _, window in rows)))
        return HandlerBatch(self.bucket, used, used, used, [item for item, _ in rows])

    def decode(self, logits: Logits, rows: Sequence[tuple[ItemToRun, Window]]) -> list[Any]:  # noqa: ARG002
        """Return what was found for each row."""
        return cast(BatchOutputs, logits).found

    def compose(self, item: ItemToRun, decoded: Sequence[Any]) -> Result:
        """Return an item's result: its output, or the error that the handler gave for it."""
        [found] = decoded
        if isinstance(found, CorelaneError):
            return failure(item.query, found)
        return {"status": str(JobStatus.SUCCEEDED), "output": found, "windows": 1, "error": None}
