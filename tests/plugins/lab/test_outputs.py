import csv
import io
import re
import sys
from base64 import b64encode
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from corelane.errors import SetupError
from corelane.plugins.lab.compare import compare
from corelane.plugins.lab.plots import closed_peak, comparable, plots_of, svg, write_pictures
from corelane.plugins.lab.render import COLUMNS, comparison, markdown, page, terminal, to_csv
from corelane.plugins.lab.schema import Load, Report
from corelane.plugins.lab.texts import share_text, time_text
from tests.plugins.lab.reports_for_tests import HOSTILE, beside_of, point_at, report_of, sweep_report

#: Elements without an end tag, in HTML and in what matplotlib writes.
VOID = {"meta", "img"}


class Outline(HTMLParser):
    """Elements that are left open or closed out of order, ids, and what is referred to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.refers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._attributes(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._attributes(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _attributes(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            text = value or ""
            if name == "id":
                self.ids.append(text)
            elif name in ("href", "src"):
                self.refers.append(text)
            assert not name.startswith("on")


@pytest.fixture(scope="module")
def report() -> Report:
    return sweep_report()


@pytest.fixture(scope="module")
def html(report: Report) -> str:
    return page(report)


def printed(renderable: object, *, width: int = 160) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(renderable)
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
    assert "<h1>" in page(empty)
    assert to_csv(empty) == "run\n"
    assert markdown(empty) == ""


def test_batch_beside_questions_alone_is_shown() -> None:
    report = report_of([], beside=beside_of())
    assert "load, ms" not in printed(terminal(report))
    assert [row["questions"] for row in csv.DictReader(io.StringIO(to_csv(report)))] == ["before", "beside", "after"]
    assert markdown(report).splitlines()[3] == (
        "| sweep | beside | 46.8 ms | 104 ms | 156 ms | 500 | 3,000 items in 48.6 s, 61.7 items/s |"
    )


def test_comparison_shows_verdicts() -> None:
    a, b = report_of([point_at(20)]), report_of([point_at(20, seed=5, slow=2)])
    text = printed(comparison(compare(a, b)))
    assert "real, worse" in text
    assert "a drift of 10% allowed for" in text


def test_csv_has_a_line_for_each_run_and_no_formula(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(report.model_copy(update={"name": "=1+1"})))))
    assert len(rows) == sum(len(point.runs) for point in report.points)
    assert rows[0]["run"] == "'=1+1"
    assert float(rows[0]["latency_p95_s"]) == report.points[0].runs[0].latency.p95  # type: ignore[union-attr]
    assert float(rows[0]["compute_mean_s"]) == 0.027


def test_markdown_has_a_row_for_each_point(report: Report) -> None:
    lines = markdown(report.model_copy(update={"name": "a|b<i>"})).splitlines()
    assert len(lines) == 2 + len(report.points)
    assert all(len(re.findall(r"(?<!\\)\|", line)) == len(COLUMNS) + 1 for line in lines)
    assert lines[2].startswith(r"| a\|b&lt;i> | 5/s poisson |")


def test_page_is_whole_and_asks_for_nothing(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert outline.open == []
    assert outline.tags.isdisjoint({"script", "link", "iframe", "object", "form", "base"})
    assert len(outline.ids) == len(set(outline.ids))
    assert all(each.startswith("data:image/svg+xml;base64,") for each in outline.refers)
    assert "default-src 'none'" in html
    assert "http" not in re.sub(r"<dl.*?</dl>|<td.*?</td>", "", html, flags=re.DOTALL).replace("http-equiv", "")


def test_page_escapes_what_others_wrote(html: str) -> None:
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "\x1b" not in html


@pytest.mark.parametrize(
    "words",
    [
        "Latency by load",
        "Throughput and goodput",
        "Distribution of latency",
        "Where the time went inside the service",
        "Second by second at",
        "A batch beside questions",
        "Published beside measured",
        "sha256:9a1f0c",
        "knee",
    ],
)
def test_page_has_its_parts(html: str, words: str) -> None:
    assert words in html


def test_page_of_an_invalid_run_says_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.plugins.lab.plots.plots_of", lambda _: [])
    html = page(report_of([point_at(20, late_s=0.1)]))
    assert html.index("This run proves nothing.") < html.index("Measured")
    assert '<span class="stamp bad">invalid</span>' in html


def test_page_has_the_rows_of_a_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.plugins.lab.plots.plots_of", lambda _: [])
    html = page(report_of([], extra={"rows": [{"cores": "1", "<b>": HOSTILE}, {"cores": "2"}], "table": "| a |"}))
    assert "The experiment" in html
    assert "&lt;b&gt;" in html
    assert "Details" not in html


def test_plots_are_the_same_each_time_and_stand_in_the_page(report: Report, html: str) -> None:
    plots = plots_of(report)
    assert [plot.name for plot in plots] == ["latency", "throughput", "distribution", "inside", "timeline", "beside"]
    assert all(b64encode(svg(plot)).decode() in html for plot in plots)


def test_pictures_are_png_files(report: Report, tmp_path: Path) -> None:
    one = report.model_copy(update={"points": report.points[:1], "beside": None})
    paths = write_pictures(one, tmp_path / "pictures")
    assert [path.name for path in paths] == ["distribution.png", "inside.png", "timeline.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_points_of_callers_do_not_share_an_axis_with_those_of_a_rate(report: Report) -> None:
    closed = report.points[0].model_copy(update={"name": "peak", "load": Load(kind="closed", concurrency=64)})
    assert [each.name for each in comparable([closed, *report.points])] == [each.name for each in report.points]
    assert comparable([closed]) == [closed]
    assert closed_peak([closed, *report.points]) == pytest.approx(5.5, rel=0.1)
    assert closed_peak([closed]) is None
    assert closed_peak(report.points) is None


@pytest.mark.parametrize("make", [page, plots_of])
def test_without_matplotlib_the_extra_is_named(
    report: Report, make: Callable[[Report], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SetupError, match=r"\[lab\]"):
        make(report)


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
