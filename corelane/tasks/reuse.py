"""Reuse: the digest by which equal items are found, and which jobs may share results. Pure.

Two items are equal if they have the same owner, model version, options, text and what stands beside it, however the
text is given. ``store/lua/reuse.lua`` does the bookkeeping.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import orjson

from corelane.domain.jobs import Item, TaskOptions
from corelane.domain.texts import digest_in, digest_of
from corelane.tasks.registry import task_named

#: Jobs of at most ``MOST_ITEMS`` items share results, or of ``MOST_CACHED_ITEMS`` if a cache is on. In larger jobs the
#: bookkeeping for each item would cost more than equal items save.
MOST_ITEMS, MOST_CACHED_ITEMS = 8, 32

#: Bytes of a digest, and its characters as text.
DIGEST_BYTES, DIGEST_CHARS = 16, 22

#: Words in a request's ``Cache-Control`` that turn reuse off.
NOT_REUSED = frozenset({"no-store", "no-cache"})


def refuses_reuse(cache_control: str | None) -> bool:
    """Return whether a request's ``Cache-Control`` asks that no result is reused."""
    if not cache_control:
        return False
    return not NOT_REUSED.isdisjoint(word.strip().lower() for word in cache_control.split(","))


def item_digests(
    owner: str, version: str, options: TaskOptions, items: Sequence[Item], texts: Mapping[str, str]
) -> list[str]:
    """Return the digest of each item of a job; ``texts`` are those that its items share, by id.

    A text that is not among them is a stored one, whose id contains its digest.
    """
    same = b"\n".join((owner.encode(), version.encode(), orjson.dumps(vars(options)), b""))
    begun = hashlib.blake2b(same, digest_size=DIGEST_BYTES)
    shared = {name: digest_of(text) for name, text in texts.items()}
    parts, digests = task_named(options.task).parts, []
    for item in items:
        beside, text, text_id = parts(item)
        name = text_id or ""
        of_text = digest_of(text) if text is not None else shared.get(name) or digest_in(name)
        digest = begun.copy()
        # The text's digest has a fixed length, so it cannot be confused with the beginning of what stands beside it.
        digest.update(of_text.encode() + (beside.encode() if type(beside) is str else orjson.dumps(beside)))
        digests.append(urlsafe_b64encode(digest.digest())[:DIGEST_CHARS].decode())
    return digests


def repeated(digests: Sequence[str]) -> list[int]:
    """Return the indexes of items that are equal to an earlier one of their job."""
    if len(set(digests)) == len(digests):
        return []
    return [index for index, digest in enumerate(digests) if digest in digests[:index]]


def cut_out(slices: Sequence[tuple[int, int, int]], alone: Collection[int]) -> Iterator[tuple[int, int, int]]:
    """Cut slices, as (first, count, tokens), so that the items ``alone`` are single. Tokens are divided evenly."""
    for first, count, tokens in slices:
        inside = [index for index in alone if first <= index < first + count]
        for begin, end in pairwise(sorted({first, first + count, *inside, *(index + 1 for index in inside)})):
            yield begin, end - begin, tokens * (end - begin) // count
