"""Which cells answer, as this process found lately; and how keys are found while one is away."""

import time
from collections.abc import Callable, Mapping, Sequence

from api.cells.calls import Reply
from api.cells.cell import Cell
from corelane.domain.api_keys import Key
from corelane.errors import StoreUnavailable, Unavailable

#: A cell that did not answer is asked last, and left out of lists, for so long, in seconds: one silent cell does not
#: slow every list.
LEFT_OUT_S = 2.0


class Standing:
    """The cells that did not answer lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def living(self, cells: Sequence[str]) -> list[str]:
        """Return those of some cells that are not known to be away; all of them if every one is."""
        now = self._clock()
        return [cell for cell in cells if self._until.get(cell, 0.0) <= now] or list(cells)

    def lost(self, cell: str) -> None:
        """Note that a cell did not answer."""
        self._until[cell] = self._clock() + LEFT_OUT_S

    def note(self, replies: Mapping[str, Reply]) -> None:
        """Note which cells answered and which did not."""
        for cell, reply in replies.items():
            if reply.is_away and StoreUnavailable.code.encode() in reply.body:
                self.lost(cell)
            else:
                self._until.pop(cell, None)


class KeysOfCells:
    """Finds keys in the first cell that answers: every cell has every key."""

    def __init__(self, cells: Mapping[str, Cell], standing: Standing) -> None:
        self._cells = cells
        self._standing = standing

    async def find(self, secret: str) -> Key:
        """Return the active key; raise Unauthorized, or Unavailable if no cell answers."""
        away: Unavailable | None = None
        for cell in self._standing.living(list(self._cells)):
            try:
                return await self._cells[cell].keys.find(secret)
            except Unavailable as error:
                self._standing.lost(cell)
                away = error
        raise away or StoreUnavailable("no cell answers")
