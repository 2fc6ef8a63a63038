"""Reuse: the digest by which equal items are found, and which jobs may share answers. Pure.

Two items are equal if they have the same owner, model version, options, question and passage, however the passage is
given. ``store/lua/reuse.lua`` does the bookkeeping.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import orjson

from corelane.domain.contexts import digest_in, digest_of
from corelane.domain.jobs import Item
from corelane.domain.options import Options

#: Jobs of at most ``MOST_ITEMS`` items share answers, or of ``MOST_CACHED_ITEMS`` if a cache is on. In larger jobs the
#: bookkeeping for each item would cost more than equal items save.
MOST_ITEMS, MOST_CACHED_ITEMS = 8, 32

#: Bytes of a digest, and its characters as text.
DIGEST_BYTES, DIGEST_CHARS = 16, 22

#: Words in a request's ``Cache-Control`` that turn reuse off.
NOT_REUSED = frozenset({"no-store", "no-cache"})


def refuses_reuse(cache_control: str | None) -> bool:
    """Return whether a request's ``Cache-Control`` asks that no answer is reused."""
    if not cache_control:
        return False
    return not NOT_REUSED.isdisjoint(word.strip().lower() for word in cache_control.split(","))


def item_digests(
    owner: str, version: str, options: Options, items: Sequence[Item], contexts: Mapping[str, str]
) -> list[str]:
    """Return the digest of each item of a job; ``contexts`` are the passages that its items share, by id.

    A passage that is not in ``contexts`` is a stored one, whose id contains its digest.
    """
    same = b"\n".join((owner.encode(), version.encode(), orjson.dumps(vars(options)), b""))
    begun = hashlib.blake2b(same, digest_size=DIGEST_BYTES)
    shared = {name: digest_of(text) for name, text in contexts.items()}
    digests = []
    for item in items:
        name = item.context_id or ""
        passage = digest_of(item.context) if item.context is not None else shared.get(name) or digest_in(name)
        digest = begun.copy()
        # The passage's digest has a fixed length, so it cannot be confused with the beginning of a question.
        digest.update((passage + item.question).encode())
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
