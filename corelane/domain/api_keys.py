"""API keys: what a key is, what it allows, and the one form in which it is kept.

A key is 256 random bits; the store has only its SHA-256. Nobody can guess such a key, so a plain digest is enough: a
slow one protects passwords, which people choose. A key is found by its digest, so no two secrets are ever compared.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

#: What every key begins with, so that people and scanners of leaked secrets know one when they see it.
KEY_PREFIX = "clk_"

#: Random bytes of a key: 256 bits, 43 characters.
KEY_BYTES = 32

KEY_FORM = re.compile(r"clk_[A-Za-z0-9_-]{43}")

#: Owners stand in Redis keys and in refs, whose parts are told apart by `:` and `,`.
OWNER_FORM = re.compile(r"[A-Za-z0-9._-]{1,64}")

#: Characters of a digest that stand for an owner where keys are not checked: 64 bits.
OWNER_CHARS = 16


class Scope(StrEnum):
    """What a caller may do; none of them holds another."""

    SUBMIT = "submit"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the owner that jobs, shares and bounds are kept by, and what they may do."""

    owner: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key. Jobs belong to its ``owner``, so that keys can be changed and jobs stay in sight."""

    id: str
    name: str
    owner: str
    scopes: frozenset[Scope]
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    #: The day it was last used, as 2026-11-20; empty before that.
    used: str = ""

    def state(self, now_ms: float) -> str:
        """``active``, ``revoked`` or ``expired``."""
        if self.revoked_ms is not None:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else "active"


def new_key() -> str:
    """A fresh key; shown once, kept nowhere."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def key_digest(key: str) -> str:
    """What a key is kept under."""
    return hashlib.sha256(key.encode()).hexdigest()


def unchecked_owner(key: str) -> str:
    """The owner that a key stands for where keys are not checked."""
    return key_digest(key)[:OWNER_CHARS]


def scope_names(scopes: Iterable[Scope]) -> list[str]:
    """Scopes in the order in which they are declared."""
    wanted = set(scopes)
    return [scope.value for scope in Scope if scope in wanted]
