"""What crosses between the generator and its processes: a share of the load, how far it is, what was done."""

from dataclasses import dataclass, field
from typing import Any

from corelane.plugins.lab.phases import Phases
from corelane.plugins.lab.plan import Plan
from corelane.plugins.lab.schema import AnswerCheck
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.workload import Questions

#: A process tells how far it is this often, in seconds.
TICK_S = 0.25

#: The fields of ``Request`` that a row begins with, in order; the time when it was begun follows.
ROW = (
    *("number", "process", "phase", "outcome", "intended_s", "sent_s", "accepted_s", "first_s", "ended_s"),
    *("items", "tokens", "job", "retries", "error", "detail", "lost", "twice", "wrong"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """The share of one process."""

    target: Target
    questions: Questions
    plan: Plan
    phases: Phases
    place: int
    processes: int
    #: Its measured part ends when it is told to stop, whatever is due later.
    is_endless: bool = False

    @property
    def loops(self) -> int:
        """The loops of a closed loop that are this process'."""
        return self.share(self.plan.load.concurrency or 0)

    def share(self, total: int) -> int:
        """Return this process' part of a number."""
        return total // self.processes + (self.place < total % self.processes)


@dataclass(slots=True)
class Tick:
    """How far a process is. ``is_over``: all of its measured requests have been sent and have ended."""

    sent: int = 0
    ended: int = 0
    ok: int = 0
    refused: int = 0
    failed: int = 0
    late_s: float = 0.0
    is_over: bool = False
    latencies: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """What a process did: requests as rows of ``ROW``, its CPU time in the measured part, the check of answers, and how
    many requests waited for a place.
    """

    rows: list[tuple[Any, ...]]
    cpu_s: float
    answers: AnswerCheck
    held: int
