"""Rules of the access control list (ACL) of Redis: what each part of the service may do. Pure.

A rule lists commands, keys and channels; all others are refused. The commands that Python code and its libraries send
are listed here, and a test compares the list with the code. Redis checks each command of a Lua function by the rights
of the user who called the function.
"""

import hashlib
import re
from collections.abc import Iterable

from corelane.domain.dispatch import DELIVERY_QUEUE, KEEPER_QUEUE, QUEUE_PREFIX
from corelane.store import keys
from corelane.store.link.library import read_code

#: Commands that the store's Python code sends. The library's functions send more, and Redis checks those as well.
SENT = (
    *("blpop", "del", "exists", "expire", "fcall", "get", "hdel", "hexists", "hget", "hgetall", "hincrby"),
    *("hkeys", "hmget", "hset", "hvals", "info", "lrange", "ping"),
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

#: Channels of Celery, of database 0. Redis accepts a pattern subscription only if the rule has the same pattern.
CHANNELS = ("/0.celery.pidbox", "/0.celeryev/*")


#: What an operator may do.
EVERYTHING = "~* &* +@all"


def service_rules() -> str:
    """Return what every part of the service may do together, and no more, as Redis reads it from left to right."""
    commands = {*SENT, *library_commands(), *CARRYING, *LOADING, *LIMITING}
    return f"{_rules((f'{keys.PREFIX}*', *QUEUES, *CONTROL), commands)} {LIMITING_ALONE}"


def worker_rules() -> str:
    """Return what a host that runs models may do: no keys of callers, and no loading of functions."""
    return _rules((*keys_of_workers(), *QUEUES, *CONTROL), {*SENT, *library_commands(), *CARRYING})


def _rules(patterns: Iterable[str], commands: Iterable[str]) -> str:
    channels = (keys.done("*"), keys.CONFIRMED, *CHANNELS)
    words = [*(f"~{key}" for key in patterns), *(f"&{channel}" for channel in channels)]
    return " ".join([*words, *CONNECTING, *(f"+{command}" for command in sorted(set(commands)))])


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


def user_line(name: str, password: str, rules: str) -> str:
    """Return the line of an ACL file that defines a user. It contains only the digest of the password."""
    return f"user {name} reset on #{hashlib.sha256(password.encode()).hexdigest()} {rules}"
