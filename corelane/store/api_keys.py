"""API keys: stored by their digests, looked up by the API, changed by the operator's command.

Every change increments a counter. API processes read it to notice that their cached keys may be out of date.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from corelane.domain.api_keys import Key, Scope, key_digest, new_key, scope_names
from corelane.domain.ids import CELL, new_id
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.link import CommonLink, call, pairs

#: The end that is noted for a key without one, in milliseconds since 1970: later than any clock.
NEVER_MS = 9 * 10**15


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The key for a digest, if there is one, and the count of changes. The count may be from just before the lookup."""

    key: Key | None
    changed: bytes | None


class ApiKeyFinder:
    """The API's side: looks keys up, and notes that they are used."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def find(self, digest: str) -> KeyLookup:
        """Look up the key of a digest, usable or not, in one trip."""
        # The counter is read first: a change between the two reads is noticed later, never missed.
        changed, raw = await self._link.many([("GET", keys.API_KEYS_CHANGED), ("HGETALL", keys.api_key(digest))])
        return KeyLookup(parse(dict(pairs(raw))), changed)

    async def changed(self, used: Iterable[str], day: str) -> bytes | None:
        """Return the count of changes. In the same trip, note that these digests were used on ``day``."""
        notes = [("HSET", keys.api_key(digest), "used", day) for digest in used]
        writes = [call("write", commands=notes)] if notes else []
        return (await self._link.many([("GET", keys.API_KEYS_CHANGED), *writes]))[0]  # type: ignore[no-any-return]

    async def any_active(self) -> bool:
        """Return whether any key can be used."""
        return any(key.state(time.time() * 1000) == "active" for key in await read_keys(self._link))


class ApiKeyStore:
    """The operator's side: make, list and revoke keys."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def create(
        self,
        name: str,
        scopes: Iterable[Scope],
        owner: str | None = None,
        expires_ms: int | None = None,
        cell: str = CELL,
        share: float = 1.0,
    ) -> tuple[Key, str]:
        """Make a key; return it and its secret, which is not stored. Without ``owner`` its jobs belong to its own id.

        The key contains the name of its service as noted in Redis, or ``cell`` if none is noted yet.
        """
        noted = self._link("GET", keys.CELL)
        cell = cell if noted is None else noted.decode()
        secret, key_id = new_key(cell), new_id("key", cell=cell)
        key = Key(key_id, name, owner or key_id, frozenset(scopes), int(time.time() * 1000), expires_ms, share=share)
        fields: dict[str, Any] = {
            "id": key.id,
            "name": key.name,
            "owner": key.owner,
            "scopes": ",".join(scope_names(key.scopes)),
            "created_ms": key.created_ms,
            "share": share,
        } | ({} if expires_ms is None else {"expires_ms": expires_ms})
        ask = {"id": key.id, "digest": key_digest(secret), "owner": key.owner, "share": share}
        self._link.run("make_key", fields=fields, until_ms=expires_ms or NEVER_MS, **ask)
        return key, secret

    def list(self) -> list[Key]:
        """Return every key there ever was, oldest first."""
        return sorted(self._link.read(read_keys), key=lambda key: key.id)

    def id_of(self, digest: str) -> str | None:
        """Return the id of the key with this digest."""
        found = self._link("HGET", keys.api_key(digest), "id")
        return None if found is None else found.decode()

    def revoke(self, key_id: str) -> Key | None:
        """Revoke a key for good, and return it; return None if there is none of this id."""
        return parse(dict(pairs(self._link.run("revoke_key", id=key_id))))


async def read_keys(link: CommonLink) -> list[Key]:
    """Read every key there ever was, in no order."""
    digests = await link("HVALS", keys.API_KEYS)
    raws = await link.many([("HGETALL", keys.api_key(digest.decode())) for digest in digests])
    return [key for raw in raws if (key := parse(dict(pairs(raw)))) is not None]


def parse(raw: dict[bytes, bytes]) -> Key | None:
    """Read a key's hash; return None if the hash is missing, or says only when the key was used."""
    if b"id" not in raw:
        return None
    values = {name.decode(): value.decode() for name, value in raw.items()}
    expires, revoked = values.get("expires_ms"), values.get("revoked_ms")
    return Key(
        values["id"],
        values["name"],
        values["owner"],
        frozenset(Scope(name) for name in values["scopes"].split(",")),
        int(values["created_ms"]),
        None if expires is None else int(expires),
        None if revoked is None else int(revoked),
        values.get("used", ""),
        float(values.get("share", 1)),
    )
