"""Jobs that took longer than the callers of a dialect wait, who were told to send their request again.

Such a job goes on. The same request finds it if it comes to this process, as SDKs do over the connection they keep. If
the request does not come again in time, nobody waits for the job and it is canceled.
"""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from corelane.errors import Unavailable
from corelane.store.jobs.idempotency import fingerprint
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore

#: A late job waits this long for its request, in seconds: SDKs come back after the second of `Retry-After`.
AGAIN_S = 30.0


class Asked(NamedTuple):
    """What equal requests have in common: the owner, the path with the model in its query, and the body."""

    owner: str
    at: str
    sent: bytes

    @property
    def digest(self) -> str:
        """Return a name that is as good as all of it, and short."""
        return fingerprint(f"{self.owner} {self.at}", self.sent)


class LateJobs:
    """The late jobs of one API process, by their requests. Belongs to one event loop."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._jobs: dict[str, dict[str, asyncio.Task[None]]] = {}

    def keep(self, asked: Asked, job: str) -> None:
        """Keep a late job for the next request that is equal."""
        at = asked.digest
        self._jobs.setdefault(at, {})[job] = asyncio.create_task(self._cancel_later(at, job), name="late-job")

    async def find(self, asked: Asked) -> JobRecord | None:
        """Return the late job of an equal request, which is given to one request; None if there is none."""
        # The digest is made only while jobs are late: it takes 1 ms for 2 MB.
        if not self._jobs or not (jobs := self._jobs.get(at := asked.digest)):
            return None
        job = next(iter(jobs))
        self._take(at, job).cancel()
        return await self._store.get(job)

    async def close(self) -> None:
        """Cancel the jobs, whose requests will come to other processes."""
        jobs = [(at, job) for at, jobs in self._jobs.items() for job in jobs]
        for at, job in jobs:
            self._take(at, job).cancel()
        with suppress(Unavailable):
            await self._store.cancel_all([job for _, job in jobs])

    def _take(self, at: str, job: str) -> asyncio.Task[None]:
        canceling = self._jobs[at].pop(job)
        if not self._jobs[at]:
            del self._jobs[at]
        return canceling

    async def _cancel_later(self, at: str, job: str) -> None:
        await asyncio.sleep(AGAIN_S)
        self._take(at, job)
        with suppress(Unavailable):
            await self._store.cancel(job)
