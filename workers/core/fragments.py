"""Fragments of long items that several cores read: what this core hands out of its own, and found for others.

A fragment is a run of neighbouring windows; in Redis it is a *part* (``corelane.store.parts``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from corelane.engine.runner import Runner
from corelane.engine.sharing import FRAGMENTS_EACH, fragment_size
from corelane.engine.windows import Window
from corelane.store.dispatch import Exchange
from corelane.store.parts import FoundPart, Offer, PartsDone, TakenPart
from workers.core.pending import Key, PendingSlice


@dataclass(slots=True)
class SharedItem:
    """An item of this core whose windows others may read; its fragments that are out, by their first window's start."""

    key: Key
    runner: Runner
    out: dict[int, list[Window]] = field(default_factory=dict)
    #: Cores that could take a fragment, as of the last trip.
    helpers: int = 0


class Fragments:
    """The fragments that one core shares with others. It shares one item at a time. Not thread-safe."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self._runners = runners
        self._shared: SharedItem | None = None
        #: What was found in fragments of other cores' items, to be sent.
        self.found: list[FoundPart] = []

    @property
    def is_out(self) -> bool:
        """Return whether fragments of an item of this core are out."""
        return self._shared is not None and bool(self._shared.out)

    @property
    def may_offer(self) -> bool:
        """Return whether cores that could take fragments are known, and all that there is for them is here."""
        shared = self._shared
        return shared is not None and not shared.out and self._next_size(shared) > 0

    def add_found(self, part: TakenPart, found: bytes = b"") -> None:
        """Note what was found in a fragment; nothing if it could not be read, or its job is over."""
        self.found.append(FoundPart(part, found))

    def request(self, pending: Mapping[Key, PendingSlice], bell: str, *, is_free: bool, is_leaving: bool) -> PartsDone:
        """Return what to send and to ask; a core that ``is_free`` would read one for another."""
        found = tuple(self.found)
        if is_leaving:
            return PartsDone(found, bell=bell)
        if self._shared is None or self._shared.key not in pending:
            self._shared = self._choose(pending)
        offer = None if self._shared is None else self._offer(self._shared, pending[self._shared.key])
        return PartsDone(found, offer, is_free and offer is None, bell)

    def settle(self, sent: PartsDone, reply: Exchange, pending: Mapping[Key, PendingSlice]) -> None:
        """Forget what was sent, and take in what other cores found."""
        del self.found[: len(sent.found)]
        shared, offered = self._shared, reply.offered
        if shared is None or offered is None or shared.key not in pending:
            return
        shared.helpers = offered.helpers
        item = shared.key, 0
        for start, found in offered.found.items():
            if windows := shared.out.pop(start, None):
                pending[shared.key].elsewhere += shared.runner.add_found(item, windows, found)
        for start in offered.back:
            if windows := shared.out.pop(start, None):
                shared.runner.take_back(item, windows)

    def _choose(self, pending: Mapping[Key, PendingSlice]) -> SharedItem | None:
        """Return a long item of this core. One that failed before is read here alone, so that it fails alone."""
        for runner in self._runners.values():
            for key, _ in runner.long_items:
                its = pending.get(key)
                if its is not None and len(its.ids) == 1 and its.ref.attempt == 1 and its.part is None:
                    its.is_shared = True
                    return SharedItem(key, runner)
        return None

    def _offer(self, shared: SharedItem, pending: PendingSlice) -> Offer:
        """Ask about the fragments that are out, and add to them; without windows to run, ask for one back."""
        runner, item, out = shared.runner, (shared.key, 0), list(shared.out)
        fresh: dict[int, bytes] = {}
        while len(shared.out) < FRAGMENTS_EACH * shared.helpers and (size := self._next_size(shared)):
            windows, part = runner.hand_out(item, size)
            shared.out[windows[0].start], fresh[windows[0].start] = windows, part
        back = 0 if runner.windows_left(item) or runner.grows(item) else 1
        return Offer(pending.lease, pending.ref, pending.version, out, fresh, back)

    def _next_size(self, shared: SharedItem) -> int:
        """Return the windows of the next fragment; 0 if there is none."""
        item = shared.key, 0
        left = shared.runner.windows_left(item)
        return fragment_size(left, shared.helpers, shared.runner.batch_rows(item)) if left else 0
