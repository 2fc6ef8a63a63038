"""The history: points made of sums, kept in two rings, taken by one keeper at a time; and marks."""

from dataclasses import replace

import orjson
import pytest

from corelane.metrics.definitions import TOKENS
from corelane.metrics.series import parse
from corelane.plugins.console.history import COARSE_MS, History, Mark, Sampler
from corelane.plugins.console.points import Point, make_point, merge, thin
from corelane.store.dispatch import Dispatch
from corelane.store.fleet import Announcer
from corelane.store.link.blocking import Link
from corelane.store.metrics import ProcessMetrics
from corelane.store.plans import Plans
from corelane.store.rollout import Rollout, write_mark
from tests.corelane.store_bench import VERSION, Bench, announce, answer_all


@pytest.fixture
def link(bench: Bench) -> Link:
    return Link(bench.settings.redis_url)


def marks(link: Link) -> list[tuple[str, str]]:
    found: list[Mark] = link.read(lambda read: History(read).marks(0))
    return [(mark.kind, mark.text) for mark in found]


def points(link: Link, since_ms: int = 0, most: int = 400) -> list[Point]:
    found: list[Point] = link.read(lambda read: History(read).points(since_ms, most))
    return found


def sample(link: Link, name: str = "keeper") -> Point | None:
    return link.read(lambda read: Sampler(read, name).sample())


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
    point = make_point(20_000, 10_000, before, now)
    assert (point.items_s, point.failed_s, point.jobs_s, point.tokens_s) == (4.0, 1.0, 0.5, 300.0)
    assert point.padding_ratio == 0.25
    assert point.p50_s is not None
    assert point.p50_s == pytest.approx(0.0906, abs=0.001)
    assert point.p95_s == pytest.approx(1.875)
    assert point.wait_p95_s is None
    stored = orjson.loads(orjson.dumps(point.encode()))
    assert Point.decode(stored) == replace(point, p50_s=round(point.p50_s, 4))


def test_sums_that_became_less_started_from_0() -> None:
    before = parse({"corelane_tokens_total|a@1": 1000.0})
    assert make_point(10_000, 0, before, parse({"corelane_tokens_total|a@1": 50.0})).tokens_s == 5.0


def test_merged_points_have_the_mean_of_rates_and_the_worst_of_the_rest() -> None:
    some = [Point(1, items_s=2.0, p95_s=1.0, waiting_tokens=5), Point(2, items_s=4.0, p95_s=None, waiting_tokens=9)]
    merged = merge(some)
    assert (merged.at_ms, merged.items_s, merged.p95_s, merged.waiting_tokens) == (2, 3.0, 1.0, 9)
    assert [point.at_ms for point in thin([Point(at) for at in range(1, 8)], 3)] == [3, 6, 7]
    assert len(thin([Point(1)], 3)) == 1


def test_keeper_takes_points_one_at_a_time(bench: Bench, link: Link) -> None:
    core = bench.core("a/0", 1000.0)
    metrics = ProcessMetrics("core")
    assert sample(link) is None  # the first reading has none before it
    bench.submit(5)
    bench.submit(2)
    answer_all(core)
    bench.submit(10)
    metrics.recorder.add(TOKENS, 7 * 64, VERSION)
    metrics.flush_over(link)
    assert sample(link, "another keeper") is None
    point = sample(link)
    assert point is not None
    assert min(point.items_s, point.jobs_s, point.tokens_s) > 0
    assert point.p95_s is not None
    assert (point.waiting_tokens, point.open_items, point.busy) == (640, 10, 0.0)
    assert point.backlog_s == pytest.approx(0.64)
    assert [each.at_ms for each in points(link)] == [point.at_ms]
    assert [each.at_ms for each in points(link, link.now_ms() - 60_000)] == [point.at_ms]


def test_backlog_goes_on_while_no_core_is_there(bench: Bench, link: Link) -> None:
    bench.core("a/0", 1000.0)
    bench.submit(10)
    sample(link)
    Dispatch(bench.settings, "a/0").leave([VERSION], bench.bell, gone=True)
    bench.submit(10)
    for _ in range(2):
        point = sample(link)
        assert point is not None
        assert point.waiting_tokens == 1280
        assert point.backlog_s == pytest.approx(1.28)


def test_coarse_point_stands_for_the_fine_ones_since_the_last(bench: Bench, link: Link) -> None:
    sample(link)
    sample(link)
    coarse, fine = "cl:history:coarse", "cl:history:fine"
    assert bench.raw.xlen(coarse) == 1
    # As if five minutes had gone by since: ids of streams only grow.
    bench.raw.delete(coarse)
    bench.raw.xadd(coarse, {"point": orjson.dumps(Point(1, items_s=9.0).encode())}, id=f"{link.now_ms() - COARSE_MS}-0")
    bench.raw.delete(fine)
    sample(link)
    sample(link)
    assert [point.items_s for point in points(link)] == [9.0, 0.0]


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
    link.read(lambda read: write_mark(read, "deploy", "by hand"))
    assert marks(link) == [
        ("core", "a/0 is out of service"),
        ("core", "a/0 is in service again"),
        ("calibration", f"{VERSION} is calibrated"),
        ("load", f"{VERSION} is wanted on all"),
        ("alias", f"best means {VERSION}"),
        ("unload", f"{VERSION} is no longer wanted on all"),
        ("deploy", "by hand"),
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
