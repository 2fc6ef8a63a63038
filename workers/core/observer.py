"""Observers of a core's work. Their hooks are called for claims, batches and trips to Redis, and may add to a trip.

Metrics, speeds, usage, traces and logs are observers. The loop (``drain``) and the work in progress (``in_flight``)
know none of them by name: a core's process is given a list of factories. Hooks are called for each claim, batch and
trip, never for each item, on the drain's thread. An observer that raises is logged and passed over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from corelane.domain.dispatch import Ref
from corelane.engine.runner import Runner, RunningBatch
from corelane.log import PassedOver
from corelane.metrics.recorder import Recorder
from corelane.settings import Settings
from corelane.store.dispatch import Dispatch, Exchange, ExchangeRequest, SliceResults
from workers.core.pending import PendingSlice


@dataclass(frozen=True, slots=True)
class ObservedCore:
    """The core whose work is observed: its settings, name, and what observers may use of it."""

    settings: Settings
    core: str
    dispatch: Dispatch
    recorder: Recorder


@dataclass(slots=True)
class Trip:
    """A trip to Redis that is over: the request, the reply, and how many seconds it took."""

    request: ExchangeRequest
    reply: Exchange
    seconds: float
    #: The jobs of which something was claimed.
    claimed: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        self.claimed = self.reply.claim.jobs if self.reply.claim is not None else ()


@dataclass(slots=True)
class TokenizedSlices:
    """Slices of one version that are now in progress: the estimated tokens of each job, and the time of tokenizing.

    ``core_s`` are the seconds that the core is charged with.
    """

    version: str
    tokens: Mapping[str, int]
    seconds: float
    core_s: float


@dataclass(slots=True)
class CoreBatch:
    """One batch. Its rows are known once it runs, its times and results once it is over."""

    runner: Runner
    #: When it began, by the performance counter and by the CPU clock.
    began: float
    cpu_began: float
    running: RunningBatch = field(init=False)
    #: The number of windows of each job in it, and their tokens. For a job that needed no row, the estimated tokens.
    windows: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    #: The jobs for which a text was read further before the batch; each has the value 1.
    readers: dict[str, int] = field(default_factory=dict)
    #: Items that the batch answered, their estimated tokens, and the slices that are now answered completely.
    answered: int = 0
    answered_tokens: int = 0
    slices: list[tuple[PendingSlice, SliceResults]] = field(default_factory=list)
    #: Seconds of the whole batch, of its passes, and of merging; and the seconds that the core is charged with.
    seconds: float = 0.0
    compute_s: float = 0.0
    merge_s: float = 0.0
    core_s: float = 0.0
    #: Seconds in which a text was read further, and how many of these seconds the core is charged with.
    read_s: float = 0.0
    read_core_s: float = 0.0


@dataclass(slots=True)
class HandBack:
    """Slices of a lease that return to the lanes as they were, with their versions."""

    refs: Sequence[tuple[Ref, str]]
    #: Tokens that were read for them in vain.
    lost_tokens: int = 0


class CoreObserver:
    """Base of all observers: its hooks do nothing. Subclasses override those that they need."""

    def contributes(self, request: ExchangeRequest) -> None:
        """Add to the next trip to Redis. The trip may fail; ``committed`` is called if it did not."""

    def committed(self, trip: Trip) -> None:
        """Observe a trip that is over. What it committed is stored, unless its lease was lost."""

    def tokenized(self, tokenized: TokenizedSlices) -> None:
        """Observe slices that are now in progress."""

    def batch_started(self, batch: CoreBatch) -> None:
        """Observe the start of a batch; on a device, trips and claims follow while it runs."""

    def batch_finished(self, batch: CoreBatch) -> None:
        """Observe the end of a batch."""

    def dropped(self, jobs: Collection[str]) -> None:
        """Note jobs of which this core holds nothing any more and will commit nothing."""

    def hands_back(self, request: HandBack) -> None:
        """Add to what is sent with slices that are handed back."""

    def beats(self, fields: dict[str, object]) -> None:
        """Add to the fields of a heartbeat (see ``Announcer.beat``). This is called on the heartbeat's own thread."""

    def close(self) -> None:
        """Send what is left, because the process ends."""


#: Makes the observers of one core's process.
ObserverFactory = Callable[[ObservedCore], Iterable[CoreObserver]]


class Observers(CoreObserver):
    """Calls the hooks of several observers. One that raises is logged, once for each kind of error, and passed over."""

    def __init__(self, observers: Sequence[CoreObserver]) -> None:
        for hook, base in [each for each in vars(CoreObserver).items() if not each[0].startswith("_")]:
            # Only those that do something are called.
            own = [each for each in observers if getattr(type(each), hook, base) is not base]
            hooks = [(getattr(each, hook), PassedOver(type(each).__qualname__, hook)) for each in own]
            setattr(self, hook, partial(_call, hooks))


def _call(hooks: Sequence[tuple[Callable[..., None], PassedOver]], *about: object) -> None:
    for hook, guard in hooks:
        with guard:
            hook(*about)
