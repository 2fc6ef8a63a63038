"""The history: points made of sums, taken by one keeper at a time; and marks."""

from typing import Any

import pytest

from corelane.metrics.definitions import TOKENS
from corelane.metrics.series import parse
from corelane.plugins.console import keys
from corelane.plugins.console.history import (
    SAMPLES,
    SAMPLES_TTL_S,
    Growth,
    HistoryPoint,
    Sampler,
    make_point,
    merge,
    read_history,
)
from corelane.store.dispatch import Dispatch
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from corelane.store.metrics import ProcessMetrics
from corelane.store.plans import Plans
from corelane.store.rollout import Rollout
from tests.corelane.store_bench import VERSION, Bench, announce, answer_all


@pytest.fixture
def link(bench: Bench) -> Link:
    return Link(bench.settings.redis_url)


def marks(link: Link) -> list[tuple[str, str]]:
    return [(mark.kind, mark.text) for mark in link.read(lambda read: read_history(read, 360)).marks]


def points(link: Link) -> list[HistoryPoint]:
    found: list[HistoryPoint] = link.read(lambda read: read_history(read, 360)).points
    return found


def sample(link: Link, name: str = "keeper") -> None:
    link.read(lambda read: Sampler(read, name).sample())


def test_point_tells_the_rates_between_two_readings() -> None:
    before = parse({"corelane_items_total|a@1|succeeded": 10.0, "corelane_tokens_total|a@1": 1000.0})
    now = parse(
        {
            "corelane_items_total|a@1|succeeded": 40.0,
            "corelane_items_total|a@1|failed": 10.0,
            "corelane_items_total|a@1|canceled": 99.0,
            "corelane_tokens_total|a@1": 4000.0,
            "corelane_padding_tokens_total|a@1|8x128": 1000.0,
            "corelane_jobs_ended_total|succeeded": 5.0,
            "corelane_job_seconds|normal|#0.1": 4.0,
            "corelane_job_seconds|high|#2": 1.0,
        }
    )
    point = make_point(Growth(10.0, before, now))
    assert [point[name] for name in ("items_s", "failed_s", "jobs_s", "tokens_s")] == [4.0, 1.0, 0.5, 300.0]
    assert (point["padding_ratio"], point["wait_p95_s"]) == (0.25, None)
    assert (point["p50_s"], point["p95_s"]) == (pytest.approx(0.0906, abs=0.001), pytest.approx(1.875))


def test_sums_that_became_less_started_from_0() -> None:
    before, now = parse({"corelane_tokens_total|a@1": 1000.0}), parse({"corelane_tokens_total|a@1": 50.0})
    assert make_point(Growth(10.0, before, now))["tokens_s"] == 5.0


def test_merged_points_have_the_mean_of_rates_and_the_worst_of_the_rest() -> None:
    some: list[dict[str, Any]] = [
        {"at_ms": 1, "items_s": 2.0, "p95_s": 1.0, "waiting_tokens": 5, "busy": None},
        {"at_ms": 2, "items_s": 4.0, "p95_s": None, "waiting_tokens": 9, "busy": None},
    ]
    assert merge(some) == {"at_ms": 2, "items_s": 3.0, "p95_s": 1.0, "waiting_tokens": 9, "busy": None}
    assert merge(some[:1]) == some[0]


@pytest.mark.parametrize("since_s", [-5, 0, SAMPLES_TTL_S + 1])
def test_sums_of_another_time_are_no_measure_of_now(since_s: int) -> None:
    now = parse({"corelane_tokens_total|a@1": 1000.0})
    fields = (b"sums", b"{}")
    assert Growth.since([(b"%d-0" % (1_000_000 - 1000 * since_s), fields)], 1_000_000, now) is None
    assert Growth.since([], 1_000_000, now) is None
    assert Growth.since([(b"999000-0", fields)], 1_000_000, now) is not None


def test_keeper_takes_points_one_at_a_time(bench: Bench, link: Link) -> None:
    core = bench.core("a/0", 1000.0)
    metrics = ProcessMetrics("core")
    sample(link)
    assert points(link) == []  # the first reading has none before it
    bench.submit(5)
    bench.submit(2)
    answer_all(core)
    bench.submit(10)
    metrics.recorder.add(TOKENS, 7 * 64, VERSION)
    metrics.flush_over(link)
    sample(link, "another keeper")
    assert points(link) == []
    sample(link)
    [point] = points(link)
    assert min(point.items_s, point.jobs_s, point.tokens_s) > 0
    assert point.p95_s is not None
    assert (point.waiting_tokens, point.open_items, point.busy) == (640, 10, 0.0)
    assert point.backlog_s == pytest.approx(0.64)


def test_sums_of_a_minute_are_kept(bench: Bench, link: Link) -> None:
    for _ in range(SAMPLES + 3):
        sample(link)
    assert bench.raw.xlen(keys.SAMPLED) == SAMPLES
    assert 0 < bench.raw.ttl(keys.SAMPLED) <= SAMPLES_TTL_S


def test_backlog_goes_on_while_no_core_is_there(bench: Bench, link: Link) -> None:
    bench.core("a/0", 1000.0)
    bench.submit(10)
    sample(link)
    Dispatch(bench.settings, "a/0").leave([VERSION], bench.bell, gone=True)
    bench.submit(10)
    sample(link)
    [point] = points(link)
    assert (point.waiting_tokens, round(point.backlog_s, 3)) == (1280, 1.28)


def test_what_is_done_to_the_service_is_marked(bench: Bench, link: Link) -> None:
    announce(bench.settings, "a/0", VERSION)
    announcer = Announcer(bench.settings, "a/0")
    announcer.beat({"state": "idle"}, [VERSION], [])
    announcer.beat({"state": "out_of_service"}, [VERSION], [], is_out=True)
    announcer.beat({"state": "out_of_service"}, [VERSION], [], is_out=True)
    announcer.beat({"state": "idle"}, [VERSION], [])
    Plans(bench.settings, "a/0", "").announce(VERSION, {"calibrated": True}, [])
    link.read(lambda read: Rollout(read).load(VERSION, "all"))
    link.read(lambda read: Rollout(read).set_alias("best", {VERSION: 1.0}))
    link.read(lambda read: Rollout(read).unload(VERSION, "all", force=True))
    assert marks(link) == [
        ("core", "a/0 is out of service"),
        ("core", "a/0 is in service again"),
        ("calibration", f"{VERSION} is calibrated"),
        ("load", f"{VERSION} is wanted on all"),
        ("alias", f"best means {VERSION}"),
        ("unload", f"{VERSION} is no longer wanted on all"),
    ]


def test_first_process_of_another_release_is_a_deployment(bench: Bench, link: Link) -> None:
    one, other = ProcessMetrics("api"), ProcessMetrics("core")
    one.flush_over(link)
    other.flush_over(link)
    assert [kind for kind, _ in marks(link)] == ["deploy"]
    bench.raw.set("cl:release", "an older one")
    one.flush_over(link)  # it was there before
    assert len(marks(link)) == 1
    ProcessMetrics("api").flush_over(link)
    assert len(marks(link)) == 2
