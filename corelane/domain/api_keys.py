"""API keys: their form, their scopes, and the digest under which they are stored.

A key of service `0` is ``clk_`` and 43 characters. A key of service `1` begins with ``clk_1_``, which tells a gateway
in front of several services where to send a request.

A key is 256 random bits, so a fast digest is enough: only its SHA-256 is stored, and used to find it.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from corelane.domain.ids import ALPHABET, CELL

#: Prefix of every key, by which people and scanners of leaked secrets recognise one.
KEY_PREFIX = "clk_"

#: Random bytes of a key: 256 bits, 43 characters.
KEY_BYTES = 32

KEY_FORM = re.compile(rf"clk_([{ALPHABET}]_)?[A-Za-z0-9_-]{{43}}")

#: Owners are parts of Redis keys and refs, which are separated by `:` and `,`.
OWNER_FORM = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Scope(StrEnum):
    """The permissions of a caller; no scope includes another."""

    SUBMIT = "submit"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the owner of its jobs, to whom shares and limits apply; and its scopes."""

    owner: str
    scopes: frozenset[Scope]
    #: The name of the key; empty where keys are not checked.
    name: str = ""


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key. Jobs belong to its ``owner``, so they stay visible when keys are replaced."""

    id: str
    name: str
    owner: str
    scopes: frozenset[Scope]
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    #: The day on which the key was last used, as 2026-11-20; empty if it never was.
    used: str = ""
    #: Its owner's weight in the fair shares, while this is the owner's newest key that can be used.
    share: float = 1.0

    def state(self, now_ms: float) -> str:
        """Return ``active``, ``revoked`` or ``expired``."""
        if self.revoked_ms is not None:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else "active"


def new_key(cell: str = CELL) -> str:
    """Make a new key of a service; it is shown once and not stored."""
    return KEY_PREFIX + ("" if cell == CELL else f"{cell}_") + secrets.token_urlsafe(KEY_BYTES)


def key_digest(key: str) -> str:
    """Return the digest under which a key is stored."""
    return hashlib.sha256(key.encode()).hexdigest()


def scope_names(scopes: Iterable[Scope]) -> list[str]:
    """Return scopes in the order in which they are declared."""
    wanted = set(scopes)
    return [scope.value for scope in Scope if scope in wanted]
