"""Fragments of long items that several cores read: those this core hands out, and those it read for others.

A fragment is a run of neighbouring windows; in Redis it is a *part* (``corelane.store.parts``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from corelane.engine.runner import Runner
from corelane.engine.sharing import FRAGMENTS_EACH, fragment_size
from corelane.engine.task import Window
from corelane.store.dispatch import Exchange
from corelane.store.parts import FoundPart, Offer, PartsDone, TakenPart
from workers.core.pending import Key, PendingSlice


@dataclass(slots=True)
class SharedItem:
    """An item of this core whose windows others may read; ``out`` has its fragments that are away, by their number."""

    key: Key
    runner: Runner
    out: dict[int, list[Window]] = field(default_factory=dict)
    #: Cores that could take a fragment, at the last trip.
    helpers: int = 0
    #: Fragments handed out so far.
    count: int = 0


class Fragments:
    """The fragments that one core shares with others. It shares one item at a time. Not thread-safe."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self._runners = runners
        self._shared: SharedItem | None = None
        #: What was found in fragments of other cores' items, to be sent.
        self.found: list[FoundPart] = []

    @property
    def is_out(self) -> bool:
        """Return whether other cores have fragments of this core's item."""
        return self._shared is not None and bool(self._shared.out)

    @property
    def may_offer(self) -> bool:
        """Return whether other cores could take fragments, and none has been offered yet."""
        shared = self._shared
        return shared is not None and not shared.out and self._next_size(shared) > 0

    def add_found(self, part: TakenPart, found: bytes = b"") -> None:
        """Note what was found in a fragment; empty if it could not be read, or its job is over."""
        self.found.append(FoundPart(part, found))

    def request(self, pending: Mapping[Key, PendingSlice], bell: str, *, is_free: bool, is_leaving: bool) -> PartsDone:
        """Return what to send and to ask for. A core that ``is_free`` offers to read a fragment."""
        found = tuple(self.found)
        if is_leaving:
            return PartsDone(found, bell=bell)
        if self._shared is None or self._shared.key not in pending:
            self._shared = self._choose(pending)
        offer = None if self._shared is None else self._offer(self._shared, pending[self._shared.key])
        return PartsDone(found, offer, is_free and offer is None, bell)

    def settle(self, sent: PartsDone, reply: Exchange, pending: Mapping[Key, PendingSlice]) -> None:
        """Remove what was sent, and add what other cores found."""
        del self.found[: len(sent.found)]
        shared, offered = self._shared, reply.offered
        if shared is None or offered is None or shared.key not in pending:
            return
        shared.helpers = offered.helpers
        item = shared.key, 0
        for number, found in offered.found.items():
            if windows := shared.out.pop(number, None):
                pending[shared.key].elsewhere += shared.runner.add_found(item, windows, found)
        for number in offered.back:
            if windows := shared.out.pop(number, None):
                shared.runner.take_back(item, windows)

    def _choose(self, pending: Mapping[Key, PendingSlice]) -> SharedItem | None:
        """Return a long item of this core. An item that failed before is not shared, so that it fails alone."""
        for runner in self._runners.values():
            for key, _ in runner.long_items:
                its = pending.get(key)
                if its is not None and len(its.ids) == 1 and its.ref.attempt == 1 and its.part is None:
                    its.is_shared = True
                    return SharedItem(key, runner)
        return None

    def _offer(self, shared: SharedItem, pending: PendingSlice) -> Offer:
        """Ask about the fragments that are out, and offer more. If no window is left to run, ask for one back."""
        runner, item, out = shared.runner, (shared.key, 0), list(shared.out)
        fresh: dict[int, bytes] = {}
        while len(shared.out) < FRAGMENTS_EACH * shared.helpers and (size := self._next_size(shared)):
            windows, part = runner.hand_out(item, size)
            shared.out[shared.count], fresh[shared.count] = windows, part
            shared.count += 1
        back = 0 if runner.windows_left(item) or runner.grows(item) else 1
        return Offer(pending.lease, pending.ref, pending.version, out, fresh, back)

    def _next_size(self, shared: SharedItem) -> int:
        """Return the number of windows in the next fragment; 0 if there is none."""
        item = shared.key, 0
        left = shared.runner.windows_left(item)
        return fragment_size(left, shared.helpers, shared.runner.batch_rows(item)) if left else 0
