"""Rules of the access control list (ACL) of Redis: what each part of the service may do. Pure.

A rule lists commands, keys and channels; all others are refused. The commands that Python code and its libraries send
are listed here, and a test compares the list with the code. Redis checks each command of a Lua function by the rights
of the user who called the function.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from corelane.domain.dispatch import DELIVERY_QUEUE, KEEPER_QUEUE, QUEUE_PREFIX
from corelane.store import keys
from corelane.store.link.library import read_code

#: Commands that the store's Python code sends. The library's functions send more, and Redis checks those as well.
SENT = (
    *("blpop", "del", "exec", "exists", "expire", "fcall", "get", "hdel", "hexists", "hget", "hgetall", "hincrby"),
    *("hkeys", "hmget", "hset", "hsetnx", "hvals", "incr", "info", "lrange", "multi", "pexpire", "pexpireat", "ping"),
    *("publish", "role", "set", "setbit", "smembers", "subscribe", "time", "unlink", "wait", "xadd", "xrange"),
    *(
        "unsubscribe",
        "zadd",
        "zcard",
        "zcount",
        "zrange",
        "zrangebylex",
        "zrangebyscore",
        "zrem",
        "zremrangebyscore",
    ),
    *("xrevrange", "zrevrangebylex", "zscore"),
)

#: Commands that load this release's functions, and remove those of earlier releases. A function may do what
#: its caller may do, so a user who can replace functions can borrow the rights of every user who calls them.
LOADING = ("function|load", "function|list", "function|delete")

#: Commands that every client sends as it connects. The category grows with each release of Redis (7.0 does not know
#: `client|setinfo`), so it is allowed whole, except for commands that look into other connections.
CONNECTING = ("+@connection", "-@admin", "-@dangerous", "-client|tracking")

#: Commands that kombu 5.7 sends to carry messages, and Celery 5.7 for remote control and events. Scripts serve the
#: queues of replies, which expire.
CARRYING = (
    *("brpop", "del", "evalsha", "exec", "exists", "llen", "lpush", "multi", "pexpire", "psubscribe", "publish"),
    *("punsubscribe", "rpop", "rpush", "sadd", "script|exists", "script|load", "smembers", "srem", "subscribe"),
    *("time", "unsubscribe", "zadd", "zrangebyscore", "zrem"),
)

#: Commands that the library ``limits`` 5.8 sends where requests are limited. Its user may rename only its own keys.
LIMITING = ("evalsha", "expire", "get", "incrby", "mget", "pttl", "script|load", "set")
LIMITING_ALONE = f"(~{keys.rates} +rename)" % "*"

#: Celery's queues of cores, keeper and webhook sender; the queues of remote control and of Flower; and the keys that
#: bind queues. A queue of messages with a priority has a suffix.
QUEUES = (f"{QUEUE_PREFIX}*", f"{KEEPER_QUEUE}*", f"{DELIVERY_QUEUE}*")
CONTROL = ("*.celery.pidbox*", "celeryev.*", "_kombu.*")

#: Channels of Celery, for one database. Redis accepts a pattern subscription only if the rule has the same pattern.
CHANNELS = ("/%d.celery.pidbox", "/%d.celeryev/*")

#: A name that needs no quotes in an ACL file or a URL.
USER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Role(StrEnum):
    """The task of a user of Redis."""

    SERVICE = "service"
    WORKER = "worker"
    FLOWER = "flower"
    METRICS = "metrics"
    REPLICA = "replica"
    SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True)
class Rights:
    """The commands that a user may send, and the keys and channels that it may name."""

    commands: tuple[str, ...]
    keys: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    #: Further rights, each with its own commands and keys, in brackets as Redis writes them.
    apart: tuple[str, ...] = ()
    #: Whether this user connects as redis-py's clients do: it then needs the commands of ``CONNECTING``.
    is_client: bool = True

    def rules(self) -> str:
        """Return the rules as Redis reads them, from left to right."""
        words = [key if key.startswith("%") else f"~{key}" for key in self.keys]
        words += [f"&{channel}" for channel in self.channels]
        connecting = CONNECTING if self.is_client else ()
        return " ".join([*words, *connecting, *(f"+{command}" for command in self.commands), *self.apart])


#: What an operator may do.
EVERYTHING = Rights(("@all",), ("*",), ("*",), is_client=False)


def rights_of(role: Role, database: int = 0) -> Rights:
    """Return the rights that a role needs, and no others; ``database`` is the number in the service's URL."""
    return _make_rights(tuple(channel % database for channel in CHANNELS))[role]


def _make_rights(celery: tuple[str, ...]) -> Mapping[Role, Rights]:
    working = {*SENT, *library_commands(), *CARRYING}
    channels, own = (keys.done("*"), keys.CONFIRMED, *celery), f"{keys.PREFIX}*"
    return {
        Role.SERVICE: Rights(
            _sorted({*working, *LOADING, *LIMITING}), (own, *QUEUES, *CONTROL), channels, (LIMITING_ALONE,)
        ),
        Role.WORKER: Rights(_sorted(working), (*keys_of_workers(), *QUEUES, *CONTROL), channels),
        # It reads the queues, and sends no bells.
        Role.FLOWER: Rights(_sorted(CARRYING), (*(f"%R~{queue}" for queue in QUEUES), *CONTROL), celery),
        Role.METRICS: Rights(("client|list", "info", "latency|histogram", "ping", "slowlog|get", "slowlog|len")),
        Role.REPLICA: Rights(("ping", "psync", "replconf"), is_client=False),
        Role.SENTINEL: Rights(
            (
                *("client|kill", "client|setname", "config|rewrite", "exec", "info", "multi", "ping", "publish"),
                *("role", "script|kill", "slaveof", "subscribe"),
            ),
            channels=("__sentinel__:hello",),
            is_client=False,
        ),
    }


def library_commands() -> set[str]:
    """Return the commands that the functions of the library send, read from its text."""
    first_arguments = re.findall(r"\bcall\(([^,()]*)", read_code())
    return {name.lower() for first in first_arguments for name in re.findall(r"'([A-Z]+)'", first)}


def keys_of_workers() -> tuple[str, ...]:
    """Return patterns that match all of the store's keys except the secret ones.

    Redis tries the patterns one by one, so there are few: one for all keys whose first letter no secret key has, and
    one for each other key.
    """
    names = {str(key) for key in keys.all_keys().values() if key.secret}
    letters = "".join(sorted({name.removeprefix(keys.PREFIX)[0] for name in names}))
    rest = {str(key) for key in keys.all_keys().values() if key.removeprefix(keys.PREFIX)[0] in letters} - names
    return (f"{keys.PREFIX}[^{letters}]*", *sorted(key.replace("%s", "*") for key in rest))


def user_line(name: str, password: str, rights: Rights) -> str:
    """Return the line of an ACL file that defines a user. It contains only the digest of the password."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    return f"user {name} reset on #{digest} {rights.rules()}"


def _sorted(commands: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(commands)))
