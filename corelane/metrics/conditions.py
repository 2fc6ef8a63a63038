"""Conditions: the values from which on something is wrong, each with the alert that says so once it lasts.

Alerts (``deploy/monitoring/rules``), the issues of ``GET /v1/overview`` and `corelane doctor` have the same bounds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """A bound of a value; more is wrong."""

    alert: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether the value is above the bound."""
        return value > self.bound


#: Share of its memory limit that Redis uses: a job needs some memory at once.
REDIS_MEMORY = Condition("CorelaneRedisMemory", 0.8)

#: Share of items that fail, and how many of them at least: a faulty request is not a burst of failures.
ITEMS_FAIL, LEAST_ITEMS_FAIL = Condition("CorelaneItemsFail", 0.05), Condition("CorelaneItemsFail", 5)

#: Seconds that work has waited although it could go on: after a fault all that is promised takes 15.
WORK_OVERDUE = Condition("CorelaneWorkOverdue", 30)

#: Seconds since a loop that goes round every few seconds last did.
LOOP_STANDS = Condition("CorelaneLoopStands", 60)

CONDITIONS = (REDIS_MEMORY, ITEMS_FAIL, LEAST_ITEMS_FAIL, WORK_OVERDUE, LOOP_STANDS)
