"""Waiting in tests: one way, which says what it waited for and what it saw last where it gives up.

A condition may assert, and may ask a Redis that is down: both count as not yet.
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis

#: What a test waits for comes well within this on a busy machine, in seconds.
WITHIN_S = 60

#: Time between two looks, in seconds.
PAUSE_S = 0.02

Found = TypeVar("Found")


#: What is waited for, in words, or a function that says at the end what is known then.
Why = str | Callable[[], str]


def eventually(condition: Callable[[], Found], within: float = WITHIN_S, why: Why = "") -> Found:
    """Return what the condition returns once that is true; raise TimeoutError with what it returned last."""
    deadline = time.monotonic() + within
    while True:
        try:
            if found := condition():
                return found
            seen = repr(found)
        except (AssertionError, redis.RedisError) as error:
            seen = repr(error)
        if time.monotonic() > deadline:
            raise TimeoutError(_complaint(condition, within, why, seen))
        time.sleep(PAUSE_S)


async def eventually_async(condition: Callable[[], Any], within: float = WITHIN_S, why: Why = "") -> Any:
    """As ``eventually``, while the loop goes on; the condition may be a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        try:
            found = condition()
            if found := (await found if inspect.isawaitable(found) else found):
                return found
            seen = repr(found)
        except (AssertionError, redis.RedisError) as error:
            seen = repr(error)
        if time.monotonic() > deadline:
            raise TimeoutError(_complaint(condition, within, why, seen))
        await asyncio.sleep(PAUSE_S)


def _complaint(condition: Callable[[], object], within: float, why: Why, seen: str) -> str:
    if callable(why):
        return f"not within {within:g} s; last seen: {seen}\n{why()}"
    try:
        text = " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        text = repr(condition)
    return f"not within {within:g} s: {why or text}; last seen: {seen}"
