"""What an operator should see to, in sentences. Pure: each rule is given what was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Redis is near its limit from this part of it on.
NEARLY_FULL = 0.85

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


def core_troubles(cores: Sequence[CoreSigns]) -> list[Trouble]:
    """Judge cores by their states."""
    found = []
    for core in cores:
        why = f": {'; '.join(core.reasons)}" if core.reasons else ""
        if core.state == "lost":
            text = f"was lost {core.silent_s:,.0f} s ago; its work went to other cores; start its worker again"
            found.append(Trouble(core.name, text))
        elif core.state in CORE_TROUBLES:
            found.append(Trouble(core.name, CORE_TROUBLES[core.state] + why))
    return found


def keeper_troubles(ages_s: Mapping[str, float]) -> list[Trouble]:
    """Judge the keeper by how long ago each of its loops went round.

    One that no longer sweeps is overdue, and so is work that it leaves.
    """
    if "sweeps" not in ages_s:
        return [Trouble("keeper", "has never run, so lost work is not returned; start `corelane keeper`")]
    if ages_s["sweeps"] < STOOD_STILL_S < ages_s.get("history", 0):
        return [Trouble("keeper", f"took no point of the history for {ages_s['history']:,.0f} s; see its log")]
    return []


def overdue_troubles(overdue: Mapping[str, float], carriers: Mapping[str, str]) -> list[Trouble]:
    """Judge work that nobody carries on, by the seconds it has waited; ``carriers`` name the command for each."""
    return [
        Trouble(what, f"waited {waited_s:,.0f} s although it could go on; check that {carriers[what]} runs")
        for what, waited_s in overdue.items()
    ]


def delivery_troubles(dead: int, open_circuits: int) -> list[Trouble]:
    """Judge webhooks that were given up, and hosts that are left alone."""
    found = []
    if dead:
        found.append(Trouble("webhooks", f"{_count(dead, 'webhook')} given up; redeliver or wait until forgotten"))
    if open_circuits:
        found.append(
            Trouble("webhooks", f"{_count(open_circuits, 'host')} left alone after failures; tried again later")
        )
    return found


def memory_troubles(used_bytes: int, limit_bytes: int) -> list[Trouble]:
    """Judge the memory of Redis; without a limit (0) there is nothing to judge."""
    if not limit_bytes or used_bytes < NEARLY_FULL * limit_bytes:
        return []
    share = used_bytes / limit_bytes
    return [Trouble("redis", f"uses {share:.0%} of its memory; when it is full, jobs are refused")]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
