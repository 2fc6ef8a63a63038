"""Anybody may have made a model's files, so they can fail in any way: one place makes a refusal of each failure."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from corelane.errors import CorelaneError, ModelRefused

#: Most characters of a library's error in a refusal.
MOST_CHARS = 300

NEEDS_CODE = "needs the code beside it (`auto_map`), which Corelane never runs: use a model without such code"


@contextmanager
def refusing(label: str, what: str) -> Iterator[None]:
    """Raise ModelRefused for any error in the block: ``what`` fails, and why, in one line."""
    try:
        yield
    except CorelaneError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise ModelRefused(f"{label} {NEEDS_CODE}") from error
        # The first sentence says what is wrong. Later ones tell users to upgrade, or to trust code.
        text = textwrap.shorten(str(error).strip().partition(". ")[0], MOST_CHARS, placeholder=" …")
        kind = f"{type(error).__name__} " if isinstance(error, LookupError) or not text else ""
        raise ModelRefused(f"{what}: {kind}{text}".rstrip()) from error
