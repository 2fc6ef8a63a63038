"""The measured costs of items on cores: by class of items, and by passes. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostClass:
    """A class of items."""

    together: str
    script: str
    length: int

    @classmethod
    def decode(cls, text: str) -> "CostClass":
        """Parse what ``cost_class`` returned; raise ValueError for any other text."""
        together, script, length = text.split(":")
        return cls(together, script, int(length))

    def fits(self, together: str | None, script: str | None, length: int | None) -> bool:
        """Return whether a class of items matches these parts of its name; None matches any."""
        return together in (None, self.together) and script in (None, self.script) and length in (None, self.length)


@dataclass(frozen=True, slots=True)
class CostSums:
    """Sums over items that were read: their number, estimated tokens, tokens, windows, and time.

    Weights of older items are less than one, so all of these may be fractions.
    """

    items: float = 0.0
    estimated: float = 0.0
    tokens: float = 0.0
    windows: float = 0.0
    core_s: float = 0.0

    def __add__(self, other: "CostSums") -> "CostSums":
        return CostSums(
            self.items + other.items,
            self.estimated + other.estimated,
            self.tokens + other.tokens,
            self.windows + other.windows,
            self.core_s + other.core_s,
        )


@dataclass(frozen=True, slots=True)
class RowCost:
    """Core seconds of a row of this length: for a lone item, and within a full batch."""

    length: int
    alone_s: float
    together_s: float
