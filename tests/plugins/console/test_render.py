"""How the console writes numbers, times and sentences; everything is escaped."""

from corelane.domain.overview import DoneInfo, ForecastInfo, LatencyInfo, Overview, Sign
from corelane.plugins.console.pages.render import duration, fragment, number, percent, prose, size


def test_times_read_well() -> None:
    assert [duration(each) for each in (None, 0, 0.0123, 0.9999)] == ["–", "0 ms", "12 ms", "1.0 s"]
    assert [duration(each) for each in (59, 90, 3600, 12_000, 200_000)] == ["59 s", "2 min", "1 h", "3 h 20 min", "2 d"]


def test_numbers_read_well() -> None:
    assert [number(each) for each in (84_210, 3.44, 0.256, 12.0, 1234.5)] == ["84,210", "3.4", "0.26", "12", "1,234"]
    assert [percent(each) for each in (None, 0, 0.994, 0.5, 1, 0.004)] == [
        "–",
        "0 %",
        "99.4 %",
        "50 %",
        "100 %",
        "0.4 %",
    ]
    assert [size(each) for each in (None, 812, 4.5 * 1024**2, 300 * 1024**3)] == ["–", "812 B", "4.5 MiB", "300 GiB"]


def test_code_in_a_sentence_is_code_and_markup_is_text() -> None:
    assert prose("start `corelane keeper`, not <b>`<i>`</b>") == (
        "start <code>corelane keeper</code>, not &lt;b&gt;<code>&lt;i&gt;</code>&lt;/b&gt;"
    )


def test_problem_with_markup_stays_text() -> None:
    html = fragment(
        "problem_part.html", title="Not Found", code="x", detail="no <script>alert(1)</script>", request_id=""
    )
    assert "<script" not in html
    assert "No &lt;script&gt;" in html


def test_time_of_a_job_is_said_to_be_the_last_minute_s_beside_jobs_that_ended_before() -> None:
    hour = {"last_hour": {"items": 760, "jobs": 760}}
    seen = Overview(at="", forecast=ForecastInfo(sign=Sign.IDLE, text=""), done=DoneInfo.model_validate(hour))
    html = fragment("overview/facts.html", seen=seen)
    assert "items in 760 jobs" in html
    assert "no job ended in the last minute" in html
    seen.latency = LatencyInfo(p50_s=0.02, p95_s=0.05)
    assert "median; 95 in 100 within 50 ms" in fragment("overview/facts.html", seen=seen)
