"""One item read by two runners, as two cores share it."""

from typing import Any

from corelane.engine.runner import Runner
from corelane.engine.sharing import FOUND
from corelane.engine.task import Query


def read_with_another(own: Runner, other: Runner, query: Query, most: int = 20) -> tuple[dict[str, Any], int]:
    """Answer an item while another runner reads every second part of it; return the result, and the parts it read."""
    own.admit([("item", query)])
    answered: list[Any] = own.start().finish()
    parts = 0
    while not answered:
        if own.windows_left("item"):
            windows, fragment = own.hand_out("item", most)
            other.admit_fragment("part", fragment, Query(None, "", owner=query.owner))
            found: list[Any] = []
            while not found:
                found = other.start().finish()
            assert own.add_found("item", windows, found[0][1][FOUND]) == sum(window.length for window in windows)
            parts += 1
        answered = own.start().finish()
    [(_, result)] = answered
    return result, parts
