"""Jobs that took longer than the callers of a dialect wait, who were told to send their request again.

Such a job goes on. The same request finds it if it comes to this process, as SDKs do over the connection they keep. If
the request does not come again in time, nobody waits for the job and it is canceled.
"""

import asyncio
from contextlib import suppress

from corelane.errors import Unavailable
from corelane.store.jobs.idempotency import fingerprint
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore

#: A late job waits this long for its request, in seconds: SDKs come back after the second of `Retry-After`.
AGAIN_S = 30.0

#: What equal requests have in common: the owner, the path with the model in its query, and the body.
Asked = tuple[str, str, bytes]


def name_of(asked: Asked) -> str:
    """Return a short name of a request."""
    owner, at, sent = asked
    return fingerprint(f"{owner} {at}", sent)


class LateJobs:
    """The late jobs of one API process, by their requests. Belongs to one event loop."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._jobs: dict[str, tuple[str, asyncio.Task[None]]] = {}

    async def keep(self, asked: Asked, job: str) -> None:
        """Keep a late job for the next equal request; cancel it if that of an equal request is kept already."""
        if (name := name_of(asked)) in self._jobs:
            await self._store.cancel(job)
        else:
            self._jobs[name] = job, asyncio.create_task(self._cancel_later(name, job), name="late-job")

    async def find(self, asked: Asked) -> JobRecord | None:
        """Return the late job of an equal request, once; None if there is none."""
        # No name is made while no job is late: it takes 1 ms for 2 MB.
        if not self._jobs or (name := name_of(asked)) not in self._jobs:
            return None
        job, canceling = self._jobs.pop(name)
        canceling.cancel()
        return await self._store.get(job)

    async def _cancel_later(self, name: str, job: str) -> None:
        await asyncio.sleep(AGAIN_S)
        del self._jobs[name]
        with suppress(Unavailable):
            await self._store.cancel(job)
