"""The audit can fail: it reports a fence that is gone, an end told twice, a webhook that never came, a result that
changed, a key left behind.
"""

import os
import re
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from corelane.store.link import library
from corelane.tasks.question_answering.wire import AnswerResult
from tests.chaos.audit import Findings, audit, examine_events, examine_hooks, examine_writes, look_for_leftovers
from tests.chaos.hooks import Hooks
from tests.chaos.load import Load, make
from tests.chaos.watch import Sight, Watch, held_by, stored_indexes
from tests.tools.fleet import SHAKEN, Fleet, running
from tests.tools.receivers import Post, Receiver
from tests.tools.waiting import eventually

#: Short leases, so that a frozen core loses its work soon; and batches long enough for it to wake up before others have
#: answered all of it.
SLOW = {"CORELANE_LEASE_S": "2", "CORELANE_HEARTBEAT_S": "0.5", "CORELANE_NULL_BATCH_S": "0.15"}


#: How often a core is frozen until it commits late.
FREEZES = 4


def without_fence(folder: Path) -> Path:
    """Copy the store's library, with a commit that counts items its claim no longer holds."""
    shutil.copytree(library.FOLDER, folder)
    commits = folder / "commits.lua"
    text, broken = re.subn(
        r"if not held then return nil end", "if not held then return ref.tokens end", commits.read_text()
    )
    assert broken == 1
    commits.write_text(text)
    return folder


def run_with_a_frozen_core(folder: Path, settings: dict[str, str]) -> Findings:
    """One core is stopped while it holds slices, until another has begun to answer them; then it commits late.

    It is stopped again, with another job, where that went well: it may have seen first that its lease was over.
    """
    shaken = Fleet(folder, "--cores", "2", "--no-flower", settings=SHAKEN | SLOW | settings, proxied=True, shaken=True)
    with running(shaken) as fleet, Watch(fleet.redis) as watch, fleet.redis.client() as raw:
        load, child, findings = Load(fleet.url, seed=1), fleet.child_of("core0"), Findings()
        assert child is not None
        for number in range(FREEZES):
            job = make(f"frozen-{number}", 2000)
            with fleet.http() as http:
                assert load.submit(http, job)
            eventually(lambda: sum(map(len, held_by(raw, "testhost/0").values())) >= 64)
            os.kill(child, signal.SIGSTOP)
            eventually(partial(has_answers, raw, job.id, held_by(raw, "testhost/0")[job.id]))
            os.kill(child, signal.SIGCONT)
            findings = audit(fleet, load, watch.sight, settle_s=12, tidy_s=2, strange_ends=fleet.strange_ends())
            if findings.problems:
                break
        return findings


def has_answers(raw: Any, job: str, items: set[int]) -> bool:
    return len(items.intersection(stored_indexes(raw, job))) >= 3


@pytest.mark.chaos
def test_audit_sees_a_broken_fence(tmp_path: Path) -> None:
    broken = run_with_a_frozen_core(tmp_path / "broken", {"CHAOS_LIBRARY": str(without_fence(tmp_path / "library"))})
    assert broken.repeated_results > 0
    assert any(text.startswith("repeated:") for text in broken.problems)


@pytest.mark.chaos
@pytest.mark.slow
def test_audit_finds_nothing_where_the_fence_holds(tmp_path: Path) -> None:
    assert run_with_a_frozen_core(tmp_path / "sound", {}).problems == []


def test_audit_sees_an_end_that_was_told_twice_or_never(raw: redis.Redis) -> None:
    for job in ("twice", "never", "once"):
        raw.hset(f"cl:job:{{{job}}}", "status", "succeeded")
    findings = Findings()
    examine_events(findings, raw, Sight(events={"twice": ["succeeded", "succeeded"], "once": ["succeeded"]}))
    assert (findings.repeated_events, findings.missing_events) == (1, 1)
    assert len(findings.problems) == 2


def hooks_with(*posts: tuple[str, str, str, int]) -> Hooks:
    """Make a receiver that got an event of an id, about a job with a status, and answered with another."""
    found = Hooks(Receiver("http://127.0.0.1:1/hook"))
    for number, (event, job, status, answer) in enumerate(posts):
        body = orjson.dumps({"type": "job.completed", "data": {"id": job, "status": status}})
        found.found.posts.append(Post("/hook", {"webhook-id": event}, body))
        found.statuses[number] = answer
    return found


def test_audit_sees_webhooks_that_never_came_came_twice_changed_or_lied(raw: redis.Redis) -> None:
    for job in ("well", "refused", "twice", "changed", "lied"):
        raw.hset(f"cl:job:{{{job}}}", mapping={"status": "succeeded", "webhook_url": "http://127.0.0.1:1/hook"})
    hooks = hooks_with(
        *(("e1", "well", "succeeded", 500), ("e1", "well", "succeeded", 200), ("e2", "refused", "succeeded", 500)),
        *(("e3", "twice", "succeeded", 200), ("e4", "twice", "succeeded", 200)),
        *(("e5", "changed", "succeeded", 200), ("e5", "changed", "failed", 200), ("e6", "lied", "failed", 200)),
    )
    findings = Findings()
    examine_hooks(findings, raw, hooks)
    assert (findings.events, findings.repeated_posts, findings.missing_posts) == (6, 2, 1)
    told = "\n".join(findings.problems)
    for job in ("refused", "twice", "lied", "e5"):
        assert job in told
    assert "well" not in told


def test_audit_sees_a_result_that_was_overwritten(raw: redis.Redis) -> None:
    raw.hset("cl:out:{job}", mapping={"0": "[]", "32": "[]"})
    findings, sight = Findings(), Sight()
    sight.writes["job"] = 3
    examine_writes(findings, raw, sight)
    assert findings.changed_results == 1


def test_audit_sees_a_result_that_changed() -> None:
    job = make("token", 1)
    job.look([AnswerResult(index=0, id="token/0", status="succeeded")])
    assert job.changed == 0
    job.look([AnswerResult(index=0, id="token/0", status="failed")])
    assert job.changed == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("SET", "cl:surprise", "1"), "documented"),
        (("HSET", "cl:claim:chaos/0#7", "job:0", "ref"), "still there"),
        (("ZADD", "cl:leases", 1, "chaos/0#7"), "still there"),
        (("HSET", "cl:held", "chaos/0", "-64"), "zero"),
        (("HSET", "cl:in:{job_1}", "0", "[]"), "still there"),
    ],
)
def test_audit_sees_what_is_left_over(raw: redis.Redis, command: tuple[str, ...], told: str) -> None:
    raw.execute_command(*command)
    [found] = look_for_leftovers(raw)
    assert told in found


def test_what_outlives_a_job_for_a_while_is_not_left_over(raw: redis.Redis) -> None:
    raw.hset("cl:job:{job_1}", "status", "canceled")
    raw.hset("cl:in:{job_1}", "0", "[]")
    raw.expire("cl:in:{job_1}", 60)
    raw.hset("cl:job:{job_2}", mapping={"status": "succeeded", "failed": 1})
    raw.hset("cl:in:{job_2}", "0", "[]")
    raw.expire("cl:in:{job_2}", 60)
    raw.hset("cl:held", "chaos/0", "0")
    assert look_for_leftovers(raw) == []
