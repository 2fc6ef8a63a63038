"""The life of a model version on one core: its states, its events, and the table of next states. Pure.

An event without an entry for a state is refused: another thread was faster than its sender, and the next heartbeat
decides again. A version that the core does not know is ``ABSENT``; the core's table then has no entry for it.
"""

from enum import StrEnum


class ModelState(StrEnum):
    """The state of a version on a core; the values are shown by ``GET /v1/cores``, except ``absent``."""

    ABSENT = "absent"
    WAITING = "waiting"
    LOADING = "loading"
    LOADED = "loaded"
    READY = "ready"
    RELOADING = "reloading"
    RELOADED = "reloaded"
    DRAINING = "draining"
    LEAVING = "leaving"
    FAILED = "failed"


class ModelEvent(StrEnum):
    """An event in a version's life: some are decided by the heartbeat, some done by the loader, some by the drain."""

    ASK = "ask"
    """Heartbeat: load the version."""
    RELOAD = "reload"
    """Heartbeat: load the version again while its present runner serves."""
    KEEP = "keep"
    """Heartbeat: serve on, after all."""
    DRAIN = "drain"
    """Heartbeat: serve until nothing needs the version here."""
    LEAVE = "leave"
    """Heartbeat: claim no more; unload between two batches."""
    FORGET = "forget"
    """Heartbeat: the version is not wanted, and nothing of it is loaded."""
    BEGIN = "begin"
    """Loader: the load begins."""
    LOAD = "load"
    """Loader: the version is loaded and warm."""
    FAIL = "fail"
    """Loader: the version does not load."""
    UNLOAD = "unload"
    """Loader: the version is unloaded."""
    SWAP = "swap"
    """Drain: serve what was loaded, put down what leaves."""


_S, _E = ModelState, ModelEvent

#: state → event → next state.
NEXT: dict[ModelState, dict[ModelEvent, ModelState]] = {
    _S.ABSENT: {_E.ASK: _S.WAITING},
    _S.WAITING: {_E.ASK: _S.WAITING, _E.FORGET: _S.ABSENT, _E.BEGIN: _S.LOADING},
    _S.LOADING: {_E.LOAD: _S.LOADED, _E.FAIL: _S.FAILED},
    _S.LOADED: {_E.SWAP: _S.READY},
    _S.READY: {_E.RELOAD: _S.RELOADING, _E.DRAIN: _S.DRAINING, _E.LEAVE: _S.LEAVING},
    # A version that cannot be loaded again is served as before.
    _S.RELOADING: {_E.BEGIN: _S.RELOADING, _E.LOAD: _S.RELOADED, _E.FAIL: _S.READY, _E.KEEP: _S.READY},
    _S.RELOADED: {_E.SWAP: _S.READY},
    _S.DRAINING: {_E.KEEP: _S.READY, _E.LEAVE: _S.LEAVING},
    _S.LEAVING: {_E.SWAP: _S.LEAVING, _E.UNLOAD: _S.ABSENT},
    _S.FAILED: {_E.ASK: _S.WAITING, _E.FORGET: _S.ABSENT},
}

#: States in which a core claims work for a version.
CLAIMING = (_S.READY, _S.RELOADING, _S.DRAINING)

#: States in which a core serves a version. A version that was loaded again replaces the old one once all earlier
#: claims are answered.
SERVING = (*CLAIMING, _S.RELOADED)

#: States in which the drain has something to do.
TO_SWAP = tuple(state for state, events in NEXT.items() if _E.SWAP in events)

#: States in which the loader may begin to load.
TO_LOAD = tuple(state for state, events in NEXT.items() if _E.BEGIN in events)

#: States in which a runner is being loaded, or waits to be taken up.
COMING = (_S.WAITING, _S.LOADING, _S.LOADED, _S.RELOADING, _S.RELOADED)

#: States that change by themselves, or depend on other cores.
UNSETTLED = tuple(state for state in ModelState if state not in (_S.READY, _S.FAILED))


def next_state(state: ModelState, event: ModelEvent) -> ModelState | None:
    """Return the state that follows, or None if the event is refused in this state."""
    return NEXT[state].get(event)
