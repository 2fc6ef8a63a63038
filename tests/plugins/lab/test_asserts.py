import pytest

from corelane.errors import InvalidInput
from corelane.plugins.lab.asserts import PATHS, check, parse_assertion, value_of
from corelane.plugins.lab.schema import Report
from tests.plugins.lab.reports_for_tests import point_at, report_of


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of([point_at(20), point_at(45)])


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("p95<1s", True),
        ("p95 < 50ms", False),
        ("p95_sent<=500ms", True),
        ("goodput>0.9", True),
        ("goodput>=99.99%", False),
        ("items_per_s>=15", True),
        ("items_per_s>=40", False),
        ("lost==0", True),
        ("errors==0", False),
        ("wrong == 0", True),
        ("f1>79", True),
        ("exact>72%", False),
        ("lateness_p95<10ms", True),
        ("achieved>=98%", True),
        ("core_busy<90%", True),
        ("tokens_per_s>1000", True),
        ("first_p95<1s", True),
    ],
)
def test_assertion_holds_at_every_point_or_not(report: Report, text: str, holds: bool) -> None:
    found = check(report, parse_assertion(text))
    assert (found["text"], found["holds"]) == (text, holds)
    assert found["figure"] is not None


def test_broken_assertion_names_the_figure_and_the_point(report: Report) -> None:
    found = check(report, parse_assertion("items_per_s>=40"))
    assert found["point"] == "20/s poisson"
    assert found["figure"] == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p95", "write a figure"),
        ("p95=200ms", "write a figure"),
        ("p95<fast", "write a figure"),
        ("p59<200ms", "there is no figure 'p59'; there are p50"),
        ("p95<200", "needs a unit: ms or s"),
        ("lost==0ms", "has no unit 'ms'"),
        ("goodput>99", "write 99%"),
    ],
)
def test_mistyped_assertion_says_how_to_write_it(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        parse_assertion(text)


def test_figure_that_was_not_measured_does_not_hold() -> None:
    found = check(report_of([point_at(20, limit_s=None)]), parse_assertion("goodput>0"))
    assert (found["holds"], found["shown"]) == (False, "not measured")


def test_every_figure_is_read(report: Report) -> None:
    run = report.points[0].runs[0]
    assert {name for name in PATHS if value_of(run, name) is None} == set()
