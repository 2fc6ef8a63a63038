"""Many open batches of several owners: each owner has its turn."""

import pytest
import redis

from corelane.plugins.files.batches.task import BatchRunner
from corelane.settings import Settings
from tests.plugins.files.batch_bench import BatchBench, line
from tests.tools.told_core import telling

OTHERS = [f"other{n}" for n in range(9)]


@pytest.fixture
def bench(settings: Settings, raw: redis.Redis, bell: str) -> BatchBench:
    return BatchBench(settings, raw, bell)


def content(lines: int) -> bytes:
    return b"".join(line(f"c{n}") for n in range(lines))


def test_nobody_waits_behind_another_owners_hundred_batches_and_huge_file(bench: BatchBench) -> None:
    small = content(10)
    hogs = [bench.begin(content(20_000), owner="hog"), *(bench.begin(small, owner="hog") for _ in range(100))]
    others = [bench.begin(small, owner=owner) for owner in OTHERS for _ in range(3)]
    with telling(bench, ["question-answering"]):
        bench.in_context(lambda context: BatchRunner(context).run(lambda: False))
    ended = {batch: bench.record(batch) for batch in (*hogs, *others)}
    assert {record.status for record in ended.values()} == {"completed"}
    last = max(ended[batch].times["completed"] for batch in others)
    before = [batch for batch in hogs if ended[batch].times["completed"] < last]
    assert hogs[0] not in before
    assert len(before) < 50
