"""The table of conditions: what can be wrong, from which value on, and what to do about it. Pure.

`GET /v1/overview`, the console, `corelane top` and `corelane doctor` show the sentences of this table
(``corelane.store.health_issues`` judges). The alerts in ``deploy/monitoring/rules`` have its names and bounds.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, slots=True)
class HealthIssue:
    """Something that an operator should see to."""

    part: Annotated[str, Field(description="What it is about: a part of the service, a core or a version.")]
    text: Annotated[str, Field(description="What is wrong, and what to do.")]
    alert: Annotated[str, Field(description="The alert of this condition; empty if there is none.")] = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: the alert for it, its sentence, and the bound above which something is wrong."""

    alert: str
    text: str
    bound: float = 0.0

    def holds(self, value: float) -> bool:
        """Return whether the value is above the bound."""
        return value > self.bound

    def issue(self, part: str, **words: object) -> HealthIssue:
        """Return the issue about a part; ``words`` fill the sentence."""
        return HealthIssue(part, self.text.format(**words), self.alert)


#: Once this share of its memory limit is taken, Redis has no room for new jobs: accepted jobs finish in the rest.
MEMORY_SHARE = 0.9

#: Fewer failed items in a minute are no burst of failures: a few faulty requests make as many.
LEAST_FAILED = 5

#: Why no work is done although every process runs.
DISK_FULL = (
    "cannot write to its disk, and refuses all work until it can: free space where its data lies (df -h), and it goes "
    "on by itself; nothing that was accepted is lost"
)

REDIS_DISK = Condition("CorelaneRedisDisk", DISK_FULL)

#: Share of its memory limit that Redis uses and that results will take. A job needs some memory at once.
REDIS_MEMORY = Condition(
    "CorelaneRedisMemory",
    "uses {used:.0%} of its memory{results}; {refused}, accepted ones are finished: delete final jobs, or raise its "
    "maxmemory",
    0.8,
)

CORE_LOST = Condition("CorelaneCoreLost", "was lost {silent_s:,.0f} s ago; {heirs}; start its worker again")
CORE_OUT = Condition("CorelaneCoreOutOfService", "is broken and takes no more work{why}")
CORE_HELD = Condition("CorelaneCoreHeld", "waits for its device{why}")
CORE_EMPTY = Condition("CorelaneModelFails", "could load no model{why}")
MODEL_FAILS = Condition("CorelaneModelFails", "could not load {version}: {reason}")
NOT_HELD = Condition("CorelaneVersionNotHeld", "{reason}")
PAUSED = Condition("CorelanePaused", "{words}")

#: Share of the items of a version that failed.
ITEMS_FAIL = Condition(
    "CorelaneItemsFail",
    "{failed:,} of {ended:,} items of the last minute failed; `GET /v1/jobs?failed_items=true` lists their jobs with "
    "the codes",
    0.05,
)

#: Seconds that work has waited although it could go on. After a fault everything resumes within 15 seconds.
WORK_OVERDUE = Condition(
    "CorelaneWorkOverdue", "waited {waited_s:,.0f} s although it could go on; check that {carrier} runs", 30
)

#: Seconds since the last round of a loop that usually takes a few seconds per round.
LOOP_STANDS = Condition("CorelaneLoopStands", "{told}", 60)

DEAD_LETTERS = Condition("CorelaneDeadLetters", "{webhooks} given up; redeliver or wait until forgotten")
CIRCUIT_OPEN = Condition(
    "CorelaneCircuitOpen",
    "{host} fails and is tried again {when}; see what it answered under the job's deliveries, and redeliver once it is "
    "well",
)

#: The condition of a core by its state, if it does not serve and will not recover by itself.
CORE_STATES = {"out_of_service": CORE_OUT, "failed": CORE_EMPTY, "waiting": CORE_HELD}
