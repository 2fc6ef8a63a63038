"""``corelane eval --against``: the gate. Two versions answer the same questions; exit code 1 if a limit is passed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from corelane.cli.output import error_console, print_line
from corelane.domain.jobs import Result
from corelane.domain.squad import Question
from corelane.errors import CorelaneError, InvalidInput
from corelane.plugins.tune.comparison import (
    Check,
    Comparison,
    Difference,
    Limits,
    Reading,
    VersionQuality,
    changed,
    check,
    compare,
    read,
)

#: Questions whose answers changed, shown at most.
SHOWN_CHANGES = 5

DEFAULTS = Limits()


def gate_limits(
    *,
    max_em_drop: Annotated[float, typer.Option(help="With --against: points of EM it may lose.")] = DEFAULTS.exact_drop,
    max_f1_drop: Annotated[float, typer.Option(help="With --against: points of F1 it may lose.")] = DEFAULTS.f1_drop,
    max_point_drop: Annotated[
        float, typer.Option(help="With --against: points of F1 it may lose at a fixed operating point.")
    ] = DEFAULTS.operating_drop,
    max_ece_rise: Annotated[
        float, typer.Option(help="With --against: rise of the calibration error that is allowed.")
    ] = DEFAULTS.ece_rise,
    min_agreement: Annotated[
        float, typer.Option(help="With --against: least share of questions with the same answer.")
    ] = DEFAULTS.agreement,
    max_score_drift: Annotated[
        float, typer.Option(help="With --against: most distance between the distributions of scores, from 0 to 1.")
    ] = DEFAULTS.score_drift,
) -> Limits:
    """Return the limits of the gate; raise InvalidInput for one that is no share."""
    if not (0 <= min_agreement <= 1 and 0 <= max_score_drift <= 1):
        raise InvalidInput("--min-agreement and --max-score-drift are shares between 0 and 1, as 0.95")
    return Limits(max_em_drop, max_f1_drop, max_point_drop, max_ece_rise, min_agreement, max_score_drift)


def gate(
    questions: Sequence[Question],
    new: tuple[str, Sequence[Result]],
    old: tuple[str, Sequence[Result]],
    limits: Limits,
    *,
    as_json: bool,
) -> None:
    """Print the comparison of two named versions; raise CorelaneError if a limit is passed."""
    sides = [[read(*pair) for pair in zip(questions, results, strict=True)] for _, results in (new, old)]
    found = compare(*sides)
    checks = check(found, limits)
    if as_json:
        print_line(report(new[0], old[0], found, checks, sides))
    else:
        show(new[0], old[0], found, checks, sides)
    if passed := [each for each in checks if not each.holds]:
        said = "; ".join(f"{each.name} {each.figure:.3g}, limit {each.limit:.3g}" for each in passed)
        raise CorelaneError(f"{new[0]} does not pass against {old[0]}: {said}")


def report(
    new: str, old: str, found: Comparison, checks: Sequence[Check], sides: Sequence[Sequence[Reading]]
) -> Mapping[str, Any]:
    """Return the comparison as plain data."""
    return {
        "new": new,
        "old": old,
        "passes": all(each.holds for each in checks),
        "checks": [asdict(each) for each in checks],
        "comparison": asdict(found),
        "changed": changed(sides[0], sides[1], len(sides[0])),
    }


def show(new: str, old: str, found: Comparison, checks: Sequence[Check], sides: Sequence[Sequence[Reading]]) -> None:
    """Print both versions side by side, then every limit."""
    console = Console(highlight=False)
    table = Table(title=f"{new} against {old}", title_justify="left")
    for heading in ("", "new", "old", "difference", "95 % interval"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("EM", f"{found.new.exact:.2f}", f"{found.old.exact:.2f}", *_spread(found.exact))
    table.add_row("F1", f"{found.new.f1:.2f}", f"{found.old.f1:.2f}", *_spread(found.f1))
    for name, a, b in _rows(found.new, found.old):
        table.add_row(name, a, b, "", "")
    console.print(table)
    console.print(
        f"same answer {found.agreement:.2%} · score drift {found.score_drift:.3f} · "
        f"mean score {found.mean_score_shift:+.3f} · {found.new.questions:,} questions"
    )
    for each in checks:
        sign = "[green]✓[/]" if each.holds else "[red]✗[/]"
        bound = "at least" if each.name == "agreement" else "at most"
        console.print(f"{sign} {each.name}: {each.figure:.3g} ({bound} {each.limit:.3g})")
    for change in changed(sides[0], sides[1], SHOWN_CHANGES):
        # A question's text is never read as markup.
        text = f"{change['change']}: {change['question']} · new {change['new']!r} · old {change['old']!r}"
        console.print(text, markup=False, soft_wrap=True)


def warn_if_same(new: str, old: str) -> None:
    """Say so where a version is compared with itself."""
    if new == old:
        error_console().print(f"both are {new}: this shows only how steady it is", style="yellow")


def _rows(new: VersionQuality, old: VersionQuality) -> list[tuple[str, str, str]]:
    rows = [("F1, answerable", f"{new.answerable_f1:.2f}", f"{old.answerable_f1:.2f}")]
    if new.no_answer_accuracy is not None and old.no_answer_accuracy is not None:
        rows.append(("no answer right", f"{new.no_answer_accuracy:.2f}", f"{old.no_answer_accuracy:.2f}"))
    for a, b in zip(new.operating_points, old.operating_points, strict=True):
        rows.append((f"F1 at {a.no_answer_accuracy:.0%} no answer", f"{a.f1:.2f}", f"{b.f1:.2f}"))
    return [*rows, ("ECE", f"{new.ece:.3f}", f"{old.ece:.3f}"), ("failed", f"{new.failed:,}", f"{old.failed:,}")]


def _spread(found: Difference) -> tuple[str, str]:
    return f"{found.by:+.2f}", f"{found.low:+.2f} to {found.high:+.2f}"
