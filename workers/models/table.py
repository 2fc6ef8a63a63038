"""The table of a core's versions, with the state of each; every change of a state is made here, under one lock.

Three threads use it: the heartbeat's puts down what is to change, the loader's what it loaded and unloaded, and the
drain's takes up between two batches, so that a runner is only ever used by the drain. A change that another thread has
overtaken is not made: whoever wanted it looks again with the next heartbeat.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from corelane.engine.runner import QueryRunner
from workers.models.desired import CLAIMING, SERVING, Changes, ModelState, Standing, Wish

#: States that the drain has to do something about.
TO_TAKE_UP = (ModelState.LOADED, ModelState.RELOADED, ModelState.LEAVING)

#: States that a wish may still be taken back from, or changed in.
UNBEGUN = (ModelState.LAZY, ModelState.WAITING, ModelState.FAILED)


@dataclass(slots=True)
class Entry:
    """A version on this core; its runner once loaded, and the one that is to follow it once loaded anew."""

    wish: Wish
    state: ModelState
    reason: str | None = None
    runner: QueryRunner | None = None
    fresh: QueryRunner | None = None
    summary: Mapping[str, Any] | None = None

    def shown(self) -> dict[str, Any]:
        """What the heartbeat says of it."""
        version, asked_ms = self.wish.version, self.wish.since_ms
        said = {"version": version, "state": str(self.state), "reason": self.reason, "asked_ms": asked_ms}
        return said | _shown(self.summary)


@dataclass(frozen=True, slots=True)
class Retired:
    """A runner that answers no more, and what its files weigh."""

    version: str
    runner: QueryRunner
    bytes: int


class Holdings:
    """What a core holds, is to hold, and failed to load."""

    def __init__(self) -> None:
        #: Runners by version; only the drain's thread touches them, or changes which there are.
        self.runners: dict[str, QueryRunner] = {}
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def standings(self) -> dict[str, Standing]:
        """How this core stands with each version."""
        with self._lock:
            return {version: _standing(entry) for version, entry in self._entries.items()}

    def claimable(self) -> list[str]:
        """The versions this core claims work for."""
        return self._in(CLAIMING)

    def served(self) -> list[str]:
        """The versions this core answers for."""
        return self._in(SERVING)

    def _in(self, states: tuple[ModelState, ...]) -> list[str]:
        with self._lock:
            return [version for version, entry in self._entries.items() if entry.state in states]

    def describe(self) -> list[dict[str, Any]]:
        """Each version with its state, for the heartbeat."""
        with self._lock:
            return [entry.shown() for entry in self._entries.values()]

    def summary(self, version: str) -> Mapping[str, Any] | None:
        """Return what the API shows of a version; None where it was never loaded or described here."""
        with self._lock:
            entry = self._entries.get(version)
            return None if entry is None else entry.summary

    def apply(self, changes: Changes) -> list[Wish]:
        """Put down what is to change; the wishes that are to be loaded now."""
        loads = []
        with self._lock:
            for wish in changes.load:
                before = self._entries.get(wish.version)
                if before is None or before.state in UNBEGUN:
                    summary = before.summary if before else None
                    self._entries[wish.version] = Entry(wish, ModelState.WAITING, summary=summary)
                    loads.append(wish)
            for wish in changes.reload:
                entry = self._entries[wish.version]
                entry.wish, entry.state, entry.reason = wish, ModelState.RELOADING, None
                loads.append(wish)
            for version in changes.forget:
                if self._entries[version].state in UNBEGUN:
                    del self._entries[version]
            for versions, state, among in (
                (changes.keep, ModelState.READY, (ModelState.DRAINING, ModelState.RELOADING)),
                (changes.drain, ModelState.DRAINING, (ModelState.READY,)),
                (changes.leave, ModelState.LEAVING, (ModelState.READY, ModelState.DRAINING)),
            ):
                for version in versions:
                    if self._entries[version].state in among:
                        self._entries[version].state = state
        return loads

    def offer(self, wish: Wish, summary: Mapping[str, Any]) -> None:
        """Put down a version that is loaded on first use."""
        with self._lock:
            self._entries[wish.version] = Entry(wish, ModelState.LAZY, summary=summary)

    def is_due(self, wish: Wish) -> bool:
        """Whether a wish is still to be loaded, as it stands."""
        with self._lock:
            entry = self._entries.get(wish.version)
            return (
                entry is not None and entry.wish == wish and entry.state in (ModelState.WAITING, ModelState.RELOADING)
            )

    def begin(self, wish: Wish) -> None:
        """Put down that a load begins; one beside a runner that serves has begun already."""
        with self._lock:
            entry = self._entries.get(wish.version)
            if entry is not None and entry.state is ModelState.WAITING:
                entry.state = ModelState.LOADING

    def put(self, wish: Wish, runner: QueryRunner) -> bool:
        """Put down what was loaded, for the drain to take up; False if nobody wants it any more."""
        with self._lock:
            entry = self._entries.get(wish.version)
            if entry is None or entry.wish != wish:
                return False
            if entry.state is ModelState.LOADING:
                entry.runner, entry.summary, entry.state = runner, runner.summary, ModelState.LOADED
                return True
            if entry.state is ModelState.RELOADING:
                entry.fresh, entry.state = runner, ModelState.RELOADED
                return True
            return False

    def fail(self, wish: Wish, reason: str) -> None:
        """Put down why a version does not load; one that serves goes on as it was."""
        with self._lock:
            entry = self._entries.get(wish.version)
            if entry is None or entry.runner is None:
                self._entries[wish.version] = Entry(wish, ModelState.FAILED, reason)
            elif entry.state is ModelState.RELOADING and entry.wish == wish:
                entry.state, entry.reason = ModelState.READY, reason

    def take_up(self, is_busy: Callable[[str], bool]) -> tuple[bool, list[Retired]]:
        """Serve what is loaded by now, put down what leaves and is not busy: if any, and the runners to unload.

        Called by the drain's thread alone, between two batches.
        """
        changed, retired = False, []
        with self._lock:
            for version, entry in self._entries.items():
                if entry.state is ModelState.LOADED and entry.runner is not None:
                    self.runners[version], entry.state, changed = entry.runner, ModelState.READY, True
                elif entry.state in TO_TAKE_UP and version in self.runners and not is_busy(version):
                    retired.append(Retired(version, self.runners.pop(version), _bytes(entry)))
                    entry.runner = entry.fresh
                    if entry.fresh is not None:
                        self.runners[version], entry.summary = entry.fresh, entry.fresh.summary
                        entry.fresh, entry.state = None, ModelState.READY
        return changed or bool(retired), retired

    def remove(self, version: str) -> None:
        """Forget a version whose runner has been unloaded; one that serves, loaded anew, stays."""
        with self._lock:
            if version in self._entries and self._entries[version].state is ModelState.LEAVING:
                del self._entries[version]

    def close(self) -> None:
        """Unload everything."""
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()


def _standing(entry: Entry) -> Standing:
    manifest = str((entry.summary or {}).get("manifest_sha256", ""))
    return Standing(entry.state, entry.wish.since_ms, entry.wish.reload_ms, manifest)


def _bytes(entry: Entry) -> int:
    return int((entry.summary or {}).get("bytes", 0))


def _shown(summary: Mapping[str, Any] | None) -> dict[str, Any]:
    summary = summary or {}
    shown = {"buckets": summary.get("buckets", []), "bytes": summary.get("bytes", 0), "dtype": summary.get("dtype")}
    return shown | {"manifest_sha256": summary.get("manifest_sha256") or None}
