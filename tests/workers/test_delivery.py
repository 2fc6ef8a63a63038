"""The webhook sender on a real Redis, with receivers that fail in their own ways.

Every event arrives, and no receiver waits for another.
"""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from ipaddress import ip_network

import pytest
import redis
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from corelane.domain.ids import new_id
from corelane.domain.jobs import Webhook
from corelane.log import Outage, get_logger
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.deliveries.sending import CIRCUIT_FAILURES, DEAD_TTL_S, LEASE_S, Attempt, Delivery
from corelane.store.link.blocking import Link
from corelane.store.link.link import AsyncLink
from tests.corelane.store_bench import Bench, age, answered, claimed
from tests.tools.deliveries import Deliveries, Found, schedule
from tests.tools.receivers import Post, dripping, listener, receiver
from tests.tools.waiting import eventually
from workers.roles import sending
from workers.webhooks import Hold, deliver

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()

DAY_MS = 24 * 3600 * 1000

#: Deliveries to each receiver that does not answer for a second. If all were tried before those to others, that would
#: take longer than HELD_S; what is held up by nobody comes far sooner, however busy the machine is.
HELD, HELD_S = 300, 60


@pytest.fixture
def hooked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings under which receivers on loopback are tried again at once."""
    monkeypatch.setattr("workers.webhooks.THREADS", 6)
    monkeypatch.setattr("corelane.store.deliveries.sending.CIRCUIT_S", 0.3)
    changes = {
        "webhook_secret": SecretStr(SECRET),
        "webhook_allowed_networks": (ip_network("127.0.0.0/8"),),
        "webhook_retries_s": (0.05,) * 7,
        "webhook_timeout_s": 30.0,
    }
    return settings.model_copy(update=changes)


@pytest.fixture
def store(hooked: Settings) -> Deliveries:
    return Deliveries(hooked)


@contextmanager
def sender(settings: Settings) -> Iterator[None]:
    loop = sending(settings, Outage(get_logger(__name__), "store"))
    loop.start()
    try:
        yield
    finally:
        loop.ask_to_stop()
        with closing(Link(settings.redis_url)) as link:
            link("LPUSH", keys.WAKE_SENDERS, 1)  # else it waits for work for a second
        assert loop.join(60)


def announce(store: Deliveries, url: str, what: str = "batch.completed") -> str:
    return schedule(store.settings, what, new_id("batch"), "public", url, {"n": 1}, {"x-request-id": "r1"})


def state(store: Deliveries, delivery: str) -> str:
    found = store.get(delivery)
    assert found is not None
    return found.state


def attempts(raw: redis.Redis, delivery: str) -> list[Attempt]:
    return [Attempt.decode(entry) for entry in raw.lrange(f"cl:tries:{delivery}", 0, -1)]


def post_failed(store: Deliveries, delivery: str, *, is_host_well: bool = False, window_s: float = 1e6) -> str:
    verdict = {"is_host_well": is_host_well, "pause_s": 0, "rest_s": 0, "window_s": window_s}
    return store.report(delivery, "failed", Attempt(0, 500, 1, None, ""), **verdict)


def post_delivered(store: Deliveries, delivery: str) -> str:
    verdict = {"is_host_well": True, "pause_s": None, "rest_s": 0, "window_s": 1e6}
    return store.report(delivery, "delivered", Attempt(0, 204, 1, None, ""), **verdict)


def of_log(settings: Settings, call: Callable[[DeliveryLog], Awaitable[Found]]) -> Found:
    """Run a call of the log."""

    async def run() -> Found:
        link = AsyncLink(settings.redis_url)
        try:
            return await call(DeliveryLog(link))
        finally:
            await link.close()

    return asyncio.run(run())


def pending(settings: Settings) -> int:
    return of_log(settings, lambda log: log.counts())[1]


def test_each_wanted_event_of_a_job_is_posted_once_with_its_own_id(bench: Bench, hooked: Settings) -> None:
    core = bench.core("a/0")
    with receiver() as found:
        events = ("job.running", "job.completed", "job.succeeded", "job.failed")
        job = bench.submit(2, webhook=Webhook(url=found.url, events=events))
        bench.raw.hset(f"cl:job:{{{job}}}", mapping={"request_id": "r7", "traceparent": "00-1-2-01"})
        claim = claimed(core)
        core.commit(claim.lease, answered(claim))
        with sender(hooked):
            eventually(lambda: len(found.posts) == 3)
            eventually(lambda: not bench.raw.exists("cl:due"))
    told = {}
    for post in found.posts:
        event = Verifier(SECRET).verify(post.body, post.headers)
        told[event["type"]] = event["data"]
        assert post.headers["webhook-id"] == f"evt_{job[4:]}_{event['type'][4:]}"
        assert (post.headers["x-request-id"], post.headers["traceparent"]) == ("r7", "00-1-2-01")
    assert sorted(told) == ["job.completed", "job.running", "job.succeeded"]
    assert told["job.running"]["status"] == "running"
    assert told["job.running"]["counts"]["succeeded"] == 0
    assert "results" not in told["job.running"]
    assert told["job.completed"]["status"] == "succeeded"
    assert [result["id"] for result in told["job.completed"]["results"]] == ["i0", "i1"]


def test_job_that_is_forgotten_before_its_event_went_out_is_told_of_without_results(
    bench: Bench, hooked: Settings
) -> None:
    core = bench.core("a/0")
    with receiver() as found:
        job = bench.submit(1, webhook=Webhook(url=found.url, events=("job.canceled",)))
        claimed(core)
        bench.cancel(job)
        bench.raw.delete(f"cl:job:{{{job}}}", f"cl:out:{{{job}}}", f"cl:in:{{{job}}}")
        with sender(hooked):
            eventually(lambda: len(found.posts) == 1)
    event = Verifier(SECRET).verify(found.posts[0].body, found.posts[0].headers)
    assert (event["type"], event["data"]["status"]) == ("job.canceled", "canceled")
    assert event["data"]["counts"]["canceled"] == 1


def test_failed_event_comes_again_with_the_same_id_and_bytes_and_is_logged(
    raw: redis.Redis, hooked: Settings, store: Deliveries
) -> None:
    with receiver(lambda n: (500 if n < 2 else 204, {}, b"not yet" if n < 2 else b"")) as found, sender(hooked):
        delivery = announce(store, found.url)
        eventually(lambda: state(store, delivery) == "delivered")
    assert found.ids == [delivery] * 3
    assert len({post.body for post in found.posts}) == 1
    assert [(each.status, each.snippet) for each in attempts(raw, delivery)] == [
        (500, "not yet"),
        (500, "not yet"),
        (204, ""),
    ]
    assert raw.hgetall("cl:posted") == {"failed": "2", "delivered": "1"}
    assert raw.keys("cl:due*") + raw.keys("cl:flight*") + raw.keys("cl:circuits") == []


def test_event_is_scheduled_once_however_often(store: Deliveries, raw: redis.Redis) -> None:
    batch = new_id("batch")
    ids = {schedule(store.settings, "batch.completed", batch, "public", "https://a.example/x", {}) for _ in range(3)}
    assert ids == {f"evt_{batch[6:]}_completed"}
    assert raw.zcard("cl:due:a.example") == 1


def test_receiver_that_is_gone_is_tried_no_more(hooked: Settings, store: Deliveries) -> None:
    with receiver(lambda _: (410, {}, b"")) as found, sender(hooked):
        delivery = announce(store, found.url)
        eventually(lambda: state(store, delivery) == "gone")
    assert len(found.posts) == 1


def test_event_that_fails_every_time_is_a_dead_letter_and_can_be_redelivered(
    raw: redis.Redis, hooked: Settings, store: Deliveries
) -> None:
    answer = [500]
    with receiver(lambda _: (answer[0], {}, b"")) as found, sender(hooked):
        delivery = announce(store, found.url)
        eventually(lambda: state(store, delivery) == "dead")
        assert len(found.posts) == 8
        assert raw.zrange("cl:dead", 0, -1) == [delivery]
        assert 0 < raw.ttl(f"cl:delivery:{delivery}") <= DEAD_TTL_S
        answer[0] = 204
        assert Link(hooked.redis_url).run("redeliver", id=delivery) == 1
        eventually(lambda: state(store, delivery) == "delivered")
    assert found.ids == [delivery] * 9
    assert len({post.body for post in found.posts}) == 1
    assert raw.zcard("cl:dead") == 0
    assert Link(hooked.redis_url).run("redeliver", id="evt_none_completed") == 0


def test_delivered_event_can_be_redelivered(hooked: Settings, store: Deliveries) -> None:
    with receiver() as found, sender(hooked):
        delivery = announce(store, found.url)
        eventually(lambda: state(store, delivery) == "delivered")
        Link(hooked.redis_url).run("redeliver", id=delivery)
        eventually(lambda: len(found.posts) == 2)
        eventually(lambda: state(store, delivery) == "delivered")
    assert found.ids == [delivery] * 2
    assert found.posts[0].body == found.posts[1].body


def test_slow_and_dead_receivers_hold_up_nobody_else(hooked: Settings, store: Deliveries) -> None:
    hasty = hooked.model_copy(update={"webhook_timeout_s": 1.0, "webhook_retries_s": (1.0,) * 30})
    with listener(dripping(b"HTTP/1.1 200 O")) as slow, listener() as mute, receiver() as found:
        held = [announce(store, f"http://127.0.0.1:{port}/") for port in (slow.port, mute.port) for _ in range(HELD)]
        with sender(hasty):
            eventually(lambda: slow.connections > 0)
            ids = [announce(store, found.url) for _ in range(50)]
            eventually(lambda: len(found.posts) == 50, HELD_S)
            assert sum(state(store, each) == "pending" for each in held) == len(held)
    assert sorted(found.ids) == sorted(ids)


def test_host_has_few_deliveries_under_way_and_one_once_it_failed(store: Deliveries) -> None:
    for _ in range(10):
        announce(store, "https://a.example/x")
    taken = store.take(50)
    assert len(taken) == 4
    assert store.take(50) == []
    for each in taken:
        post_failed(store, each)
    probe = store.take(50)
    assert len(probe) == 1
    assert store.take(50) == []
    post_failed(store, probe[0], is_host_well=True)
    assert len(store.take(50)) == 4


def test_circuit_of_a_host_opens_and_lets_one_through_after_a_while(raw: redis.Redis, store: Deliveries) -> None:
    for _ in range(10):
        announce(store, "https://a.example/x")
    for _ in range(5):
        [first, *rest] = store.take(50)
        for each in (first, *rest):
            post_failed(store, each)
        if raw.zcard("cl:circuits"):
            break
    assert raw.zcard("cl:circuits") == 1
    assert store.take(50) == []
    announce(store, "https://b.example/x")
    assert len(store.take(50)) == 1
    raw.zadd("cl:circuits", {"a.example": 0})
    raw.zadd("cl:due", {"a.example": 0})
    [probe] = store.take(50)
    assert post_delivered(store, probe)
    assert raw.zcard("cl:circuits") == 0
    assert len(store.take(50)) == 4


def test_host_that_fails_for_long_is_tried_every_30_seconds_and_said_so(raw: redis.Redis, settings: Settings) -> None:
    store = Deliveries(settings)
    ids = [announce(store, "https://a.example/x") for _ in range(12)]
    for failures in range(1, 11):
        [taken, *_] = store.take(1)
        post_failed(store, taken)
        if failures >= CIRCUIT_FAILURES:
            open_ms = raw.zscore("cl:circuits", "a.example") or 0
            assert 0 < open_ms - store.now_ms() <= 30_000
            waiting = of_log(settings, lambda log: log.waiting(20))
            resting = of_log(settings, lambda log: log.resting(5))
            told = [each.next_ms or 0 for each in waiting]
            assert len(told) == len(ids)
            assert resting == [("a.example", min(told))]
            assert min(told) == open_ms
            assert store.take(20) == []
            age(raw, 31)


def test_what_waited_for_a_dead_host_for_a_day_is_given_up(raw: redis.Redis, store: Deliveries) -> None:
    first = announce(store, "https://a.example/x")
    assert store.take(1) == [first]
    old = [announce(store, "https://a.example/x") for _ in range(5)]
    for each in old:
        raw.hincrby(f"cl:delivery:{each}", "since_ms", -2 * DAY_MS)
    young = announce(store, "https://a.example/x")
    assert post_failed(store, first, window_s=DAY_MS / 1000) == "pending"
    assert [state(store, each) for each in (first, *old, young)] == ["pending", *["dead"] * 5, "pending"]
    assert raw.zcard("cl:dead") == 5


def test_what_was_given_up_at_one_time_is_listed_page_after_page(raw: redis.Redis, store: Deliveries) -> None:
    first, *others = (announce(store, "https://a.example/x") for _ in range(151))
    for each in others:
        raw.hincrby(f"cl:delivery:{each}", "since_ms", -2 * DAY_MS)
    assert store.take(1) == [first]
    post_failed(store, first, window_s=DAY_MS / 1000)
    [*_, last] = of_log(store.settings, lambda log: log.dead(0, "", 200, None))
    assert raw.zcount("cl:dead", last.ended_ms or 0, last.ended_ms or 0) == len(others)
    listed: list[str] = []
    after = (0, "")
    while page := of_log(store.settings, lambda log, last=after: log.dead(*last, 20, "public")):  # type: ignore[misc]
        listed += [each.delivery.id for each in page]
        after = (page[-1].ended_ms or 0, listed[-1])
    assert listed == sorted(others)


def test_host_that_asks_for_a_pause_gets_it(raw: redis.Redis, hooked: Settings, store: Deliveries) -> None:
    with receiver(lambda _: (429, {"Retry-After": "100"}, b"")) as found, sender(hooked):
        first = announce(store, found.url)
        eventually(lambda: len(attempts(raw, first)) == 1)
        announce(store, found.url)
        host = found.url.split("/")[2]
        eventually(lambda: raw.zscore("cl:due", host) is not None)
        waits_ms = raw.zscore("cl:due", host) - store.now_ms()  # type: ignore[operator]
    assert 50_000 < waits_ms <= 100_000
    assert len(found.posts) == 1


def test_attempt_whose_sender_died_is_made_again_and_a_late_report_changes_nothing(
    raw: redis.Redis, store: Deliveries
) -> None:
    delivery = announce(store, "https://a.example/x")
    assert store.take(1) == [delivery]
    assert store.take(1) == []
    age(raw, LEASE_S)
    assert store.take(1) == [delivery]
    assert post_delivered(store, delivery) == "delivered"
    assert post_failed(store, delivery) == "delivered"
    assert store.take(1) == []


def test_attempt_that_is_held_is_made_by_nobody_else(raw: redis.Redis, store: Deliveries) -> None:
    held, left = announce(store, "https://a.example/x"), announce(store, "https://a.example/x")
    assert sorted(store.take(2)) == sorted([held, left])
    age(raw, LEASE_S / 2)
    store.hold([held])
    age(raw, LEASE_S / 2)
    assert store.take(2) == [left]
    assert post_delivered(store, left)
    store.hold([left])
    assert store.take(2) == []


def test_failure_of_an_attempt_that_was_not_held_all_the_time_counts_for_nothing(
    raw: redis.Redis, hooked: Settings, store: Deliveries
) -> None:
    hold = Hold(time.monotonic() - 2 * LEASE_S)
    hold.renew(time.monotonic())
    with receiver(lambda n: (500 if n == 0 else 204, {}, b"")) as found:
        delivery = announce(store, found.url)
        assert store.take(1) == [delivery]
        store.run(lambda real: deliver(hooked, real, delivery, hold))
        assert (len(found.posts), attempts(raw, delivery), raw.exists("cl:failures")) == (1, [], 0)
        age(raw, LEASE_S)
        assert store.take(1) == [delivery]
        store.run(lambda real: deliver(hooked, real, delivery, hold))
    assert (found.ids, state(store, delivery)) == ([delivery] * 2, "delivered")


def test_list_of_a_jobs_webhooks_is_kept_as_long_as_the_last_of_them(bench: Bench, hooked: Settings) -> None:
    store = Deliveries(hooked.model_copy(update={"results_ttl_s": 60}))
    job = bench.submit(1, webhook=Webhook(url="https://a.example/y", events=("job.canceled", "job.completed")))
    bench.cancel(job)
    first, last = store.take(2)
    post_delivered(store, first)
    assert bench.raw.ttl(f"cl:deliveries:{job}") > 86_400
    post_delivered(store, last)
    assert 0 < bench.raw.ttl(f"cl:deliveries:{job}") <= 60


def test_deleted_job_takes_its_webhooks_along_even_amid_an_attempt(
    bench: Bench, hooked: Settings, store: Deliveries
) -> None:
    other = announce(store, "https://a.example/x")
    job = bench.submit(1, webhook=Webhook(url="https://a.example/y", events=("job.canceled", "job.completed")))
    bench.cancel(job)
    taken = store.take(2)
    assert len(taken) == 2
    assert pending(hooked) == 3
    Link(hooked.redis_url).run("delete", job=job, ttl=60)
    assert pending(hooked) == 1
    for each in set(taken) - {other}:
        assert store.fix(each, b"late") is None
        assert post_failed(store, each) == ""
        assert bench.raw.keys(f"cl:*{each}*") == []
    assert bench.raw.zrange("cl:due:a.example", 0, -1) == [other]


def test_delivery_that_breaks_leaves_its_place_to_others_and_its_host_alone(
    raw: redis.Redis, hooked: Settings, store: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corelane.store.deliveries.sending.HOST_THREADS", 1)
    with receiver() as found:
        hasty = hooked.model_copy(update={"webhook_retries_s": (0.05, 0.05)})
        broken = [announce(store, found.url) for _ in range(2)]
        for delivery in broken:
            raw.hdel(f"cl:delivery:{delivery}", "data")
        good = announce(store, found.url)
        with sender(hasty):
            eventually(lambda: state(store, good) == "delivered")
            eventually(lambda: {state(store, delivery) for delivery in broken} == {"dead"})
    assert "not the receiver's" in str(attempts(raw, broken[0])[0].error)
    assert not raw.exists("cl:failures", "cl:circuits")


def test_bytes_of_an_event_are_those_that_were_kept_first(store: Deliveries) -> None:
    delivery = announce(store, "https://a.example/x")
    assert store.fix(delivery, b"first") == b"first"
    assert store.fix(delivery, b"second") == b"first"
    found = store.get(delivery)
    assert isinstance(found, Delivery)
    assert (found.payload, found.data) == (b"first", None)


def test_full_redis_takes_what_ends_a_delivery(raw: redis.Redis, hooked: Settings, store: Deliveries) -> None:
    with receiver(lambda _: (200, {}, b"")) as found:
        delivery = announce(store, found.url)
        raw.config_set("maxmemory", 1)
        with sender(hooked):
            try:
                eventually(lambda: state(store, delivery) == "delivered")
            finally:
                raw.config_set("maxmemory", 0)


def test_attempts_are_logged_and_shown_in_order(hooked: Settings, store: Deliveries) -> None:
    with receiver(lambda n: (503 if n == 0 else 200, {}, b"x" * 5000)) as found, sender(hooked):
        delivery = announce(store, found.url)
        eventually(lambda: state(store, delivery) == "delivered")
    seen = store.get(delivery)
    assert seen is not None
    [entry] = of_log(hooked, lambda log: log.of(seen.subject))
    assert [attempt.status for attempt in entry.attempts] == [503, 200]
    assert all(len(attempt.snippet) == 1024 for attempt in entry.attempts)
    assert (entry.next_ms, entry.ended_ms is None) == (None, False)
    assert json.loads(found.posts[0].body)["data"] == {"n": 1}


def test_owners_events_are_signed_with_their_own_secrets_so_that_no_other_owner_can_forge_them(
    hooked: Settings, store: Deliveries
) -> None:
    values = [store.make_secret(owner, overlap_s) for owner, overlap_s in (("ann", 0), ("bob", 3600))]
    with receiver() as found, sender(hooked):
        ids = {
            schedule(hooked, "batch.completed", new_id("batch"), owner, found.url, {}): owner
            for owner in ("ann", "bob", "carl")
        }
        eventually(lambda: len(found.posts) == len(ids))
    verified = {ids[post.headers["webhook-id"]]: verifies(post, SECRET, *values) for post in found.posts}
    # Ann's are hers alone. Bob's receivers may still have the service's secret. Carl has none of his own.
    assert verified == {"ann": [False, True, False], "bob": [True, False, True], "carl": [True, False, False]}


def verifies(post: Post, *secrets: str) -> list[bool]:
    """Tell which secrets a post verifies with."""
    found = []
    for secret in secrets:
        try:
            found.append(bool(Verifier(secret).verify(post.body, post.headers)))
        except WebhookVerificationError:
            found.append(False)
    return found


def test_without_a_secret_the_sender_says_so_and_sends_nothing(
    raw: redis.Redis, hooked: Settings, store: Deliveries
) -> None:
    bare = hooked.model_copy(update={"webhook_secret": None})
    with receiver() as found, sender(bare):
        delivery = announce(store, found.url)
        eventually(lambda: len(attempts(raw, delivery)) > 0)
    assert "CORELANE_WEBHOOK_SECRET" in (attempts(raw, delivery)[0].error or "")
    assert found.posts == []


@pytest.fixture
def bench(hooked: Settings, raw: redis.Redis, bell: str) -> Bench:
    return Bench(hooked, raw, bell)
