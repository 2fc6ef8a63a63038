"""Doing a thing once: what a request is known by, and who holds it.

A ``Once`` is a key of the store that one subject (a job, a batch) may hold. Whoever asks for the same thing again finds
the holder; whoever asks for another thing under the same key is refused. It is taken in the step that makes the
subject, so of any number of requests at the same time one makes it and the others find it.
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from corelane.errors import IdempotencyKeyReused, InvalidInput, NameTaken
from corelane.store import keys
from corelane.store.link.surface import CommonLink


class Digest(Protocol):
    """A fingerprint in the making."""

    def update(self, data: bytes, /) -> None:
        """Take in more of the body."""

    def hexdigest(self) -> str:
        """The fingerprint of what was taken in."""


@dataclass(frozen=True, slots=True)
class Once:
    """A key that one subject may hold, and what the asker wants of it.

    It is held for ``ttl_s``, even if its subject is gone by then; with 0 for as long as its subject is kept.
    """

    key: str
    fingerprint: str
    conflict: type[InvalidInput] = InvalidInput
    sentence: str = ""
    ttl_s: int = 0

    def require_same(self, holder: "Holder") -> None:
        """Raise the conflict if the holder came of another request."""
        if holder.fingerprint != self.fingerprint:
            raise self.conflict(self.sentence)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a key: the id of a job or batch, and the fingerprint of the request that made it."""

    subject: str
    fingerprint: str

    @classmethod
    def decode(cls, text: bytes) -> "Holder":
        """Read a holder back from the store."""
        subject, _, fingerprint = text.decode().partition(" ")
        return cls(subject, fingerprint)

    def encode(self) -> str:
        """The text that stands in the store."""
        return f"{self.subject} {self.fingerprint}"


class Held(Exception):
    """Somebody else was first; carries the holder. No failure: the thing is done already."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(holder)
        self.holder = holder


def start_fingerprint(kind: str) -> Digest:
    """The fingerprint of a request whose body comes in parts; ``kind`` tells apart what equal bodies ask for."""
    return hashlib.sha256(f"{kind}\n".encode())


def fingerprint(kind: str, body: bytes) -> str:
    """The fingerprint of a request: SHA-256 of its kind and body, in hexadecimal."""
    digest = start_fingerprint(kind)
    digest.update(body)
    return digest.hexdigest()


def by_key(owner: str, idempotency_key: str, request: str, ttl_s: int) -> Once:
    """What an owner's ``Idempotency-Key`` stands for; ``request`` is the fingerprint of what it came with."""
    digest = hashlib.sha256(idempotency_key.encode()).hexdigest()
    sentence = "this Idempotency-Key came with another body before: send that body again, or use a new key"
    return Once(keys.once(owner, digest), request, IdempotencyKeyReused, sentence, ttl_s)


def by_name(owner: str, name: str, request: str) -> Once:
    """What an owner's own name of a job stands for."""
    sentence = f"there is a job {name!r} already, made of another body: use another name, or delete that job first"
    return Once(keys.name(owner, name), request, NameTaken, sentence)


def by_retry(job: str) -> Once:
    """The one retry of a job."""
    return Once(keys.retry(job), "retry")


async def find_holder(link: CommonLink, key: str) -> Holder | None:
    """Who holds a key, if anybody does."""
    text = await link("GET", key)
    return None if text is None else Holder.decode(text)
