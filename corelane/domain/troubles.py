"""What an operator should see to, in sentences. Pure: each rule is given what was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Redis is near its limit from this part of it on.
NEARLY_FULL = 0.85

#: States of a core in which it serves nothing, with what they mean.
CORE_TROUBLES = {
    "lost": "its heartbeat stopped; see the log of its worker, and start it again if nothing else does",
    "out_of_service": "it is broken and takes no more work",
    "failed": "it could load no model",
    "waiting": "it waits for its device",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong, and what to do."""

    part: str
    text: str


def core_troubles(states: Mapping[str, tuple[str, Sequence[str]]]) -> list[Trouble]:
    """Judge cores by their states and reasons."""
    found = []
    for core, (state, reasons) in states.items():
        if state in CORE_TROUBLES:
            found.append(
                Trouble(
                    core, ": ".join((CORE_TROUBLES[state], "; ".join(reasons))) if reasons else CORE_TROUBLES[state]
                )
            )
    return found


def overdue_troubles(overdue: Mapping[str, float], carriers: Mapping[str, str]) -> list[Trouble]:
    """Judge work that nobody carries on, by the seconds it has waited; ``carriers`` name the command for each."""
    return [
        Trouble(what, f"waits for {waited_s:,.0f} s although it could go on; check that {carriers[what]} runs")
        for what, waited_s in overdue.items()
    ]


def delivery_troubles(dead: int, open_circuits: int) -> list[Trouble]:
    """Judge webhooks that were given up, and hosts that are left alone."""
    found = []
    if dead:
        found.append(Trouble("webhooks", f"{dead:,} given up; `corelane webhooks dead` lists them"))
    if open_circuits:
        found.append(Trouble("webhooks", f"{open_circuits:,} hosts fail; their webhooks wait and are tried again"))
    return found


def memory_troubles(used_bytes: int, limit_bytes: int) -> list[Trouble]:
    """Judge the memory of Redis; without a limit (0) there is nothing to judge."""
    if not limit_bytes or used_bytes < NEARLY_FULL * limit_bytes:
        return []
    share = used_bytes / limit_bytes
    return [Trouble("redis", f"{share:.0%} of its memory is used; when it is full, submits are refused")]
