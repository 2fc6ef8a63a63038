"""Stored contexts: passages that an owner keeps, named by what they say. Pure.

The id of a stored context is ``ctx_`` and the SHA-256 of its text in UTF-8, in hexadecimal. So the same text is kept
once however often it is sent, and anybody who has a text can tell its id without asking.
"""

import hashlib
import re
from dataclasses import dataclass

#: What an id begins with.
PREFIX = "ctx_"

#: The form of an id.
ID = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")


def digest_of(text: str) -> str:
    """Return the digest of a context's text: the same for a context sent with a job and for a stored one."""
    return hashlib.sha256(text.encode()).hexdigest()


def context_id(text: str) -> str:
    """Return the id that a text has as a stored context."""
    return PREFIX + digest_of(text)


def is_context_id(text: str) -> bool:
    """Return whether a text has the form of a stored context's id."""
    return ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored context as an item's row names it, in place of its text; ``orjson`` writes it as an object."""

    digest: str
