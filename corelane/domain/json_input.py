"""JSON that a caller sends: its shape is looked at before its values are. Pure.

What a body costs to read and to check grows with the values in it, and a few bytes are enough for one. Without a bound
8 MB of them took a minute of CPU time and 2 GB.
"""

from typing import Any

import orjson

from corelane.errors import TooLarge

#: Commas and opening brackets in a body, those within its texts counted too: every value but the first needs one.
#: Prose has one in fifty characters, code one in fifteen.
MARKS, MOST_MARKS = (b",", b"[", b"{"), 600_000

#: Entries that are always taken, whatever the setting is: an object has as many fields as it needs.
LEAST = 1_000

#: Where lists and objects are whose sizes are looked at, level by level.
PLACES = ("at the top", "in a field", "in an entry of a field")


def read_json(text: bytes, most: int) -> Any:
    """Return the value of a text in JSON.

    Raise TooLarge if it has too many values, or if a list or an object near its top has more than ``most`` entries;
    orjson.JSONDecodeError if it is not JSON in UTF-8.
    """
    if len(text) > MOST_MARKS and (marks := sum(map(text.count, MARKS))) > MOST_MARKS:
        raise TooLarge(
            f"the JSON has {marks:,} commas and brackets, at most {MOST_MARKS:,} are taken: send it in several parts"
        )
    value = orjson.loads(text)
    check_shape(value, most)
    return value


def check_shape(value: Any, most: int) -> None:
    """Raise TooLarge if a list or an object near the top has more than ``most`` entries."""
    level = [value]
    most = max(most, LEAST)
    for place in PLACES:
        level = [each for each in level if isinstance(each, dict | list)]
        for each in level:
            if len(each) > most:
                what = "a list" if isinstance(each, list) else "an object"
                raise TooLarge(
                    f"{what} {place} has {len(each):,} entries, at most {most:,} are taken: send a job as lines "
                    "(application/x-ndjson) or as several jobs, or have the operator raise CORELANE_MAX_ITEMS"
                )
        level = [below for each in level for below in (each.values() if isinstance(each, dict) else each)]
