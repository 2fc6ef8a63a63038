"""The event of a batch: one, in the step that ends it, whatever the end."""

from collections.abc import Callable

import orjson
import pytest
import redis

from corelane.settings import Settings
from corelane.store import keys
from tests.corelane.store_bench import LoneCore
from tests.plugins.files.batch_bench import BatchBench, line


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> BatchBench:
    return BatchBench(settings, raw, bell)


def cancel(bench: BatchBench, _core: LoneCore, batch: str) -> None:
    bench.in_context(lambda context: context.batches.cancel(batch))


def expire(bench: BatchBench, _core: LoneCore, _batch: str) -> None:
    bench.age(60)
    bench.upkeep.tend()


@pytest.mark.parametrize(
    ("content", "do", "event"),
    [
        (line("a"), lambda bench, core, _: bench.answer(core), "batch.completed"),
        (b"{}\n", lambda *_: None, "batch.failed"),
        (line("a"), cancel, "batch.cancelled"),
        (line("a"), expire, "batch.expired"),
    ],
)
def test_batch_has_one_event_with_what_is_shown_of_it(
    bench: BatchBench, content: bytes, do: Callable[[BatchBench, LoneCore, str], None], event: str
) -> None:
    core = bench.core("a/0")
    batch, unasked = (
        bench.begin(content, window="60s", webhook={"url": "https://example.com/hook"} | more)
        for more in ({}, {"events": ["batch.failed" if event != "batch.failed" else "batch.expired"]})
    )
    bench.steps()
    for each in (batch, unasked):
        do(bench, core, each)
    for _ in range(2):
        bench.steps()
    [delivery] = bench.raw.zrange(keys.deliveries(batch), 0, -1)
    kept = bench.raw.hgetall(keys.delivery(delivery))
    assert (kept["event"], kept["subject"], kept["owner"]) == (event, batch, "ann")
    assert orjson.loads(kept["data"]) == bench.batch(batch).model_dump(mode="json")
    assert bench.raw.zcard(keys.deliveries(unasked)) == 0
