"""The server-side split of a bench run: two readings of the metrics, and what lies between them."""

import pytest
from pytest_httpserver import HTTPServer

from corelane.errors import ServiceError, ServiceUnreachable
from corelane.metrics import definitions as m
from corelane.metrics.exposition import MetricSample, render
from corelane.metrics.series import Histogram, Series
from corelane.plugins.lab.split import Snapshot, SplitWatch, parse_metrics, snapshot, split, spread_of
from tests.conftest import free_port


def histogram(metric: m.Metric, *values: float) -> Histogram:
    """Return a histogram of these values."""
    bounds = metric.buckets
    counts = [0.0] * (len(bounds) + 1)
    for value in values:
        counts[sum(value > bound for bound in bounds)] += 1
    return Histogram(bounds, tuple(counts), sum(values))


def reading(
    at_s: float,
    *,
    compute: dict[str, list[float]] | None = None,
    tokens: float = 0,
    padding: float = 0,
    cores: dict[str, dict[str, float]] | None = None,
    busy: dict[str, float] | None = None,
) -> Snapshot:
    """Return a reading as a service with these figures would show it."""
    series = Series(
        {m.TOKENS: {("a@1",): tokens}, m.PADDING_TOKENS: {("a@1", "4x64"): padding / 2, ("a@1", "1x64"): padding / 2}},
        {m.COMPUTE_S: {(version,): histogram(m.COMPUTE_S, *each) for version, each in (compute or {}).items()}},
    )
    samples = [
        MetricSample(m.CORE_S if name == "core_s" else m.CORE_WORK[name], value, (core,))
        for core, values in (cores or {}).items()
        for name, value in values.items()
    ]
    samples += [MetricSample(m.CORE_BUSY, share, (core,)) for core, share in (busy or {}).items()]
    return parse_metrics(render(series, samples).decode(), at_s)


def test_split_is_what_lies_between_two_readings_of_all_versions_and_cores() -> None:
    core = {"items": 10, "core_s": 5.0}
    before = reading(100.0, compute={"a@1": [0.02] * 5}, tokens=1000, padding=100, cores={"h/0": core})
    later = {"items": 30, "core_s": 12.5}
    after = reading(
        110.0,
        compute={"a@1": [0.02] * 5 + [0.004] * 6, "b@1": [0.2] * 4},
        tokens=4000,
        padding=1100,
        cores={"h/0": later, "h/1": {"items": 7, "core_s": 1.0}},
    )
    found = split(before, after)
    assert found.compute is not None
    assert found.compute.count == 10
    assert found.compute.mean == pytest.approx((6 * 0.004 + 4 * 0.2) / 10)
    assert 0.0025 < found.compute.p50 <= 0.005
    assert found.compute.max == 0.25
    assert found.tokens_per_s == 300
    assert found.padding_share == 0.25
    assert found.core_items == {"h/0": 20, "h/1": 7}
    assert found.core_busy == {"h/0": 0.75, "h/1": 0.1}
    assert found.wait is None
    assert found.seconds == 10


def test_sums_that_began_at_zero_in_between_are_new() -> None:
    before = reading(0.0, compute={"a@1": [0.02] * 9}, cores={"h/0": {"items": 100, "core_s": 50.0}})
    after = reading(10.0, compute={"a@1": [0.02] * 2}, cores={"h/0": {"items": 8, "core_s": 4.0}})
    found = split(before, after)
    assert found.compute is not None
    assert found.compute.count == 2
    assert found.core_items == {"h/0": 8}
    assert found.core_busy == {"h/0": 0.4}


def test_values_above_all_buckets_count_as_the_last_bound() -> None:
    spread = spread_of(histogram(m.COMPUTE_S, 0.001, 99.0))
    assert spread is not None
    assert spread.max == 30.0
    assert spread.p99 == 30.0
    assert spread.mean == pytest.approx(49.5005)


def test_labels_with_quotes_and_backslashes_are_read() -> None:
    found = parse_metrics('corelane_core_up{core="a\\"b\\\\c\\nd/0"} 1.0\n# HELP x y\n', 0.0)
    assert found.by_label("corelane_core_up", "core") == {'a"b\\c\nd/0': 1.0}
    with pytest.raises(ServiceUnreachable, match="cannot be read"):
        parse_metrics("<html>\n", 0.0)


def test_service_that_refuses_or_is_away_has_no_split_and_a_reason(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/metrics").respond_with_json({"detail": "give a key", "code": "unauthorized"}, 401)
    with pytest.raises(ServiceError, match="give a key"):
        snapshot(httpserver.url_for(""))
    with pytest.raises(ServiceUnreachable):
        snapshot(f"http://127.0.0.1:{free_port()}")
    watch = SplitWatch(httpserver.url_for(""))
    watch.on_phase("measured")
    watch.on_phase("tail")
    assert watch.result() is None
    assert watch.problem == "give a key"


def test_watch_reads_at_both_ends_of_the_measured_part_and_again_once_all_is_counted(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.plugins.lab.split.FLUSHED_S", 0.0)
    for items in (10, 30, 40):
        text = f'corelane_core_items_total{{core="h/0"}} {items}\n'
        httpserver.expect_ordered_request("/metrics").respond_with_data(text)
    watch = SplitWatch(httpserver.url_for(""))
    for phase in ("warmup", "measured", "tail"):
        watch.on_phase(phase)
    under_load = watch.result()
    assert under_load is not None
    assert under_load.core_items == {"h/0": 20}
    whole = watch.result(is_over=True)
    assert whole is not None
    assert whole.core_items == {"h/0": 30}
    assert whole.seconds == under_load.seconds
