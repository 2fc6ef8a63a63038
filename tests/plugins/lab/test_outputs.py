import csv
import io
import re

import pytest
from rich.console import Console

from corelane.plugins.lab.compare import compare
from corelane.plugins.lab.render import comparison, markdown, page, terminal, to_csv
from corelane.plugins.lab.schema import Report
from corelane.plugins.lab.texts import share_text, time_text
from tests.plugins.lab.reports_for_tests import HOSTILE, beside_of, point_at, report_of, sweep_report


@pytest.fixture(scope="module")
def report() -> Report:
    return sweep_report()


def printed(renderable: object) -> str:
    out = io.StringIO()
    Console(file=out, width=160, highlight=False, markup=False).print(renderable)
    return out.getvalue()


def test_table_shows_each_point_and_where_its_time_went(report: Report) -> None:
    text = printed(terminal(report))
    for point in report.points:
        assert len(re.findall(f"^{point.name} ", text, re.MULTILINE)) >= 2
    for words in ("achieved", "goodput", "compute", "padding", "4,800 checked, 0 lost", "knee", "holds"):
        assert words in text


def test_table_says_why_a_run_is_invalid() -> None:
    text = printed(terminal(report_of([point_at(20, late_s=0.1)])))
    assert "invalid: the generator was late" in text


def test_text_of_others_neither_controls_the_terminal_nor_is_markup(report: Report) -> None:
    text = printed(terminal(report))
    assert "\x1b" not in text
    assert "[red]" in text


def test_report_without_runs_or_figures_is_shown() -> None:
    empty = report_of([])
    assert "sweep" in printed(terminal(empty))
    assert to_csv(empty) == "run\n"
    assert markdown(empty) == ""


def test_batch_beside_questions_alone_is_shown() -> None:
    report = report_of([], beside=beside_of())
    assert "load, ms" not in printed(terminal(report))
    assert [row["p95"] for row in csv.DictReader(io.StringIO(to_csv(report)))] == ["0.072", "0.104", "0.074"]
    assert markdown(report).splitlines()[3] == "| beside | 46.8 ms | 104 ms | 156 ms | 260 ms | 500 |"


def test_comparison_shows_verdicts() -> None:
    a, b = report_of([point_at(20)]), report_of([point_at(20, seed=5, slow=2)])
    text = printed(comparison(compare(a, b)))
    assert "real, worse" in text
    assert "a drift of 10% allowed for" in text


def test_csv_has_a_line_for_each_run_and_no_formula(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(report.model_copy(update={"name": "=1+1"})))))
    assert len(rows) == sum(len(point.runs) for point in report.points)
    assert rows[0]["run"] == "'=1+1"
    assert float(rows[0]["p95_s"]) == report.points[0].runs[0].latency.p95  # type: ignore[union-attr]
    assert int(rows[0]["failed"]) == report.points[0].runs[0].failed


def test_markdown_has_a_row_for_each_point_and_no_markup(report: Report) -> None:
    points = [report.points[0].model_copy(update={"name": "a|b<i>"}), *report.points[1:]]
    lines = markdown(report.model_copy(update={"points": points})).splitlines()
    assert len(lines) == 2 + len(report.points)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {9}
    assert lines[2].startswith(r"| a\|b&lt;i> |")


def test_page_has_the_tables_escapes_what_others_wrote_and_asks_for_nothing(report: Report) -> None:
    html = page(report.model_copy(update={"extra": {"table": f"| a preset | {HOSTILE}"}}))
    for words in ("5/s poisson", "knee", "a preset"):
        assert words in html
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "\x1b" not in html
    assert not re.search(r"(src|href)=|url\(|@import", html)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (time_text(0.0012), "1.20 ms"),
        (time_text(0.0561), "56.1 ms"),
        (time_text(1.2), "1,200 ms"),
        (time_text(48.6), "48.6 s"),
        (time_text(None), "-"),
        (share_text(0.99999), "99.9%"),
        (share_text(1.0), "100%"),
        (share_text(0.5), "50.0%"),
    ],
)
def test_figures_as_text(text: str, expected: str) -> None:
    assert text == expected


def test_report_is_read_back_as_it_was_written(report: Report) -> None:
    assert Report.model_validate_json(report.model_dump_json(by_alias=True)) == report
    assert HOSTILE in report.command
