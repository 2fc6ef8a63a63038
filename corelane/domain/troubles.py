"""Health issues that an operator should see to, in sentences. Pure: each rule is given what was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Redis is near its limit from this part of it on, and full from the second one: a job needs some memory at once.
NEARLY_FULL, FULL = 0.85, 0.99

#: So large a part of the items of the last minute may fail, if they are more than this many: a faulty request is not a
#: burst of failures.
FAILING, LEAST_FAILED = 0.05, 5

#: A loop that goes round every few seconds stands still after this time, in seconds.
STOOD_STILL_S = 60

#: States in which a core serves nothing and will not by itself, with what they mean.
CORE_TROUBLES = {
    "out_of_service": "is broken and takes no more work",
    "failed": "could load no model",
    "waiting": "waits for its device",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong, and what to do."""

    part: str
    text: str


@dataclass(frozen=True, slots=True)
class CoreSigns:
    """A core's state, ``lost`` if its heartbeat stopped, its reasons, and how long it has been silent."""

    name: str
    state: str
    reasons: Sequence[str]
    silent_s: float
    #: The versions that it could not load, each with the reason.
    failed: Sequence[tuple[str, str]] = ()


def core_troubles(cores: Sequence[CoreSigns]) -> list[Trouble]:
    """Judge cores by their states, and by the models that they could not load."""
    found = []
    is_alone = all(core.state == "lost" for core in cores)
    heirs = "its work waits, as no other core lives" if is_alone else "its work went to other cores"
    for core in cores:
        why = f": {'; '.join(core.reasons)}" if core.reasons else ""
        if core.state == "lost":
            text = f"was lost {core.silent_s:,.0f} s ago; {heirs}; start its worker again"
            found.append(Trouble(core.name, text))
        elif core.state in CORE_TROUBLES:
            found.append(Trouble(core.name, CORE_TROUBLES[core.state] + why))
        else:
            found += [Trouble(core.name, f"could not load {version}: {reason}") for version, reason in core.failed]
    return found


def keeper_troubles(ages_s: Mapping[str, float], cores_s: float) -> list[Trouble]:
    """Judge the keeper by how long ago each of its loops went round; ``cores_s`` is for how long there are cores.

    It may start after the cores. One that no longer sweeps is overdue, and so is work that it leaves.
    """
    if "sweeps" not in ages_s:
        if cores_s < STOOD_STILL_S:
            return []
        return [Trouble("keeper", "has never run, so lost work is not returned; start `corelane keeper`")]
    if ages_s["sweeps"] < STOOD_STILL_S < ages_s.get("history", 0):
        return [Trouble("keeper", f"took no point of the history for {ages_s['history']:,.0f} s; see its log")]
    return []


def overdue_troubles(overdue: Mapping[str, float], carriers: Mapping[str, str]) -> list[Trouble]:
    """Judge work that no process works on, by the seconds it has waited; ``carriers`` name the command for each."""
    return [
        Trouble(what, f"waited {waited_s:,.0f} s although it could go on; check that {carriers[what]} runs")
        for what, waited_s in overdue.items()
    ]


def failure_troubles(by_version: Mapping[str, tuple[int, int]]) -> list[Trouble]:
    """Judge the items of the last minute: how many of each version failed, of how many that were answered."""
    return [
        Trouble(
            version,
            f"{failed:,} of {answered:,} items of the last minute failed; GET /v1/failed-items and the console's page "
            "of failed items say why",
        )
        for version, (failed, answered) in by_version.items()
        if failed > LEAST_FAILED and failed > FAILING * answered
    ]


def delivery_troubles(dead: int, resting: Sequence[tuple[str, float]]) -> list[Trouble]:
    """Judge webhooks that were given up, and hosts that are left alone, each with the seconds until it is tried."""
    found = []
    if dead:
        found.append(Trouble("webhooks", f"{_count(dead, 'webhook')} given up; redeliver or wait until forgotten"))
    found += [
        Trouble(
            "webhooks",
            f"{host} fails and is tried again {f'in {rest_s:,.0f} s' if rest_s >= 1 else 'now'}; see what it answered "
            "under the job's deliveries, and redeliver once it is well",
        )
        for host, rest_s in resting
    ]
    return found


#: Why nothing goes on though every process runs.
DISK_FULL = (
    "cannot write to its disk, and refuses all work until it can: free space where its data lies (df -h), and it goes "
    "on by itself; nothing that was accepted is lost"
)


def redis_troubles(used_bytes: int, limit_bytes: int, *, can_write: bool) -> list[Trouble]:
    """Judge the disk and the memory of Redis; a memory without a limit (0) is never full."""
    found = [] if can_write else [Trouble("redis", DISK_FULL)]
    if limit_bytes and used_bytes >= NEARLY_FULL * limit_bytes:
        share = used_bytes / limit_bytes
        becomes = "new jobs are refused" if share >= FULL else "when it is full, jobs are refused"
        found.append(
            Trouble("redis", f"uses {share:.0%} of its memory; {becomes}: delete final jobs, or raise its maxmemory")
        )
    return found


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
