"""Placements and aliases in the store: wishes in one step, closed versions, and jobs that come at the wrong moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from corelane.domain.placement import Placement, PlacementScope
from corelane.errors import NotFound, UnknownModel, VersionInUse, VersionNotReady
from corelane.store.fleet import Announcer, Fleet
from corelane.store.link.link import AsyncLink
from corelane.store.plans import Plans
from corelane.store.rollout import Rollout
from tests.corelane.store_bench import VERSION, Bench, announce, answered, claimed

NEXT = "tiny@2"

Found = TypeVar("Found")


def ask(bench: Bench, action: Callable[[Rollout], Awaitable[Found]]) -> Found:
    return bench.with_link(lambda link: action(Rollout(link)))


def admitted(bench: Bench, model: str, key: str = "") -> str | None:
    return bench.with_store(lambda store: store.admit(model, key)).version


def add_next(bench: Bench, core: str = "a/0") -> None:
    announce(bench.settings, core, NEXT)
    Announcer(bench.settings, core).beat({"state": "idle"}, [VERSION, NEXT], [])


def test_closed_version_takes_no_more_jobs_and_tells_when_its_last_one_is_final(bench: Bench) -> None:
    core = bench.core("a/0")
    add_next(bench)
    job = bench.submit(3)
    ask(bench, lambda rollout: rollout.set_alias("default", {NEXT: 1}))
    assert ask(bench, lambda rollout: rollout.unload(VERSION, "all")).is_nowhere
    assert (admitted(bench, VERSION), admitted(bench, "default")) == (None, NEXT)
    plans = Plans(bench.settings, "a/0", bench.bell)
    assert plans.read([VERSION]).open_jobs == {VERSION: 1}
    claim = claimed(core)
    core.commit(claim.lease, answered(claim))
    assert bench.get(job).status == "succeeded"
    assert plans.read([VERSION]).open_jobs == {VERSION: 0}
    assert not bench.raw.exists("cl:jobs")


def test_models_name_means_its_newest_version_that_serves_unless_an_alias_has_that_name(bench: Bench) -> None:
    bench.core("a/0")
    announcer, plans = Announcer(bench.settings, "a/0"), Plans(bench.settings, "a/0", bench.bell)

    def serve(*versions: str) -> None:
        bench.raw.delete(*bench.raw.keys("cl:holders:other@*") or ["none"])
        announcer.beat({"state": "idle"}, [VERSION, *versions], [])

    for version, day in (("other@1", 1), ("other@2", 2), ("other@3", 3), ("others@4", 4)):
        plans.announce(version, {"name": version.partition("@")[0], "created_at": f"2026-01-0{day}"}, [])
    serve("other@1")
    assert admitted(bench, "other") == "other@1"
    serve("other@1", "other@2")
    assert admitted(bench, "other") == "other@2"
    assert admitted(bench, "other@1") == "other@1"
    serve()
    assert admitted(bench, "other") == "other@3"
    bench.raw.hset("cl:closed", "other@3", 1)
    assert admitted(bench, "other") == "other@2"
    assert (admitted(bench, "othe"), admitted(bench, "other@")) == (None, None)
    ask(bench, lambda rollout: rollout.set_alias("other", {"other@1": 1}, force=True))
    assert admitted(bench, "other") == "other@1"


def test_job_admitted_before_its_version_was_closed_is_not_kept_but_can_be_admitted_again(bench: Bench) -> None:
    bench.core("a/0")
    ask(bench, lambda rollout: rollout.unload(VERSION, "all", force=True))
    before = sorted(bench.raw.keys("cl:job:*"))
    with pytest.raises(UnknownModel):
        bench.submit(1)
    assert sorted(bench.raw.keys("cl:job:*")) == before
    ask(bench, lambda rollout: rollout.load(VERSION, "all"))
    bench.submit(1)


def test_canceled_and_expired_jobs_hold_no_version(bench: Bench) -> None:
    bench.core("a/0")
    bench.cancel(bench.submit(2))
    bench.submit(2, expires_in_s=60)
    bench.age(60)
    bench.upkeep.tend()
    assert not bench.raw.exists("cl:jobs")


def test_version_is_not_unloaded_while_an_alias_means_it(bench: Bench) -> None:
    bench.core("a/0")
    add_next(bench)
    ask(bench, lambda rollout: rollout.set_alias("canary", {VERSION: 9, NEXT: 1}))
    with pytest.raises(VersionInUse, match="'canary'"):
        ask(bench, lambda rollout: rollout.unload(NEXT, "all"))
    ask(bench, lambda rollout: rollout.unload(NEXT, "all", force=True))
    assert {admitted(bench, "canary", f"k{n}") for n in range(50)} == {VERSION}
    with pytest.raises(VersionInUse, match="being unloaded"):
        ask(bench, lambda rollout: rollout.set_alias("blue", {NEXT: 1}))


def test_alias_moves_to_what_is_known_and_held_only(bench: Bench) -> None:
    bench.core("a/0")
    with pytest.raises(UnknownModel):
        ask(bench, lambda rollout: rollout.set_alias("default", {"tiny@9": 1}))
    announce(bench.settings, "a/0", "tiny@9")
    with pytest.raises(VersionNotReady):
        ask(bench, lambda rollout: rollout.set_alias("default", {VERSION: 9, "tiny@9": 1}))
    ask(bench, lambda rollout: rollout.set_alias("default", {"tiny@9": 1}, force=True))
    assert admitted(bench, "default") == "tiny@9"


def test_alias_set_through_the_api_is_moved_by_no_worker_until_it_is_unset(bench: Bench) -> None:
    bench.core("a/0")
    add_next(bench)
    ask(bench, lambda rollout: rollout.set_alias("default", {NEXT: 1}))
    bench.core("b/0")
    assert admitted(bench, "default") == NEXT
    assert ask(bench, lambda rollout: rollout.unset_alias("default")) == {VERSION: 1.0}
    assert admitted(bench, "default") == VERSION
    with pytest.raises(NotFound):
        ask(bench, lambda rollout: rollout.unset_alias("default"))


def test_last_core_that_holds_a_version_keeps_it_unless_forced(bench: Bench) -> None:
    bench.core("a/0")
    with pytest.raises(VersionInUse, match="the only core"):
        ask(bench, lambda rollout: rollout.unload(VERSION, "a/0"))
    bench.core("b/0")
    placement = ask(bench, lambda rollout: rollout.unload(VERSION, "a/0"))
    assert (placement.scope, placement.without) == (PlacementScope.SETTINGS, ("a/0",))


def test_unknown_version_cannot_be_unloaded(bench: Bench) -> None:
    with pytest.raises(UnknownModel):
        ask(bench, lambda rollout: rollout.unload("tiny@9", "all"))


def test_changes_made_at_once_are_all_kept(bench: Bench) -> None:
    async def load_everywhere(rollout: Rollout) -> list[Placement]:
        return list(await asyncio.gather(*(rollout.load(VERSION, f"h/{n}") for n in range(10))))

    ask(bench, load_everywhere)
    placement = Plans(bench.settings, "h/0", bench.bell).read([]).placements[VERSION]
    assert sorted(placement.cores) == sorted(f"h/{n}" for n in range(10))
    assert int(bench.raw.get("cl:plan")) == 10


def test_unloaded_version_is_listed_until_it_is_done(bench: Bench) -> None:
    async def listed(link: AsyncLink) -> list[tuple[str, bool, int]]:
        return [(record.version, record.is_closed, record.open_jobs) for record in await Fleet(link).models()]

    bench.core("a/0")
    job = bench.submit(1)
    assert bench.with_link(listed) == [(VERSION, False, 1)]
    ask(bench, lambda rollout: rollout.unload(VERSION, "all", force=True))
    assert bench.with_link(listed) == [(VERSION, True, 1)]
    bench.cancel(job)
    Plans(bench.settings, "a/0", bench.bell).release(VERSION)
    assert bench.with_link(listed) == []


def test_version_that_is_served_can_be_asked_to_be_loaded_anew(bench: Bench) -> None:
    bench.core("a/0")
    placement = ask(bench, lambda rollout: rollout.reload(VERSION, "all"))
    assert (placement.scope, placement.reload_ms("a/0")) == (PlacementScope.SETTINGS, placement.since_ms)
    with pytest.raises(UnknownModel):
        ask(bench, lambda rollout: rollout.reload("tiny@9", "all"))
    ask(bench, lambda rollout: rollout.unload(VERSION, "all", force=True))
    with pytest.raises(VersionInUse, match="being unloaded"):
        ask(bench, lambda rollout: rollout.reload(VERSION, "all"))
