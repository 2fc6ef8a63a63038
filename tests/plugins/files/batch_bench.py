"""The store's bench with a keeper's context, and files and batches as their caller sees them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson

from corelane.domain.batches import Batch, BatchRequest
from corelane.domain.ids import new_id
from corelane.plugins.files.batches.task import step
from corelane.plugins.files.batches.tools import BatchTools
from corelane.plugins.files.store.batches import BatchRecord, BatchStore
from corelane.plugins.files.store.files import FileStore, file_fields
from corelane.store.feeding import Feeder
from corelane.store.file_storage import open_storage
from corelane.store.fleet import Fleet
from corelane.store.jobs.store import JobStore
from corelane.store.link.link import AsyncLink
from corelane.submitting.submitter import Submitter
from tests.corelane.store_bench import Bench, LoneCore, answer_all

Found = TypeVar("Found")


def line(custom_id: str, **body: Any) -> bytes:
    body = {"question": "who", "context": "ada"} | body
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/answers", "body": body}) + b"\n"


class BatchBench(Bench):
    """The store's bench, with a keeper's context and a caller's view of files and batches."""

    def keep(self, content: bytes, owner: str = "ann") -> str:
        file = new_id("file")
        writer = open_storage(self.settings.files_url, self.settings.files_root).create(file)
        writer.write(content)
        writer.close()
        self.in_context(
            lambda context: context.files.keep(file, owner, 3600, file_fields("batch", "in.jsonl", len(content)))
        )
        return file

    def begin(self, content: bytes, window: str = "24h", owner: str = "ann", **more: Any) -> str:
        batch, file = new_id("batch"), self.keep(content, owner)
        given = {"endpoint": "/v1/answers"} | more
        request = BatchRequest(input_file_id=file, completion_window=window, **given)
        self.in_context(lambda context: context.batches.begin(batch, owner, request))
        return batch

    def in_context(self, action: Callable[[BatchTools], Awaitable[Found]], name: str = "keeper") -> Found:
        async def run() -> Found:
            link, settings = AsyncLink(self.settings.redis_url), self.settings
            jobs = JobStore(link, settings, self.bell)
            stores = (jobs, Submitter(jobs, Fleet(link), settings), BatchStore(link), FileStore(link))
            try:
                return await action(
                    BatchTools(name, settings, *stores, open_storage(settings.files_url, settings.files_root))
                )
            finally:
                await link.close()

        return asyncio.run(run())

    def record(self, batch: str) -> BatchRecord:
        found = self.in_context(lambda context: context.batches.get(batch))
        assert found is not None
        return found

    def batch(self, batch: str) -> Batch:
        return self.record(batch).describe()

    def steps(self) -> None:
        """All steps that can be taken."""

        async def go_on(context: BatchTools) -> None:
            assert await context.batches.take_turn(context.name)
            while any([await step(context, record) for record in await context.batches.open_batches()]):
                pass

        self.in_context(go_on)

    def feed(self) -> None:
        feeder = Feeder(self.settings, self.bell)
        while sum(feeder.feed(job) for job in feeder.jobs()):
            pass

    def answer(self, core: LoneCore) -> None:
        self.feed()
        answer_all(core)

    def lines(self, file: str | None) -> list[dict[str, Any]]:
        if file is None:
            return []
        content = b"".join(open_storage(self.settings.files_url, self.settings.files_root).read(file))
        return [orjson.loads(each) for each in content.splitlines()]

    def left_behind(self) -> set[str]:
        """Return working files that are still there once the feeder has seen to those of final jobs."""
        self.feed()
        root = self.settings.files_root
        return {path.name for folder in (root, root / "kept/items", root / "kept/plans") for path in folder.glob("*.*")}
