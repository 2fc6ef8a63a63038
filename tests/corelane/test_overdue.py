"""What counts as overdue: work that could go on and that nobody carries on. On a real Redis."""

import pytest
import redis
from structlog.testing import capture_logs

from corelane.domain.ids import new_id
from corelane.log import Outage, get_logger
from corelane.plugins.files.store.batches import BatchStore
from corelane.plugins.files.store.references import ReferenceStore
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.deliveries.sending import Attempt
from corelane.store.feeding import Feeder
from corelane.store.gauges import only_overdue, read_waits
from corelane.store.link.blocking import Link
from corelane.store.upkeep import Upkeep
from tests.tools.deliveries import Deliveries, schedule
from tests.tools.waiting import eventually
from workers.loops.rounds import Alarm
from workers.roles import watching

MINUTE_MS = 60_000


def waits(settings: Settings) -> dict[str, float]:
    return dict(Link(settings.redis_url).read(read_waits))


def test_loops_note_their_rounds_without_work_too(raw: redis.Redis, settings: Settings) -> None:
    """The alert on a loop that stands is about the age of its last round."""
    Feeder(settings, "bell").has_work("me")
    ReferenceStore(settings).has_work("me")
    Link(settings.redis_url).read(lambda link: BatchStore(link).has_work("me"))
    assert {*raw.hkeys(keys.ROUNDS)} == {"feeding", "references", "batches"}


def announce_late(raw: redis.Redis, settings: Settings, host: str) -> str:
    """Return an event that has been due for a minute."""
    store = Deliveries(settings)
    delivery = schedule(store.settings, "batch.completed", new_id("batch"), "public", f"https://{host}/", {})
    for line, member in ((f"cl:due:{host}", delivery), ("cl:due", host)):
        raw.zadd(line, {member: store.now_ms() - MINUTE_MS})
    return delivery


def test_nothing_is_overdue_where_nothing_is_to_be_done(settings: Settings) -> None:
    assert waits(settings) == {}


def test_event_that_could_be_sent_is_overdue_until_a_sender_takes_it(raw: redis.Redis, settings: Settings) -> None:
    delivery = announce_late(raw, settings, "a.test")
    assert 60 <= only_overdue(waits(settings))["webhooks"] < 120
    assert Deliveries(settings).take(5) == [delivery]
    assert waits(settings) == {}


def test_event_for_a_host_that_fails_is_not_overdue(
    raw: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.store.deliveries.sending.CIRCUIT_FAILURES", 1)
    store = Deliveries(settings)
    for _ in range(3):
        announce_late(raw, settings, "a.test")
    [first] = store.take(1)
    failed = {"is_host_well": False, "pause_s": 5, "rest_s": 0, "window_s": 1e6}
    store.report(first, "failed", Attempt(0, 500, 1, None, ""), **failed)
    assert waits(settings) == {}


def test_event_that_is_sent_again_by_hand_is_due_from_then_on_and_goes_first(
    raw: redis.Redis, settings: Settings
) -> None:
    store, waiting = Deliveries(settings), announce_late(raw, settings, "a.test")
    again = announce_late(raw, settings, "a.test")
    raw.zrem("cl:due:a.test", again)
    Link(settings.redis_url).run("redeliver", id=again)
    assert 60 <= waits(settings)["webhooks"] < 120
    assert store.take(1) == [again]
    assert store.take(1) == [waiting]


def test_sweeps_feeding_and_batches_are_overdue_once_nobody_sees_to_them(raw: redis.Redis, settings: Settings) -> None:
    now = Deliveries(settings).now_ms()
    raw.zadd("cl:feeds", {"job_1": now - 2 * MINUTE_MS})
    raw.zadd("cl:batching", {"batch_1": now - 2 * MINUTE_MS})
    raw.hset("cl:rounds", mapping={"sweeps": now - MINUTE_MS, "batches": now - MINUTE_MS})
    found = waits(settings)
    assert sorted(only_overdue(found)) == ["batches", "feeding", "sweeps"]
    assert found["batches"] < 120 <= found["feeding"]
    Upkeep(settings, "").went_round()
    Feeder(settings, "").take_turn("me")
    assert sorted(only_overdue(waits(settings))) == ["batches"]


def test_process_that_starts_with_work_that_has_waited_gives_no_alarm(raw: redis.Redis, settings: Settings) -> None:
    announce_late(raw, settings, "a.test")
    loop = watching(settings, Outage(get_logger(__name__), "store"))
    with capture_logs() as lines:
        loop.start()
        eventually(lambda: loop.rounds > 0)
        loop.ask_to_stop()
        assert loop.join(60)
    assert lines == []


def test_what_waited_while_nobody_looked_is_told_of_only_if_it_is_not_carried_on(
    raw: redis.Redis, settings: Settings
) -> None:
    """After a restart, or an outage of Redis, everything has waited for long; whoever carries it on begins then."""
    announce_late(raw, settings, "a.test")
    overdue = only_overdue(waits(settings))
    assert overdue
    alarm = Alarm()
    with capture_logs() as lines:
        for began_s in (0, 1000, 2000):
            for look in range(6):
                alarm.tell(overdue, began_s + 5 * look)
            assert lines == []
        Deliveries(settings).take(5)
        alarm.tell(only_overdue(waits(settings)), 2030)
        assert lines == []
        alarm.tell(overdue, 2035)
    assert [(line["event"], line["what"]) for line in lines] == [("overdue", "webhooks")]


def test_alarm_tells_once_of_what_is_overdue_and_once_when_it_is_over() -> None:
    alarm = Alarm()
    both = {"webhooks": 41.0, "sweeps": 30.5}
    rounds: list[dict[str, float]] = [{"webhooks": 31.0}, {"webhooks": 36.0}, both, {"sweeps": 31.0}, {}]
    alarm.tell({}, 0)
    with capture_logs() as lines:
        for n in range(1, 7):
            alarm.tell({}, 5 * n)
        for n, overdue in enumerate(rounds, 7):
            alarm.tell(overdue, 5 * n)
    assert [(line["log_level"], line["what"]) for line in lines] == [
        ("warning", "webhooks"),
        ("warning", "sweeps"),
        ("info", "webhooks"),
        ("info", "sweeps"),
    ]
    assert "corelane deliveries" in lines[0]["carried_by"]
