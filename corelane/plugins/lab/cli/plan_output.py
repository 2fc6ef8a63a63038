"""How a plan is shown: the types of host side by side, and what there is to say of the one chosen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from corelane.cli.output import make_table, print_table

if TYPE_CHECKING:
    from corelane.plugins.lab.planning.candidates import Candidate, NoCandidate
    from corelane.plugins.lab.planning.search import Demand, Edges


def show(
    console: Console, found: "Sequence[Candidate]", refused: "Sequence[NoCandidate]", about: Sequence[str]
) -> None:
    """Print the table, then what is to be known of the one that was chosen."""
    numbers = ("cores", "hosts", "p50 ms", "p95 ms", "of runs", "busy", "rows")
    table = make_table("host", *numbers, "an hour", "a million", "bound by", "", whole=("host",))
    for each in found:
        seen = each.outlook
        table.add_row(
            each.instance.name,
            f"{seen.cores:,}",
            f"{each.hosts:,}",
            _ms(seen.p50_s),
            _ms(seen.p95_s),
            f"{_ms(seen.low_s)}–{_ms(seen.high_s)}",
            f"{seen.busy:.0%}",
            f"{seen.batch_rows:.1f}",
            _money(each.per_hour),
            _money(each.per_million),
            each.binds,
            "guessed" if each.profile.guess else "",
        )
    print_table(table)
    for without in refused:
        console.print(f"{without.name}: {without.reason}", style="dim", markup=False)
    console.print()
    for line in about:
        console.print(line, markup=False, soft_wrap=True)


def describe(chosen: "Candidate", demand: "Demand", beside: "Edges") -> list[str]:
    """Return sentences on a candidate: the load, what is expected, where it breaks, and what was guessed."""
    seen = chosen.outlook
    goal = f"{demand.share:.0%} within {_ms(demand.objective_s)} ms"
    lines = [
        f"{demand.rate_per_s:,.4g} requests/s, {demand.items_per_s:,.4g} questions/s of "
        f"{demand.mix.tokens:,.0f} tokens in {demand.mix.windows:.2f} windows each; {goal} less {demand.margin:.0%}.",
        f"{_count(seen.cores, 'core')} of {_count(chosen.hosts, 'host')} {chosen.instance.name}: "
        f"p95 {_ms(seen.p95_s)} ms, {seen.met:.0%} of the simulated runs met it.",
    ]
    if beside.fewer is not None:
        lines.append(f"With {_count(beside.fewer.cores, 'core')} the p95 is {_ms(beside.fewer.p95_s)} ms.")
    lines.append(
        f"With {_count(beside.more.cores, 'core')} it is {_ms(beside.more.p95_s)} ms. "
        f"Above {beside.breaks_at_per_s:,.4g} requests/s {_count(seen.cores, 'core')} will not do."
    )
    if chosen.profile.guess:
        lines.append(f"A guess: {chosen.profile.guess}.")
    return lines


def plain(
    found: "Sequence[Candidate]", refused: "Sequence[NoCandidate]", demand: "Demand", about: Sequence[str]
) -> dict[str, Any]:
    """Return a plan as plain data."""
    return {
        "requests_per_s": demand.rate_per_s,
        "items_per_s": demand.items_per_s,
        "objective_s": demand.objective_s,
        "share": demand.share,
        "candidates": [
            {
                "instance": each.instance.name,
                "cores": each.outlook.cores,
                "hosts": each.hosts,
                "p50_s": each.outlook.p50_s,
                "p95_s": each.outlook.p95_s,
                "p99_s": each.outlook.p99_s,
                "runs_s": list(each.outlook.reached_s),
                "busy": each.outlook.busy,
                "batch_rows": each.outlook.batch_rows,
                "per_hour": each.per_hour,
                "per_million": each.per_million,
                "bound_by": each.binds,
                "guess": each.profile.guess,
            }
            for each in found
        ],
        "refused": {each.name: each.reason for each in refused},
        "about": list(about),
    }


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.4g}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
