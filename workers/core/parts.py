"""Long items that several cores read: what this core hands out of its own, and what it has read for others."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from corelane.engine.runner import Runner
from corelane.engine.sharing import FOUND, PARTS_EACH, part_size
from corelane.engine.task import Result
from corelane.engine.windows import Window
from corelane.store.dispatch import Exchange
from corelane.store.parts import FoundPart, Offer, PartsDone, TakenPart
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
    """What one core does for long items together with others. It shares one item at a time. Not thread-safe."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self._runners = runners
        self._shared: SharedItem | None = None
        #: What was found in parts of others, and is to be told.
        self.found: list[FoundPart] = []

    @property
    def leases(self) -> list[str]:
        """Return the leases of the parts that are read and not told."""
        return [each.part.lease for each in self.found]

    @property
    def jobs(self) -> list[str]:
        """Return their jobs."""
        return [each.part.ref.job for each in self.found]

    @property
    def is_out(self) -> bool:
        """Return whether parts of an item of this core are out."""
        return self._shared is not None and bool(self._shared.out)

    def note(self, part: TakenPart, result: Result) -> None:
        """Note the result of a part."""
        self.found.append(FoundPart(part, result.get(FOUND, b"")))

    def ask(
        self, pending: Mapping[Key, PendingSlice], bell: str, *, is_free: bool, is_leaving: bool = False
    ) -> PartsDone:
        """Return what to tell and to ask about parts; ``is_free`` says that nothing here waits for a batch, and
        ``is_leaving`` that this core is about to give back all it has.
        """
        if is_leaving:
            return PartsDone(tuple(self.found), bell=bell)
        if self._shared is None or self._shared.key not in pending:
            self._shared = self._choose(pending)
        shared = self._shared
        offer = None if shared is None else self._offer(shared, pending[shared.key])
        return PartsDone(tuple(self.found), offer, is_free and shared is None, bell)

    def settle(self, told: PartsDone, exchanged: Exchange, pending: Mapping[Key, PendingSlice]) -> None:
        """Take note of the reply."""
        del self.found[: len(told.found)]
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
                    its.cost_class = ""
                    return SharedItem(key, runner)
        return None

    def _offer(self, shared: SharedItem, pending: PendingSlice) -> Offer:
        """Ask about the parts that are out, and add to them; without windows to run, ask for one back."""
        runner, item, out = shared.runner, (shared.key, 0), list(shared.out)
        fresh: dict[int, bytes] = {}
        while len(shared.out) < PARTS_EACH * shared.helpers and (left := runner.windows_left(item)):
            size = part_size(left, shared.helpers, runner.batch_rows(item))
            if not size:
                break
            windows, part = runner.hand_out(item, size)
            shared.out[windows[0].start], fresh[windows[0].start] = windows, part
        back = 0 if runner.windows_left(item) else 1
        return Offer(pending.lease, pending.ref, pending.version, out, fresh, back)
