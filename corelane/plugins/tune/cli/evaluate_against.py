"""``corelane eval --against``: the gate. Two versions answer the same questions; exit code 1 if a limit is passed."""

from rich.console import Console
from rich.table import Table

from corelane.plugins.tune.comparison import GateReport, ScoreDifference
from corelane.plugins.tune.evaluation import Metrics

#: Questions whose answers changed, shown at most.
SHOWN_CHANGES = 5


def show_comparison(report: GateReport) -> None:
    """Print both versions side by side, then every limit."""
    console, found = Console(highlight=False), report.comparison
    table = Table(title=f"{report.new} against {report.old}", title_justify="left")
    for heading in ("", "new", "old", "difference", "95 % interval"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("EM", f"{found.new.exact:.2f}", f"{found.old.exact:.2f}", *_difference(found.exact))
    table.add_row("F1", f"{found.new.f1:.2f}", f"{found.old.f1:.2f}", *_difference(found.f1))
    for row in _rows(found.new, found.old):
        table.add_row(*row)
    console.print(table)
    console.print(
        f"same answer {found.agreement:.2%} · score drift {found.score_drift:.3f} · "
        f"mean score {found.mean_score_shift:+.3f} · {found.new.questions:,} questions"
    )
    for each in report.checks:
        sign = "[green]✓[/]" if each.holds else "[red]✗[/]"
        bound = "at least" if each.name == "agreement" else "at most"
        console.print(f"{sign} {each.name}: {each.figure:.3g} ({bound} {each.limit:.3g})")
    for change in report.changed[:SHOWN_CHANGES]:
        # A question's text is never read as markup.
        text = f"{change['change']}: {change['question']} · new {change['new']!r} · old {change['old']!r}"
        console.print(text, markup=False, soft_wrap=True)


def _rows(new: Metrics, old: Metrics) -> list[tuple[str, str, str]]:
    rows = [("F1, answerable", new.answerable_f1, old.answerable_f1)]
    rows.append(("no answer right", new.no_answer_accuracy, old.no_answer_accuracy))
    for a, b in zip(new.operating_points, old.operating_points, strict=True):
        rows.append((f"F1 at {a.no_answer_accuracy:.0%} no answer", a.f1, b.f1))
    shown = [(name, f"{a:.2f}", f"{b:.2f}") for name, a, b in rows if a is not None and b is not None]
    return [*shown, ("ECE", f"{new.ece:.3f}", f"{old.ece:.3f}"), ("failed", f"{new.failed:,}", f"{old.failed:,}")]


def _difference(found: ScoreDifference) -> tuple[str, str]:
    return f"{found.by:+.2f}", f"{found.low:+.2f} to {found.high:+.2f}"
