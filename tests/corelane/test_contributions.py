"""What plugins contribute to a job's life by hooks of the Lua library."""

from pathlib import Path

import pytest

from corelane.domain.dispatch import PUBLIC
from corelane.store.link.library import make_library, read_code
from tests.corelane.store_bench import Bench, answered, claimed

PAINT = """-- Paint: each job has a colour; what it was answered with is noted at its end.
on('submit', function(job) job.fields.paint = 'red on ' .. job.fields.owner end)
on('finish', function(job, changes) changes.paint = job.paint .. ', dry' end, { 'paint' })
local function line(job) return job.id .. ' ' .. job.status .. ' ' .. job.owner end
on('finished', function(job) call('RPUSH', 'cl:painted', line(job)) end, { 'owner' })
on('forget', function(job) call('LREM', 'cl:painted', 0, line(job)) end)
define('read_paint', function(ask) return call('HGET', keys.job(ask.job), 'paint') end, 'no-writes')
"""


@pytest.fixture
def painted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the library carry one more area."""
    path = tmp_path / "paint.lua"
    path.write_text(PAINT)
    library = make_library(read_code([path]))
    monkeypatch.setattr("corelane.store.link.link.read_library", lambda: library)


@pytest.mark.usefixtures("painted")
def test_hooks_take_part_in_each_step_of_a_job(bench: Bench) -> None:
    core = bench.core("a/0")
    job = bench.submit(1)
    assert bench.upkeep._link.run("read_paint", job=job) == b"red on public"
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    assert bench.upkeep._link.run("read_paint", job=job) == b"red on public, dry"
    assert bench.raw.lrange("cl:painted", 0, -1) == [f"{job} succeeded {PUBLIC}"]
    assert bench.with_store(lambda store: store.delete(job))
    assert bench.raw.lrange("cl:painted", 0, -1) == []


def test_two_areas_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.lua"
    path.write_text("")
    with pytest.raises(ValueError, match="have one name"):
        read_code([path])
