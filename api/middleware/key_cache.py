"""The key cache of one API process: a key is read once and cached until any key is made or revoked."""

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress

from corelane.domain.api_keys import KEY_FORM, Key, key_digest
from corelane.errors import Unauthorized, Unavailable
from corelane.log import get_logger
from corelane.store.api_keys import ApiKeyFinder, KeyLookup

log = get_logger(__name__)

#: The counter of changes is read this often, in seconds: the longest time that a revoked key still works.
POLL_S = 2.0

#: Most keys in the cache. Unknown keys are cached apart, as many at most, so that guesses do not evict real keys.
MOST_KEYS = 10_000

DAY_S = 24 * 3600


class KeyCache:
    """Finds keys by their secrets. Belongs to one event loop."""

    def __init__(self, finder: ApiKeyFinder) -> None:
        self._finder = finder
        self._changed: bytes | None = None
        self._known: OrderedDict[str, KeyLookup] = OrderedDict()
        self._unknown: OrderedDict[str, KeyLookup] = OrderedDict()
        self._used_on: dict[str, int] = {}
        self._used: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to poll for changes."""
        self._task = asyncio.create_task(self._poll(), name="keys")

    async def close(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def find(self, secret: str) -> Key:
        """Return the active key; raise Unauthorized, saying whether the key is unknown, revoked or expired."""
        if not KEY_FORM.fullmatch(secret):
            raise Unauthorized("this is not an API key of this service: they look like clk_…")
        digest = key_digest(secret)
        found = self._known.get(digest) or self._unknown.get(digest)
        if found is None or found.changed != self._changed:
            found = await self._finder.find(digest)
            self._remember(digest, found)
        if found.key is None:
            raise Unauthorized("this service does not know this API key; ask its operator for one")
        now = time.time()
        if (state := found.key.state(now * 1000)) != "active":
            raise Unauthorized(f"this API key is {state}; ask the operator for another")
        if self._used_on.get(digest) != now // DAY_S:
            self._used_on[digest] = int(now // DAY_S)
            self._used.add(digest)
        return found.key

    async def poll(self) -> None:
        """Read the counter of changes, and record which keys were used; raise StoreUnavailable."""
        used = self._used.copy()
        self._changed = await self._finder.changed(used, time.strftime("%Y-%m-%d", time.gmtime()))
        self._used -= used  # Redis has them now; an outage would have raised above

    def _remember(self, digest: str, found: KeyLookup) -> None:
        self._changed = found.changed
        self._known.pop(digest, None)
        self._unknown.pop(digest, None)
        place = self._unknown if found.key is None else self._known
        place[digest] = found
        if len(place) > MOST_KEYS:
            oldest, _ = place.popitem(last=False)
            self._used_on.pop(oldest, None)

    async def _poll(self) -> None:
        while True:
            try:
                await self.poll()
            except Unavailable as error:
                log.debug("keys_wait_for_store", detail=error.detail)
            except Exception:
                # Without this task revoked keys would still work: log the error, and poll again.
                log.exception("keys_not_polled")
            await asyncio.sleep(POLL_S)
