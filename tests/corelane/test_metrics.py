"""The metrics: added up in processes, counted in the store, shown the same by every process."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import redis

from corelane.domain.jobs import Priority, Webhook
from corelane.errors import StoreUnavailable
from corelane.metrics import definitions as m
from corelane.metrics.exposition import MetricSample, render
from corelane.metrics.recorder import MOST_SERIES, Recorder
from corelane.metrics.series import Histogram, Series, parse
from corelane.store.deliveries.sending import Attempt
from corelane.store.fleet import UNKNOWN_RATE, Announcer, drain_rate
from corelane.store.gauges import read_all
from corelane.store.link.blocking import Link
from corelane.store.link.library import read_code
from corelane.store.metrics import ProcessMetrics, read_sums
from tests.corelane.store_bench import VERSION, Bench, announce, answer_all, answered, claimed
from tests.tools.deliveries import Deliveries
from tests.tools.invariants import check_invariants


def show(bench: Bench) -> tuple[Series, dict[tuple[str, ...], float]]:
    """Return the sums, and the gauges by their names and labels."""
    series, samples = Link(bench.settings.redis_url).read(read_all)
    return series, {(sample.metric.name, *sample.labels): sample.value for sample in samples}


# The recorder.


def test_what_several_threads_add_is_added_up() -> None:
    recorder = Recorder()

    def add() -> None:
        for _ in range(20_000):
            recorder.add(m.TOKENS, 3, "a@1")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    delta = recorder.take()
    assert delta is not None
    assert delta.amounts == {"corelane_tokens_total|a@1": 240_000}


def test_delta_comes_again_until_it_was_sent_and_later_values_wait() -> None:
    recorder = Recorder()
    recorder.add(m.TOKENS, 1, "a@1")
    first = recorder.take()
    recorder.add(m.TOKENS, 2, "a@1")
    assert first is not None
    assert recorder.take() is first
    recorder.sent(first)
    second = recorder.take()
    assert second is not None
    assert (second.number, second.amounts) == (2, {"corelane_tokens_total|a@1": 2})
    recorder.sent(second)
    assert recorder.take() is None


def test_metric_with_too_many_labels_has_one_series_for_the_rest() -> None:
    recorder = Recorder()
    for number in range(MOST_SERIES + 5):
        recorder.add(m.PROBLEMS, 1, f"code{number}")
    delta = recorder.take()
    assert delta is not None
    assert len(delta.amounts) == MOST_SERIES + 1
    assert delta.amounts["corelane_problems_total|other"] == 5


def test_labels_that_a_metric_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Recorder().add(m.PROBLEMS, 1)


def test_values_fall_into_the_buckets_that_prometheus_counts() -> None:
    recorder = Recorder()
    for value in (1.0, 1.5, 300.0):
        recorder.add(m.BATCH_ROWS, value)
    delta = recorder.take()
    assert delta is not None
    text = render(parse(delta.amounts), []).decode()
    assert 'corelane_batch_rows_bucket{le="1.0"} 1.0' in text
    assert 'corelane_batch_rows_bucket{le="2.0"} 2.0' in text
    assert 'corelane_batch_rows_bucket{le="256.0"} 2.0' in text
    assert 'corelane_batch_rows_bucket{le="+Inf"} 3.0' in text
    assert "corelane_batch_rows_sum 302.5" in text


# Series and quantiles.


def test_bucket_of_another_release_counts_in_the_next_wider_one() -> None:
    sums = {"corelane_batch_rows|#3": 2.0, "corelane_batch_rows|#999": 1.0, "corelane_unheard_of_total": 5.0}
    found = parse(sums).histograms[m.BATCH_ROWS][()]
    assert found.counts[found.bounds.index(4.0)] == 2
    assert found.counts[-1] == 1


def test_quantiles_lie_in_their_bucket() -> None:
    found = Histogram((1.0, 2.0, 4.0), (5.0, 5.0, 0.0, 0.0))
    assert found.quantile(0.5) == 1.0
    assert found.quantile(0.75) == 1.5
    assert found.quantile(1.0) == 2.0
    assert Histogram((1.0,), (0.0, 3.0)).quantile(0.5) == 1.0
    assert Histogram((1.0,), (0.0, 0.0)).quantile(0.5) is None


def test_histogram_whose_sums_started_from_0_counts_from_there() -> None:
    before, now = Histogram((1.0,), (5.0, 5.0), 20.0), Histogram((1.0,), (2.0, 0.0), 1.0)
    assert now.since(before) == now
    assert Histogram((1.0,), (7.0, 5.0), 21.0).since(before) == Histogram((1.0,), (2.0, 0.0), 1.0)


def test_every_metric_that_the_functions_count_is_defined() -> None:
    named = {word.split("|")[0] for word in read_code().split("'") if word.startswith("corelane_")}
    counted = {metric.name for metric in m.ALL.values() if metric.source is m.MetricSource.COUNTED}
    assert named == counted - {m.DELIVERIES.name}  # counted in a hash of its own


def test_every_metric_says_what_it_is_even_without_values() -> None:
    text = render(parse({}), [MetricSample(m.VERSION_CORES, 2, (VERSION,))]).decode()
    assert 'corelane_version_cores{version="tiny@1"} 2.0' in text
    for metric in m.ALL.values():
        assert f"# HELP {metric.name} " in text
        assert metric.name.startswith("corelane_")
        assert (metric.kind is m.MetricKind.COUNTER) == metric.name.endswith("_total")


# The backlog.


def test_drain_rate_is_the_cores_speed_where_nothing_was_answered_of_late() -> None:
    assert drain_rate([0] * 10, [1000.0] * 2) == 2000
    assert drain_rate([0] * 10, []) == UNKNOWN_RATE


def test_seconds_of_little_work_do_not_slow_the_drain_rate() -> None:
    assert drain_rate([64] * 10, [1000.0] * 2) == 2000
    assert drain_rate([900, 900, 0, 0, 0], []) == 900


def test_drain_rate_follows_what_busy_cores_answer() -> None:
    slowed = drain_rate([1500] * 10, [1000.0] * 2)
    assert 1500 < slowed < 1700


def test_backlog_goes_by_the_last_speed_while_no_core_lives(bench: Bench) -> None:
    core = bench.core("a/0", 320.0)
    bench.submit(10)
    assert show(bench)[1]["corelane_backlog_seconds",] == pytest.approx(2)
    claim = claimed(core)
    assert show(bench)[1]["corelane_backlog_seconds",] == pytest.approx(2)
    core.hand_back(claim.lease, claim.refs, bench.bell)
    core.leave([VERSION], bench.bell, gone=True)
    gauges = show(bench)[1]
    assert gauges["corelane_backlog_seconds",] == pytest.approx(2)
    assert gauges["corelane_version_cores", VERSION] == 0


def test_backlog_of_a_service_that_never_measured_a_speed_is_not_zero(bench: Bench) -> None:
    announce(bench.settings, "a/0", VERSION)
    bench.submit(10)
    assert show(bench)[1]["corelane_backlog_seconds",] == pytest.approx(640 / UNKNOWN_RATE)


# The store.


def test_repeated_flush_counts_once_and_another_process_counts_as_well(bench: Bench) -> None:
    link, metrics = Link(bench.settings.redis_url), ProcessMetrics("api")

    class LostReply(Link):
        def many(self, commands):  # type: ignore[no-untyped-def]
            super().many(commands)
            raise StoreUnavailable("the reply was lost")

    metrics.recorder.add(m.TOKENS, 5, VERSION)
    metrics.recorder.add(m.SUBMIT_S, 0.25)
    with pytest.raises(StoreUnavailable):
        metrics.flush_over(LostReply(bench.settings.redis_url))
    metrics.recorder.add(m.TOKENS, 2, VERSION)
    metrics.flush_over(link)
    metrics.flush_over(link)
    other = ProcessMetrics("core")
    other.recorder.add(m.TOKENS, 10, VERSION)
    other.flush_over(link)
    series = parse(link.read(read_sums))
    assert series.total(m.TOKENS) == 17
    assert (series.histogram(m.SUBMIT_S).count, series.histogram(m.SUBMIT_S).sum) == (1, 0.25)


def test_gauge_of_a_process_that_died_is_gone(bench: Bench, raw: redis.Redis) -> None:
    link, metrics, dead = Link(bench.settings.redis_url), ProcessMetrics("api"), ProcessMetrics("api")
    with metrics.counted("event_streams"), dead.counted("event_streams"):
        metrics.flush_over(link)
        dead.flush_over(link)
        assert show(bench)[1]["corelane_event_streams",] == 2
        bench.age(60)
        metrics.flush_over(link)
        assert show(bench)[1]["corelane_event_streams",] == 1
    metrics.flush_over(link, leaves=True)
    assert show(bench)[1]["corelane_event_streams",] == 0


def test_gauges_are_what_waits_and_is_claimed(bench: Bench, raw: redis.Redis) -> None:
    core = bench.core("a/0", 1000.0)
    bench.submit(2, priority=Priority.HIGH)
    bench.submit(3, priority=Priority.LOW)
    large = bench.submit(200)
    raw.hincrby(f"cl:job:{{{large}}}", "created_ms", -500_000)
    _, gauges = show(bench)
    assert gauges["corelane_waiting_tokens", VERSION] == 205 * 64
    assert gauges["corelane_backlog_seconds",] == pytest.approx(205 * 64 / 1000)
    assert gauges["corelane_oldest_wait_seconds", VERSION, "normal"] == pytest.approx(560, abs=60)
    assert gauges["corelane_oldest_wait_seconds", VERSION, "low"] < 120
    assert gauges["corelane_open_jobs", "normal"] == gauges["corelane_open_jobs", "high"] == 1
    assert gauges["corelane_open_items",] == 205
    assert gauges["corelane_redis_memory_bytes",] > 0
    assert gauges["corelane_redis_script_seconds_total",] > 0
    claim = claimed(core)
    assert show(bench)[1]["corelane_claimed_tokens", "a/0"] == claim.tokens
    assert check_invariants(raw) == []
    core.commit(claim.lease, answered(claim))
    answer_all(core)
    assert ("corelane_oldest_wait_seconds", VERSION, "normal") not in show(bench)[1]
    assert check_invariants(raw) == []


def test_heartbeat_tells_of_memory_and_of_the_device(bench: Bench) -> None:
    bench.core("a/0")
    device = '{"utilization": 0.5, "memory_bytes": 7, "errors": {"ecc": 2}}'
    Announcer(bench.settings, "a/0").beat({"state": "idle", "memory": 5, "device": device}, [VERSION], [])
    for number, odd in enumerate(("?", "7", "null", '{"utilization": "much"}'), 1):
        Announcer(bench.settings, f"a/{number}").beat({"state": "idle", "device": odd}, [VERSION], [])
    _, gauges = show(bench)
    assert gauges["corelane_core_up", "a/4"] == 1
    assert gauges["corelane_core_memory_bytes", "a/0", "process"] == 5
    assert gauges["corelane_core_memory_bytes", "a/0", "device"] == 7
    assert gauges["corelane_core_device_utilization_ratio", "a/0"] == 0.5
    assert gauges["corelane_core_device_errors_total", "a/0", "ecc"] == 2


# Invariants after scenarios: each returns the items by outcome, and the jobs by status.

Counts = tuple[dict[str, int], dict[str, int]]


def answer_everything(bench: Bench) -> Counts:
    core = bench.core("a/0")
    for count in (1, 7, 100):
        bench.submit(count)
    answer_all(core)
    return {"succeeded": 108}, {"succeeded": 3}


def fail_some(bench: Bench) -> Counts:
    core = bench.core("a/0")
    bench.submit(3)
    claim = claimed(core)
    core.commit(claim.lease, answered(claim, "failed"))
    return {"failed": 3}, {"failed": 1}


def cancel_and_delete(bench: Bench) -> Counts:
    core = bench.core("a/0")
    one, other = bench.submit(5), bench.submit(70)
    claim = claimed(core)
    bench.cancel(one)
    bench.with_store(lambda store: store.delete(other))
    core.commit(claim.lease, answered(claim))
    answer_all(core)
    return {"canceled": 75}, {"canceled": 2}


def expire(bench: Bench) -> Counts:
    bench.core("a/0")
    bench.submit(4, expires_in_s=30)
    bench.age(40)
    bench.upkeep.tend()
    answer_all(bench.core("a/0"))
    return {"expired": 4}, {"expired": 1}


def lose_a_core(bench: Bench) -> Counts:
    core = bench.core("a/0")
    bench.submit(3)
    claimed(core)
    bench.age(100)
    bench.upkeep.return_lapsed()
    answer_all(bench.core("a/1"))
    return {"succeeded": 3}, {"succeeded": 1}


def lose_every_attempt(bench: Bench) -> Counts:
    bench.submit(2)
    for attempt in range(bench.settings.max_attempts):
        core = bench.core(f"a/{attempt}")
        while core.claim([VERSION], linger=False):
            pass
        bench.age(100)
        bench.upkeep.return_lapsed()
    return {"failed": 2}, {"failed": 1}


def fail_as_a_whole(bench: Bench) -> Counts:
    job = bench.submit(9)
    Link(bench.settings.redis_url).run("fail", job=job, ttl=60, error="{}")
    answer_all(bench.core("a/0"))
    return {"failed": 9}, {"failed": 1}


SCENARIOS = (answer_everything, fail_some, cancel_and_delete, expire, lose_a_core, lose_every_attempt, fail_as_a_whole)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_counters_and_gauges_equal_the_store_after(scenario: Callable[[Bench], Counts], bench: Bench) -> None:
    bench.core("b/0")
    items, jobs = scenario(bench)
    assert check_invariants(bench.raw) == []
    series, gauges = show(bench)
    outcomes = {
        outcome: series.total(m.ITEMS, None, outcome) for outcome in ("succeeded", "failed", "canceled", "expired")
    }
    assert {outcome: count for outcome, count in outcomes.items() if count} == items
    assert {labels[0]: count for labels, count in series.counters[m.JOBS_ENDED].items()} == jobs
    assert gauges["corelane_open_items",] == gauges["corelane_waiting_tokens", VERSION] == 0


def test_lost_claims_attempts_and_late_answers_are_counted(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(3)
    claim = claimed(core)
    bench.age(100)
    bench.upkeep.return_lapsed()
    assert core.commit(claim.lease, answered(claim)) == 1
    answer_all(bench.core("a/0"))
    series = show(bench)[0]
    assert series.total(m.LEASES_LAPSED) == 1
    assert series.counters[m.WASTED_TOKENS] == {("core_lost",): 3 * 64}
    assert series.counters[m.ATTEMPTS] == {("1",): 3, ("2",): 3}


def test_what_is_read_in_vain_is_counted_by_its_reason(bench: Bench) -> None:
    core = bench.core("a/0")

    def end_while_claimed(end: Callable[[str], object], *, is_read: bool = True) -> None:
        job = bench.submit(3, expires_in_s=50)
        claim = claimed(core)
        end(job)
        bench.upkeep.tend()
        core.commit(claim.lease, [each if is_read else replace(each, results=[]) for each in answered(claim)])

    end_while_claimed(bench.cancel)
    end_while_claimed(bench.cancel, is_read=False)
    end_while_claimed(lambda _: bench.age(100))
    bench.submit(3)
    claim = claimed(core)
    core.hand_back(claim.lease, claim.refs, bench.bell, lost_tokens=70)
    wasted = show(bench)[0].counters[m.WASTED_TOKENS]
    assert wasted == {("canceled",): 3 * 64, ("expired",): 3 * 64, ("handed_back",): 70}


def test_core_that_says_good_bye_is_gone_at_once_and_nothing_waits_in_its_queue(bench: Bench) -> None:
    core, other = bench.core("a/0"), bench.core("b/0")
    bench.submit(3)
    assert bench.raw.llen("core.a.0") + bench.raw.llen("core.b.0") == 1
    core.leave([VERSION], bench.bell, gone=True)
    other.leave([VERSION], bench.bell)
    assert not bench.raw.exists("core.a.0")
    assert bench.raw.zrange("cl:cores", 0, -1) == ["b/0"]
    gauges = show(bench)[1]
    assert ("corelane_core_up", "a/0") not in gauges
    assert gauges["corelane_core_up", "b/0"] == 0
    bench.age(1000)
    bench.upkeep.prune()
    assert not bench.raw.exists("cl:cores", "core.b.0", "cl:speeds", "cl:claimed")


def test_claim_that_is_handed_back_is_no_attempt(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(3)
    claim = claimed(core)
    core.hand_back(claim.lease, claim.refs, bench.bell)
    series = show(bench)[0]
    assert series.total(m.LEASES_LAPSED) == series.total(m.ATTEMPTS) == 0
    assert check_invariants(bench.raw) == []


def test_waits_and_ends_of_jobs_are_timed_by_priority(bench: Bench) -> None:
    core, job = bench.core("a/0"), bench.submit(1, priority=Priority.HIGH)
    bench.raw.hincrby(f"cl:job:{{{job}}}", "created_ms", -150_000)
    answer_all(core)
    series, times = show(bench)[0], bench.raw.hgetall(f"cl:job:{{{job}}}")
    for metric, end in ((m.WAIT_S, "started_ms"), (m.JOB_S, "finished_ms")):
        [(labels, found)] = series.histograms[metric].items()
        assert labels == ("high",)
        assert (found.count, found.counts[found.bounds.index(300.0)]) == (1, 1)
        assert found.sum == pytest.approx((int(times[end]) - int(times["created_ms"])) / 1000)


def test_deliveries_are_timed_from_their_event(bench: Bench) -> None:
    core = bench.core("a/0")
    bench.submit(1, webhook=Webhook(url="https://a.test/"))
    answer_all(core)
    store = Deliveries(bench.settings)
    assert show(bench)[1]["corelane_deliveries_pending",] == 1
    [delivery] = store.take(1)
    bench.raw.hincrby(f"cl:delivery:{delivery}", "at_ms", -150_000)
    store.report(
        delivery, "delivered", Attempt(0, 200, 1, None, ""), is_host_well=True, pause_s=None, rest_s=0, window_s=1e6
    )
    series, gauges = show(bench)
    found = series.histogram(m.DELIVERY_S)
    assert (found.count, found.counts[found.bounds.index(300.0)]) == (1, 1)
    assert gauges["corelane_deliveries_total", "delivered"] == 1


# Retry-After.
