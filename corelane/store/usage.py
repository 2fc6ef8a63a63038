"""The stored usage of a job: one text, written by the plugin that counts it, and by batches of their jobs."""

from corelane.domain.prices import NOTHING, Price
from corelane.domain.usage import Used


def parse_used(text: str) -> Used:
    """Read a job's usage."""
    counts, *parts = text.split(";")
    items, windows, tokens = map(int, counts.split(" "))
    by_price = (part.partition(" ") for part in parts)
    return Used(items, windows, tokens, {Price.decode(price): int(core_us) for core_us, _, price in by_price})


def encode_used(used: Used) -> str:
    """Return usage as a job's is stored."""
    parts = (f";{core_us} {NOTHING if price is None else price.encode()}" for price, core_us in used.core_us.items())
    return f"{used.items} {used.windows} {used.tokens}{''.join(parts)}"
