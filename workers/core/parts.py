"""Long items that several cores read: what this core hands out of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from corelane.engine.runner import Runner
from corelane.engine.sharing import PARTS_EACH, part_size
from corelane.engine.windows import Window
from corelane.store.dispatch import Exchange
from corelane.store.parts import Offer
from workers.core.pending import Key, PendingSlice


@dataclass(slots=True)
class SharedItem:
    """An item of this core whose windows others may read; its parts that are out, by their first window's start."""

    key: Key
    runner: Runner
    out: dict[int, list[Window]] = field(default_factory=dict)
    #: Cores that could take a part, as of the last exchange.
    helpers: int = 0


class PartBook:
    """The parts that one core hands out. It shares one item at a time. Not thread-safe."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self._runners = runners
        self._shared: SharedItem | None = None

    @property
    def is_out(self) -> bool:
        """Return whether parts of an item of this core are out."""
        return self._shared is not None and bool(self._shared.out)

    @property
    def may_offer(self) -> bool:
        """Return whether cores that could take parts are known, and all that there is for them is here."""
        shared = self._shared
        return shared is not None and not shared.out and self._next_size(shared) > 0

    def offer(self, pending: Mapping[Key, PendingSlice]) -> Offer | None:
        """Return what to ask about the parts of a long item, if there is one."""
        if self._shared is None or self._shared.key not in pending:
            self._shared = self._choose(pending)
        return None if self._shared is None else self._offer(self._shared, pending[self._shared.key])

    def settle(self, exchanged: Exchange, pending: Mapping[Key, PendingSlice]) -> None:
        """Take note of the reply."""
        shared, offered = self._shared, exchanged.offered
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
                    its.cost_class, its.is_shared = "", True
                    return SharedItem(key, runner)
        return None

    def _offer(self, shared: SharedItem, pending: PendingSlice) -> Offer:
        """Ask about the parts that are out, and add to them; without windows to run, ask for one back."""
        runner, item, out = shared.runner, (shared.key, 0), list(shared.out)
        fresh: dict[int, bytes] = {}
        while len(shared.out) < PARTS_EACH * shared.helpers and (size := self._next_size(shared)):
            windows, part = runner.hand_out(item, size)
            shared.out[windows[0].start], fresh[windows[0].start] = windows, part
        back = 0 if runner.windows_left(item) or runner.grows(item) else 1
        return Offer(pending.lease, pending.ref, pending.version, out, fresh, back)

    def _next_size(self, shared: SharedItem) -> int:
        """Return the windows of the next part; 0 if there is none."""
        item = shared.key, 0
        left = shared.runner.windows_left(item)
        return part_size(left, shared.helpers, shared.runner.batch_rows(item)) if left else 0
