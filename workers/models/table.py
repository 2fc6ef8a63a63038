"""The model table of a core: its versions, with the state of each. All states change here, under one lock.

Three threads send events. The heartbeat decides, the loader loads and unloads, the drain takes up runners between two
batches, so that only the drain ever uses a runner. ``life`` determines the next state.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from corelane.engine.runner import Runner
from corelane.log import get_logger
from workers.models.desired import DesiredModel, VersionStatus
from workers.models.life import CLAIMING, COMING, SERVING, TO_LOAD, TO_SWAP, ModelEvent, ModelState, next_state

log = get_logger(__name__)

#: Events of a load. They are valid only for the entry's desired model.
OF_A_LOAD = (ModelEvent.BEGIN, ModelEvent.LOAD, ModelEvent.FAIL)

#: Events that give an entry another desired model.
OF_DESIRED = (ModelEvent.ASK, ModelEvent.RELOAD)


@dataclass(slots=True)
class ModelEntry:
    """A version on this core; ``loaded`` is a runner that the drain has not taken up yet."""

    desired: DesiredModel
    state: ModelState
    reason: str | None = None
    loaded: Runner | None = None
    summary: Mapping[str, Any] | None = None

    @property
    def bytes(self) -> int:
        """Return the size of the version's files."""
        return int((self.summary or {}).get("bytes", 0))

    def status(self) -> VersionStatus:
        """Return the facts that decisions are based on."""
        manifest = str((self.summary or {}).get("manifest_sha256", ""))
        return VersionStatus(self.state, self.desired.since_ms, self.desired.reload_ms, manifest)

    def describe(self) -> dict[str, Any]:
        """Return what the heartbeat reports about the version."""
        summary = self.summary or {}
        return {
            "version": self.desired.version,
            "state": str(self.state),
            "reason": self.reason,
            "asked_ms": self.desired.since_ms,
            "buckets": summary.get("buckets", []),
            "bytes": summary.get("bytes", 0),
            "dtype": summary.get("dtype"),
            "cpu_kind": summary.get("cpu_kind") or None,
            "manifest_sha256": summary.get("manifest_sha256") or None,
        }


@dataclass(frozen=True, slots=True)
class Retired:
    """A runner that does not serve any more, and the size of its files."""

    version: str
    runner: Runner
    bytes: int


class ModelTable:
    """The versions that a core holds, should hold, or failed to load."""

    def __init__(self) -> None:
        #: Runners by version; only the drain's thread uses them, or adds and removes them.
        self.runners: dict[str, Runner] = {}
        self._entries: dict[str, ModelEntry] = {}
        self._lock = threading.Lock()

    def handle(
        self,
        event: ModelEvent,
        desired: DesiredModel,
        *,
        reason: str | None = None,
        runner: Runner | None = None,
    ) -> bool:
        """Move a version to the state that follows an event; return False if the event is too late and is refused.

        ``reason`` is for ``FAIL``, ``runner`` for ``LOAD``.
        """
        with self._lock:
            entry = self._entries.get(desired.version) or ModelEntry(desired, ModelState.ABSENT)
            state = next_state(entry.state, event)
            if state is None or (event in OF_A_LOAD and entry.desired != desired):
                log.debug("model_event_refused", version=desired.version, state=str(entry.state), event_type=str(event))
                return False
            entry.state = state
            if event in OF_DESIRED:
                entry.desired, entry.reason = desired, None
            entry.reason = reason or entry.reason
            if runner is not None:
                entry.loaded = runner
                if state is ModelState.LOADED:
                    entry.summary = runner.summary
            if state is ModelState.ABSENT:
                del self._entries[desired.version]
            else:
                self._entries[desired.version] = entry
            return True

    def swap_runners(self, is_busy: Callable[[str], bool]) -> tuple[bool, list[Retired]]:
        """Serve what was loaded, and put down what leaves and is not busy.

        Return whether anything changed, and what to unload. Only the drain's thread calls this, between two batches.
        """
        changed, retired = False, []
        with self._lock:
            for version, entry in self._entries.items():
                if entry.state not in TO_SWAP or is_busy(version):
                    continue
                before = self.runners.pop(version, None)
                if before is not None:
                    retired.append(Retired(version, before, entry.bytes))
                if entry.loaded is not None:
                    self.runners[version], entry.summary, entry.loaded = entry.loaded, entry.loaded.summary, None
                changed = changed or before is not None or version in self.runners
                entry.state = next_state(entry.state, ModelEvent.SWAP) or entry.state
        return changed, retired

    def is_due(self, desired: DesiredModel) -> bool:
        """Return whether a desired model still has to be loaded, and has not changed."""
        with self._lock:
            entry = self._entries.get(desired.version)
            return entry is not None and entry.desired == desired and entry.state in TO_LOAD

    def statuses(self) -> dict[str, VersionStatus]:
        """Return the state of each version on this core."""
        with self._lock:
            return {version: entry.status() for version, entry in self._entries.items()}

    def claimable(self) -> list[str]:
        """Return the versions that this core claims work for."""
        return self._in(CLAIMING)

    def served(self) -> list[str]:
        """Return the versions that this core serves."""
        return self._in(SERVING)

    def has_to_swap(self) -> bool:
        """Return whether the drain has a runner to begin or to put down."""
        return bool(self._in(TO_SWAP))

    def is_loading(self) -> bool:
        """Return whether a version is being loaded, or soon will be."""
        return bool(self._in(COMING))

    def describe(self) -> list[dict[str, Any]]:
        """Return each version with its state, for the heartbeat."""
        with self._lock:
            return [entry.describe() for entry in self._entries.values()]

    def summary(self, version: str) -> Mapping[str, Any] | None:
        """Return what the API shows of a version; None if it was never loaded here."""
        with self._lock:
            entry = self._entries.get(version)
            return None if entry is None else entry.summary

    def close(self) -> None:
        """Unload everything."""
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()

    def _in(self, states: tuple[ModelState, ...]) -> list[str]:
        with self._lock:
            return [version for version, entry in self._entries.items() if entry.state in states]
