"""Which cell an owner's new work goes to, and where older work of the same owner may be. Pure.

A cell is one Redis with its own cores, and nothing is shared between cells. An owner's jobs stay in one cell, because
fair shares, bounds, names and `Idempotency-Key` are counted there. Where keys are checked, the key says which cell:
it was chosen when the owner's first key was made. Elsewhere a hash of the owner says it. Requests without a key have
one owner in common, so these jobs are spread.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from corelane.domain.ids import CELL


@dataclass(frozen=True, slots=True)
class Home:
    """The cell of new work, and further cells where older work of its owner may be, the latest first."""

    cell: str
    earlier: tuple[str, ...] = ()

    @property
    def spans(self) -> tuple[str, ...]:
        """Return every cell where the owner may have jobs."""
        return self.cell, *self.earlier


@dataclass(frozen=True, slots=True)
class CellMap:
    """The cells by name, in the order in which they are listed, and those that get no new owners."""

    names: tuple[str, ...]
    draining: frozenset[str] = frozenset()

    @property
    def open(self) -> tuple[str, ...]:
        """Return the cells that get new owners; all of them if every one is draining."""
        return tuple(name for name in self.names if name not in self.draining) or self.names

    @property
    def first(self) -> str:
        """Return the cell of owners whose keys name none: that of the time before there were others, if it is here."""
        return CELL if CELL in self.names else self.names[0]

    def home_of_key(self, owner: str, cells: Sequence[str]) -> Home:
        """Return where the owner of a checked key is at home; ``cells`` are those that the key names, now first."""
        known = [cell for cell in cells if cell in self.names]
        if not known:
            known = [rendezvous(owner, self.open) if cells else self.first]
        return Home(known[0], tuple(known[1:]))

    def home_of_text(self, owner: str) -> Home:
        """Return where an owner is at home that is a text nobody checks."""
        cell = rendezvous(owner, self.open)
        return Home(cell, tuple(name for name in self.names if name != cell and name in self.draining))

    def spread(self, seed: str) -> Home:
        """Return where a job without an owner goes; the same ``seed`` goes to the same cell."""
        return self.home_of_text(seed)


def rendezvous(text: str, cells: Collection[str]) -> str:
    """Choose the cell of a text, the same one for the same cells.

    Where a cell goes, its texts alone move. With a new cell, one text in as many as there are cells moves to it.
    """
    return max(cells, key=lambda cell: hashlib.blake2b(f"{cell} {text}".encode(), digest_size=8).digest())


def least_loaded(owners: Mapping[str, int], waiting_s: Mapping[str, float]) -> str:
    """Choose the cell of a new owner: the one with the least work waiting, in seconds; else the fewest owners."""
    return min(owners, key=lambda cell: (round(waiting_s.get(cell, 0.0)), owners[cell], cell))
