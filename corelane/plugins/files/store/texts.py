"""Store and remove texts: each text of an owner is stored once.

If the owner deletes a text, it is hidden at once. It is removed with the last job that needs it.
"""

from corelane.domain.dispatch import SCRIPT_CHARS, measure
from corelane.domain.texts import PREFIX, TextInfo, digest_in, digest_of, full
from corelane.errors import TextsFull, UnknownText
from corelane.metrics import definitions as m
from corelane.metrics.exposition import MetricSample
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.link.link import CommonLink, flatten
from corelane.store.link.replicas import ReplicaGate
from corelane.store.texts import TextStore

#: When an owner who has reached a limit may try again, in seconds: a text may have expired by then.
FULL_S = 60


async def gauges(link: CommonLink) -> list[MetricSample]:
    """Return how many texts are stored, and their bytes."""
    count, sizes = await link.many([("ZCARD", keys.TEXTS_DUE), ("HVALS", keys.TEXT_BYTES)])
    return [MetricSample(m.STORED_TEXTS, count), MetricSample(m.STORED_TEXT_BYTES, sum(map(int, sizes)))]


class TextKeeper(TextStore):
    """The stored texts, with the methods to store and remove them."""

    def __init__(self, link: CommonLink, settings: Settings, gate: ReplicaGate | None = None) -> None:
        super().__init__(link)
        self._settings = settings.of(FilesFields)
        self._gate = gate

    async def keep(self, owner: str, text: str, name: str | None, ttl_s: int) -> tuple[TextInfo, bool]:
        """Store a text, or keep it for longer; return its facts, and whether it is new. Raise TextsFull at a limit."""
        digest, (most, most_bytes) = digest_of(text), self._settings.text_limits
        fields = {"chars": len(text), "tokens": round(measure(text), 2), "head": text[:SCRIPT_CHARS]}
        reply = await self._link.run(
            "keep_text",
            text.encode(),
            owner=owner,
            digest=digest,
            ttl_ms=ttl_s * 1000,
            most=most,
            most_bytes=most_bytes,
            name=name,
            fields=flatten(fields),
        )
        if reply < 0:
            raise TextsFull(full(most if reply == -1 else most_bytes, is_bytes=reply != -1), FULL_S)
        if self._gate is not None:
            await self._gate.confirm(keys.stored_text(owner, digest), "created_ms")
        found = await self.get(owner, PREFIX + digest)
        if found is None:
            raise UnknownText(f"{PREFIX}{digest} was deleted while it was being stored: send it again")
        return found, reply == 1

    async def remove(self, owner: str, name: str) -> bool:
        """Hide a text from new jobs; return whether it existed. Jobs that name it are still answered."""
        return bool(await self._link.run("remove_text", owner=owner, digest=digest_in(name)))
