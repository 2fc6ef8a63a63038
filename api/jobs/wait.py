"""Waiting for jobs: one subscription per process wakes whoever waits for a job that has just become final.

A lost connection wakes everybody: they look again and go on waiting, so no completion is missed.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress

from api.middleware.presence import PRESENCE
from corelane.errors import Unavailable
from corelane.log import Outage, get_logger
from corelane.settings import Settings
from corelane.store.jobs.events import FINISHED
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.store.link.aio import subscribe

log = get_logger(__name__)

#: Pause before a lost subscription is taken up again, in seconds.
RESUBSCRIBE_S = 0.5

#: A waiter looks for itself this often, whatever it was told, in seconds.
LOOK_AGAIN_S = 5.0


class Completions:
    """Who waits for which job, and the task that listens for them."""

    def __init__(self, store: JobStore, settings: Settings) -> None:
        self._store = store
        self._redis_url = settings.redis_url
        self._ahead = settings.inline_results
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._listen(), name="completions")

    @property
    def is_closing(self) -> bool:
        """Whether nobody is to wait any more."""
        return self._closing

    def let_go(self) -> None:
        """Let every waiter go, now and from now on: the server is about to stop."""
        self._closing = True
        self._wake_all()

    async def close(self) -> None:
        """Stop listening and let every waiter go."""
        self.let_go()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def wait(
        self, job: str, seconds: float, submitting: Awaitable[JobRecord | None] | None = None
    ) -> JobRecord | None:
        """Return the job once it is final, or as it stands after ``seconds`` or when the caller of this request
        leaves; None if there is none.

        A job that is only now ``submitting`` is watched from before that, and not looked at before it can be final.
        """
        loop = asyncio.get_running_loop()
        deadline, caller = loop.time() + seconds, PRESENCE.get()
        with self.watch(job) as event:
            while True:
                event.clear()
                record = await (submitting or self._store.get(job, self._ahead))
                submitting = None
                left = deadline - loop.time()
                if record is None or record.status.is_final or left <= 0 or self._closing or caller.has_left:
                    return record
                async with caller.telling(event):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(event.wait(), min(left, LOOK_AGAIN_S))

    @contextmanager
    def watch(self, job: str) -> Iterator[asyncio.Event]:
        """An event that is set when the job may have become final, and when waiters are let go."""
        event = asyncio.Event()
        self._waiting.setdefault(job, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[job].discard(event)
            if not self._waiting[job]:
                del self._waiting[job]

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def _listen(self) -> None:
        outage = Outage(log, "completions")
        while True:
            try:
                async for job in subscribe(self._redis_url, FINISHED):
                    if not job:
                        outage.served()
                        self._wake_all()
                    for event in self._waiting.get(job, ()):
                        event.set()
            except Unavailable as error:
                outage.lost(error.detail)
            except Exception:
                # Without this task every waiter only looks now and then: log, and listen again.
                log.exception("completions_failed")
            self._wake_all()
            await asyncio.sleep(RESUBSCRIBE_S)
