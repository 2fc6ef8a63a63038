"""Idempotency: a request that is sent again finds what the first one made.

A ``Once`` is a key in the store that only one job or batch may hold. A repeated request finds this holder; a different
request under the same key is refused. The step that makes the job or batch also takes the key. So of several identical
requests at the same time, one makes the job or batch and the others find it.
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from corelane.errors import IdempotencyKeyReused, InvalidInput, NameTaken
from corelane.store import keys
from corelane.store.link.link import CommonLink

#: An `Idempotency-Key` is kept this long after its first request, in seconds: a day, as in other services.
KEY_TTL_S = 24 * 3600


class Digest(Protocol):
    """A fingerprint of a body that comes in parts."""

    def update(self, data: bytes, /) -> None:
        """Add a part of the body."""

    def hexdigest(self) -> str:
        """Return the fingerprint of the parts so far."""


@dataclass(frozen=True, slots=True)
class Once:
    """A key that only one job or batch may hold, and the fingerprint of the request that wants the key.

    The key is held for ``ttl_s``, even if its holder is deleted earlier. If ``ttl_s`` is 0, the key is held for as long
    as the store keeps its holder.
    """

    key: str
    fingerprint: str
    conflict: type[InvalidInput] = InvalidInput
    sentence: str = ""
    ttl_s: int = 0

    def require_same(self, holder: "Holder") -> None:
        """Raise ``conflict`` if a different request made the holder."""
        if holder.fingerprint != self.fingerprint:
            raise self.conflict(self.sentence)


@dataclass(frozen=True, slots=True)
class Holder:
    """The job or batch that holds a key, and the fingerprint of the request that made it."""

    subject: str
    fingerprint: str

    @classmethod
    def decode(cls, text: bytes) -> "Holder":
        """Read a holder back from the store."""
        subject, _, fingerprint = text.decode().partition(" ")
        return cls(subject, fingerprint)

    def encode(self) -> str:
        """Return the stored text."""
        return f"{self.subject} {self.fingerprint}"


class Held(Exception):
    """Another request took the key first. The holder, which that request made, is also the result of this request."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(holder)
        self.holder = holder


def start_fingerprint(kind: str) -> Digest:
    """Start the fingerprint of a body that comes in parts; ``kind`` separates equal bodies of different calls."""
    return hashlib.sha256(f"{kind}\n".encode())


def fingerprint(kind: str, body: bytes) -> str:
    """Return the fingerprint of a request: SHA-256 of its kind and body, in hexadecimal."""
    digest = start_fingerprint(kind)
    digest.update(body)
    return digest.hexdigest()


def by_key(owner: str, idempotency_key: str, request: str) -> Once:
    """Return the ``Once`` for an owner's ``Idempotency-Key``; ``request`` is the fingerprint of the request."""
    digest = hashlib.sha256(idempotency_key.encode()).hexdigest()
    sentence = "this Idempotency-Key came with another body before: send that body again, or use a new key"
    return Once(keys.once(owner, digest), request, IdempotencyKeyReused, sentence, KEY_TTL_S)


def by_name(owner: str, name: str, request: str) -> Once:
    """Return the ``Once`` for the name that an owner gave a job."""
    sentence = f"there is a job {name!r} already, made of another body: use another name, or delete that job first"
    return Once(keys.name(owner, name), request, NameTaken, sentence)


def by_retry(job: str) -> Once:
    """Return the ``Once`` for the only retry of a job."""
    return Once(keys.retry(job), "retry")


async def find_holder(link: CommonLink, key: str) -> Holder | None:
    """Return the holder of a key, or None."""
    text = await link("GET", key)
    return None if text is None else Holder.decode(text)
