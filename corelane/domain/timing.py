"""The parts of a job's time: what its processes measured, and what callers see. Pure.

Redis notes when a job was created, first claimed and ended. Each core adds what it spent, by its own clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field


class JobTiming(BaseModel):
    """The parts of a final job's time, in seconds. From `submit_s` to `other_s` the parts sum to `wall_s`."""

    wall_s: float = Field(description="From the arrival of the request to the end of the job.")
    submit_s: float = Field(description="Reading, checking and keeping the request.")
    wait_s: float = Field(description="Waiting: before the first claim, for other work of its cores, for a new core.")
    tokenize_s: float = Field(description="Its cores read its texts into tokens.")
    compute_s: float = Field(description="The model ran on batches with its windows.")
    merge_s: float = Field(description="Results were made of the logits and put together.")
    commit_s: float = Field(description="Trips to Redis that fetched its items and kept its results.")
    other_s: float = Field(description="What of the time is none of these.")
    deliver_s: float | None = Field(None, description="From its end until its webhook `job.completed` was delivered.")
    cores: int = Field(description="Cores that worked on it.")
    core_s: float = Field(description="Core seconds that it used: its share, by tokens, of batches that it shared.")


@dataclass(frozen=True, slots=True)
class Spent:
    """The time that cores spent on a job while they held it, in seconds, summed over cores.

    ``held_s`` is the whole time; ``waited_s`` is the part in which they worked on other jobs.
    """

    held_s: float = 0.0
    waited_s: float = 0.0
    tokenize_s: float = 0.0
    compute_s: float = 0.0
    merge_s: float = 0.0
    commit_s: float = 0.0
    core_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The measured times of a final job, in seconds; ``claimed_s`` and ``ended_s`` count from its creation.

    ``claimed_s`` is None if no core ever claimed it. ``last_trip_s`` is the part of the trips to Redis that no core can
    measure: the reply to the claim, and the way of the last results.
    """

    submit_s: float
    claimed_s: float | None
    ended_s: float
    last_trip_s: float = 0.0
    spent: Spent = Spent()
    cores: Sequence[str] = ()
    deliver_s: float | None = None

    def shown(self) -> dict[str, Any]:
        """Return the parts of the wall time, as the fields of a ``JobTiming``.

        If cores worked side by side, their times add up to more than passed: then all parts are scaled down. Time
        after the first claim in which no core held the job counts as waiting.
        """
        spent, claimed_s = self.spent, self.ended_s if self.claimed_s is None else self.claimed_s
        had_s = max(0.0, self.ended_s - claimed_s - self.last_trip_s)
        worked_s = spent.waited_s + spent.tokenize_s + spent.compute_s + spent.merge_s + spent.commit_s
        held_s = max(spent.held_s, worked_s)
        scale = min(1.0, had_s / held_s) if held_s else 1.0
        unheld_s = had_s - scale * held_s
        parts = {
            "submit_s": self.submit_s,
            "wait_s": claimed_s + unheld_s + scale * spent.waited_s,
            "tokenize_s": scale * spent.tokenize_s,
            "compute_s": scale * spent.compute_s,
            "merge_s": scale * spent.merge_s,
            "commit_s": scale * spent.commit_s + self.last_trip_s,
        }
        wall_s = self.submit_s + self.ended_s
        rounded = {name: round(seconds, 6) for name, seconds in parts.items()}
        return {
            "wall_s": round(wall_s, 6),
            **rounded,
            "other_s": round(max(0.0, wall_s - sum(rounded.values())), 6),
            "deliver_s": self.deliver_s,
            "cores": len(self.cores),
            "core_s": round(spent.core_s, 6),
        }
