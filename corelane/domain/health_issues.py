"""Health issues that an operator should fix, in sentences. Pure: each rule is given what was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from corelane.metrics.conditions import ITEMS_FAIL, LEAST_ITEMS_FAIL, LOOP_STANDS, MEMORY_SHARE, REDIS_MEMORY

#: States in which a core does not serve and will not recover by itself, with their meaning.
CORE_ISSUES = {
    "out_of_service": "is broken and takes no more work",
    "failed": "could load no model",
    "waiting": "waits for its device",
}


@dataclass(frozen=True, slots=True)
class HealthIssue:
    """Something that an operator should see to."""

    part: Annotated[str, Field(description="What it is about: a part of the service, a core or a version.")]
    text: Annotated[str, Field(description="What is wrong, and what to do.")]


@dataclass(frozen=True, slots=True)
class CoreSigns:
    """A core's state (``lost`` if its heartbeat stopped), the reasons, and how long it has been silent."""

    name: str
    state: str
    reasons: Sequence[str]
    silent_s: float
    #: The versions that it could not load, each with the reason.
    failed: Sequence[tuple[str, str]] = ()


def core_issues(cores: Sequence[CoreSigns]) -> list[HealthIssue]:
    """Judge cores by their states, and by the models that they could not load."""
    found = []
    is_alone = all(core.state == "lost" for core in cores)
    heirs = "its work waits, as no other core lives" if is_alone else "its work went to other cores"
    for core in cores:
        why = f": {'; '.join(core.reasons)}" if core.reasons else ""
        if core.state == "lost":
            text = f"was lost {core.silent_s:,.0f} s ago; {heirs}; start its worker again"
            found.append(HealthIssue(core.name, text))
        elif core.state in CORE_ISSUES:
            found.append(HealthIssue(core.name, CORE_ISSUES[core.state] + why))
        else:
            found += [HealthIssue(core.name, f"could not load {version}: {reason}") for version, reason in core.failed]
    return found


def keeper_issues(ages_s: Mapping[str, float], cores_s: float) -> list[HealthIssue]:
    """Judge whether a keeper has ever run. It may start after the cores, which have existed for ``cores_s``."""
    if "sweeps" in ages_s or not LOOP_STANDS.holds(cores_s):
        return []
    return [HealthIssue("keeper", "has never run, so lost work is not returned; start `corelane keeper`")]


def overdue_issues(overdue: Mapping[str, float], carriers: Mapping[str, str]) -> list[HealthIssue]:
    """Judge work that is not being done, by the seconds it has waited; ``carriers`` name the command for each."""
    return [
        HealthIssue(what, f"waited {waited_s:,.0f} s although it could go on; check that {carriers[what]} runs")
        for what, waited_s in overdue.items()
    ]


def failure_issues(by_version: Mapping[str, tuple[int, int]]) -> list[HealthIssue]:
    """Judge the last minute by version: the failed items, and all answered ones."""
    return [
        HealthIssue(
            version,
            f"{failed:,} of {answered:,} items of the last minute failed; `GET /v1/jobs?failed_items=true` lists their "
            "jobs with the codes",
        )
        for version, (failed, answered) in by_version.items()
        if LEAST_ITEMS_FAIL.holds(failed) and ITEMS_FAIL.holds(failed / answered)
    ]


def delivery_issues(dead: int, resting: Sequence[tuple[str, float]]) -> list[HealthIssue]:
    """Judge webhooks that were given up, and hosts that rest, each with the seconds until it is tried again."""
    found = []
    if dead:
        webhooks = f"{dead:,} webhook" + ("" if dead == 1 else "s")
        found.append(HealthIssue("webhooks", f"{webhooks} given up; redeliver or wait until forgotten"))
    found += [
        HealthIssue(
            "webhooks",
            f"{host} fails and is tried again {f'in {rest_s:,.0f} s' if rest_s >= 1 else 'now'}; see what it answered "
            "under the job's deliveries, and redeliver once it is well",
        )
        for host, rest_s in resting
    ]
    return found


#: Why no work is done although every process runs.
DISK_FULL = (
    "cannot write to its disk, and refuses all work until it can: free space where its data lies (df -h), and it goes "
    "on by itself; nothing that was accepted is lost"
)


def redis_issues(used_bytes: int, limit_bytes: int, reserved_bytes: int, *, can_write: bool) -> list[HealthIssue]:
    """Judge the disk and the memory of Redis; a memory without a limit (0) is never full."""
    found = [] if can_write else [HealthIssue("redis", DISK_FULL)]
    if limit_bytes and REDIS_MEMORY.holds(share := (used_bytes + reserved_bytes) / limit_bytes):
        said = f"uses {used_bytes / limit_bytes:.0%} of its memory"
        if reserved_bytes > 0.01 * limit_bytes:
            said += f", and results of accepted items will take {reserved_bytes / limit_bytes:.0%}"
        when = "" if round(share, 2) >= MEMORY_SHARE else f"from {MEMORY_SHARE:.0%} on "
        said += f"; {when}new jobs are refused, accepted ones are finished: delete final jobs, or raise its maxmemory"
        found.append(HealthIssue("redis", said))
    return found
