"""Secrets of owners that sign their webhooks: made, replaced by others with an overlap, removed.

Where there are several cells, every cell has every secret, as it has every key: an owner's events come from each cell
where the owner has jobs.
"""

from collections.abc import Iterable, Mapping, Sequence

import orjson

from corelane.domain.ids import new_id
from corelane.domain.webhook_secrets import MOST_SECRETS, NewWebhookSecret, OwnedSecret, new_secret
from corelane.errors import CorelaneError, NotFound, SecretInUse
from corelane.store import keys
from corelane.store.deliveries.sending import read_secrets
from corelane.store.link.blocking import Link
from corelane.store.link.link import CommonLink, pairs

#: Why a secret is not made, by the library's replies.
REFUSALS: Mapping[str, tuple[type[CorelaneError], str]] = {
    "taken": (SecretInUse, "there is a webhook secret already: rotate it, so that receivers can change, or remove it"),
    "none": (NotFound, "there is no webhook secret to be rotated: create one"),
    "full": (SecretInUse, f"{MOST_SECRETS} secrets sign already: remove one that ends, or wait until one has ended"),
}


class WebhookSecrets:
    """The secrets of an owner. The first link leads to where they are changed, the others to where copies are kept."""

    def __init__(self, links: Sequence[CommonLink], owner: str) -> None:
        self._links, self.owner = links, owner

    async def read(self) -> list[OwnedSecret]:
        """Return what signs the owner's webhooks now, the newest first."""
        return await read_secrets(self._links[0], self.owner)

    async def add(self, overlap_s: int, *, is_rotation: bool) -> NewWebhookSecret:
        """Make a secret; what signed before ends after ``overlap_s``. Its value is returned this once.

        Raise SecretInUse if the owner has one and this is no rotation, or if too many sign; NotFound for a rotation
        where there is none; StoreUnavailable, with nothing changed, if a cell is away.
        """
        await self._require_all()
        made, value, most = new_id("whs"), new_secret(), MOST_SECRETS
        ask = {"owner": self.owner, "id": made, "overlap_ms": 1000 * overlap_s, "most": most}
        reply = (await self._links[0].run("add_secret", value, is_rotation=is_rotation, **ask)).decode()
        if reply in REFUSALS:
            error, why = REFUSALS[reply]
            raise error(why)
        await self._copy()
        newest = next(each for each in await self.read() if each.id == made)
        return NewWebhookSecret(**newest.describe().model_dump(), secret=value)

    async def remove(self, secret: str) -> None:
        """End a secret at once. Raise NotFound, or SecretInUse for the newest while older ones sign."""
        await self._require_all()
        reply = (await self._links[0].run("remove_secret", owner=self.owner, id=secret)).decode()
        if reply == "newest":
            raise SecretInUse(
                f"{secret} is the newest, and the others end: rotate with an overlap of 0 to end them all, or remove "
                "the others first"
            )
        if reply == "none":
            raise NotFound(f"no webhook secret {secret[:64]!r} signs now; it never did, was removed, or has ended")
        await self._copy()

    async def _require_all(self) -> None:
        """Raise StoreUnavailable if a cell is away."""
        for link in self._links:
            await link("PING")

    async def _copy(self) -> None:
        """Have every cell sign as the first does."""
        first, *others = self._links
        text = await first("HGET", keys.SECRETS, self.owner)
        for link in others:
            await (
                link("HDEL", keys.SECRETS, self.owner) if text is None else link("HSET", keys.SECRETS, self.owner, text)
            )


def sync_secrets(links: Iterable[Link]) -> int:
    """Have every cell sign as the one with the owner's newest secret does; return how many entries were written."""
    kept = [(link, dict(pairs(link("HGETALL", keys.SECRETS)))) for link in links]
    merged: dict[bytes, bytes] = {}
    for _, found in kept:
        for owner, text in found.items():
            merged[owner] = max(merged.get(owner, text), text, key=_newest_ms)
    changes = [(link, owner, text) for link, has in kept for owner, text in merged.items() if has.get(owner) != text]
    for link, owner, text in changes:
        link("HSET", keys.SECRETS, owner, text)
    return len(changes)


def _newest_ms(text: bytes) -> int:
    return int(orjson.loads(text)[0]["created_ms"])
