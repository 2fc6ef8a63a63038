"""Conditions: values above which something is wrong, each with the alert for it.

Alerts (``deploy/monitoring/rules``), the issues of ``GET /v1/overview`` and `corelane doctor` use the same bounds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """A bound of a value; above it something is wrong."""

    alert: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether the value is above the bound."""
        return value > self.bound


#: Share of its memory limit that Redis uses: a job needs some memory at once.
REDIS_MEMORY = Condition("CorelaneRedisMemory", 0.8)

#: From this share on, new jobs are refused: what was accepted is finished in the rest.
MEMORY_SHARE = 0.9

#: Share of items that fail, and the least number of them: a few faulty requests are not a burst of failures.
ITEMS_FAIL, LEAST_ITEMS_FAIL = Condition("CorelaneItemsFail", 0.05), Condition("CorelaneItemsFail", 5)

#: Seconds that work has waited although it could go on. After a fault everything resumes within 15 seconds.
WORK_OVERDUE = Condition("CorelaneWorkOverdue", 30)

#: Seconds since the last round of a loop that usually takes a few seconds per round.
LOOP_STANDS = Condition("CorelaneLoopStands", 60)

CONDITIONS = (REDIS_MEMORY, ITEMS_FAIL, LEAST_ITEMS_FAIL, WORK_OVERDUE, LOOP_STANDS)
