"""What a compiled model loses against the eager one, on items whose results are known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from corelane.engine.task import Query


@dataclass(frozen=True, slots=True)
class EvalSet:
    """Items and the references of each; ``label`` says where they came from.

    ``text_f1`` gives the F1, 0 to 1, of a result's text against its references.
    """

    label: str
    queries: "Sequence[Query]"
    references: Sequence[Sequence[str]]
    text_f1: Callable[[str, Sequence[str]], float]


class F1Loss(NamedTuple):
    """Points of F1 lost against eager fp32 (below 0: gained), the number of items, and where they came from."""

    points: float
    items: int
    label: str
