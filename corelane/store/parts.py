"""Parts of long items: offered by one core, read by another. See ``lua/parts.lua``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corelane.domain.dispatch import Ref
from corelane.store.link.library import Command
from corelane.store.link.link import call


@dataclass(frozen=True, slots=True)
class Offer:
    """The parts of an item, offered by the core that claimed it.

    ``out`` are the parts offered before, by their numbers; ``fresh`` are new parts with their bytes; ``back`` is how
    many parts that no core has taken should come back.
    """

    lease: str
    ref: Ref
    version: str
    out: Sequence[int]
    fresh: Mapping[int, bytes]
    back: int

    def command(self, core: str, bell: str) -> Command:
        """Return the command that makes the offer."""
        return call(
            "share",
            *self.fresh.values(),
            core=core,
            lease=self.lease,
            item=self.ref.key,
            version=self.version,
            envelope=bell,
            out=list(self.out),
            fresh=list(self.fresh),
            back=self.back,
        )


@dataclass(frozen=True, slots=True)
class Offered:
    """The reply: how many cores could take parts, what was found in parts that were read, and which parts came back."""

    helpers: int
    found: Mapping[int, bytes]
    back: Sequence[int]

    @classmethod
    def parse(cls, reply: Sequence[int | bytes]) -> "Offered":
        """Read the reply of ``share``."""
        helpers, *parts = reply
        over = [(int(start), state, text) for start, state, text in zip(*(parts[n::3] for n in range(3)), strict=True)]
        found = {start: text for start, state, text in over if state == b"found" and isinstance(text, bytes)}
        return cls(int(helpers), found, [start for start, *_ in over if start not in found])


@dataclass(frozen=True, slots=True)
class TakenPart:
    """A part that this core reads for another core: its lease, its offer, its ``start`` there, and the item's ref."""

    lease: str
    offer: str
    start: int
    version: str
    ref: Ref
    payload: bytes

    @classmethod
    def parse(cls, reply: Sequence[bytes]) -> "TakenPart":
        """Parse what a claim returned instead of refs."""
        lease, offer, start, version, ref, payload = reply
        return cls(lease.decode(), offer.decode(), int(start), version.decode(), Ref.decode(ref.decode()), payload)


@dataclass(frozen=True, slots=True)
class FoundPart:
    """The findings in a part; None if it could not be read, or its job is over."""

    part: TakenPart
    found: bytes = b""


@dataclass(frozen=True, slots=True)
class PartsDone:
    """What a core did with parts in one trip.

    It has the parts that the core read, the item that the core shares, if any, and whether it would read another part.
    """

    found: Sequence[FoundPart] = ()
    offer: Offer | None = None
    helps: bool = False
    #: The message that rings a core.
    bell: str = field(default="", repr=False)

    def report(self, core: str, spent: Mapping[str, Sequence[int]], price: str, lost: Sequence[int]) -> Command:
        """Return the command that sends what was found, and what was ``spent`` on the jobs."""
        parts = [(p.lease, p.offer, str(p.start), p.ref.job, p.ref.owner) for p in (each.part for each in self.found)]
        found = [each.found for each in self.found]
        return call(
            "report_parts", *found, core=core, envelope=self.bell, parts=parts, spent=spent, price=price, lost=lost
        )


#: A core that has nothing to do with parts, and one that would take a part.
NO_PARTS, WOULD_HELP = PartsDone(), PartsDone(helps=True)
