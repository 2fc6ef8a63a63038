"""A slice that a core has claimed and not yet answered, or a part of another core's item."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from corelane.domain.dispatch import Ref
from corelane.engine.task import Result
from corelane.store.parts import TakenPart

#: Names a pending slice: its lease and its place in the claim.
Key = tuple[str, str]


@dataclass(slots=True)
class PendingSlice:
    """A claimed slice, or part of one; ``results`` fills up in any order.

    ``ref`` carries the tokens found in the items that were tokenized, and the estimate of the ``unread`` others;
    ``charged`` are the tokens that the store counts, ``tokens`` those of the windows.
    """

    lease: str
    ref: Ref
    version: str
    ids: Sequence[str | None]
    unread: int
    estimate: int
    charged: int
    found: int = 0
    tokens: int = 0
    results: dict[int, Result] = field(default_factory=dict)
    #: The class of its items by what they cost; empty if they are no measure.
    cost_class: str = ""
    #: Tokens of windows that other cores read.
    elsewhere: int = 0
    #: Whether parts of it were offered to other cores.
    is_shared: bool = False
    #: The part of another core's item that this is, if it is one.
    part: TakenPart | None = None
