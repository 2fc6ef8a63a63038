"""Pauses of versions and owners: nothing new is claimed, nothing is lost, and nobody takes it for a fault."""

from typing import Any

import pytest

from corelane.domain.dispatch import PUBLIC
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Priority
from corelane.domain.pauses import PauseKind, Pauses
from corelane.errors import NotFound
from corelane.settings import Settings
from corelane.store.fleet import Announcer
from corelane.store.gauges import Work, read_work
from corelane.store.jobs.submission import ItemFile
from corelane.store.pauses import PauseStore
from tests.corelane.store_bench import VERSION, Bench, LoneCore, announce, answer_all, answered, claimed
from tests.corelane.test_feeding import feeder_of, submit_upload
from tests.tools.keys import add_keys

ANN, BOB, BY = "ann", "bob", "ops"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give a core that was announced once a lease for the whole test."""
    return settings.model_copy(update={"lease_s": 60})


def pause(bench: Bench, kind: str, name: str) -> bool:
    """Pause something; return whether that is new."""
    if name in (ANN, BOB):
        add_keys(bench.settings, name)
    return bench.with_link(lambda link: PauseStore(link, bench.bell).pause(PauseKind(kind), name, BY))[1]


def resume(bench: Bench, kind: str, name: str) -> bool:
    return bench.with_link(lambda link: PauseStore(link, bench.bell).resume(PauseKind(kind), name))


def paused(bench: Bench) -> Pauses:
    return bench.with_link(lambda link: PauseStore(link, "").read())


def work(bench: Bench) -> Work:
    return bench.with_link(read_work)


def backlog_s(bench: Bench, work: Work) -> float:
    return bench.with_link(work.backlog_s)


def owners_of(core: LoneCore) -> set[str]:
    """Claim; return the owners of what was claimed, and answer it."""
    claim = core.claim([VERSION], linger=False)
    if claim is None:
        return set()
    core.commit(claim.lease, answered(claim))
    return {ref.owner for ref, _ in claim.refs}


def is_rung(bench: Bench, core: str) -> bool:
    return bench.raw.get(f"cl:bell:{core}") == "r"


def test_paused_owner_waits_while_another_is_served_and_loses_nothing(bench: Bench) -> None:
    core = bench.core("a/0")
    in_flight = bench.submit(2, owner=ANN)
    before = claimed(core)
    assert pause(bench, "owner", ANN)
    waiting = [bench.submit(count, owner=ANN, priority=each) for count in (1, 100) for each in Priority]
    other = bench.submit(3, owner=BOB)
    core.commit(before.lease, answered(before))
    assert bench.get(in_flight).status == "succeeded"
    assert owners_of(core) == {BOB}
    assert owners_of(core) == set()
    assert bench.get(other).status == "succeeded"
    assert {bench.get(job).status for job in waiting} == {"queued"}
    assert resume(bench, "owner", ANN)
    assert is_rung(bench, "a/0")
    answer_all(core)
    assert {bench.get(job).status for job in waiting} == {"succeeded"}
    assert bench.waiting() == {}
    assert not bench.raw.exists("cl:owed", "cl:paused")


def test_owner_who_was_paused_saved_nothing_up_and_nobody_starts_level_with_it(bench: Bench) -> None:
    core = bench.core("a/0")
    for owner in (ANN, BOB):
        bench.submit(3200, owner=owner)
    pause(bench, "owner", ANN)
    for _ in range(8):
        assert owners_of(core) == {BOB}
    served = bench.raw.zscore("cl:shares:1", BOB)
    bench.submit(1, owner="new")
    assert bench.raw.zscore("cl:shares:1", "new") == served - 1
    owners_of(core)
    resume(bench, "owner", ANN)
    assert bench.raw.zscore("cl:shares:1", ANN) >= served - 1


def test_lost_work_of_a_paused_owner_holds_up_nobody(bench: Bench) -> None:
    lost, core = bench.core("a/0"), bench.core("b/0")
    first = bench.submit(1, owner=ANN)
    claimed(lost)
    pause(bench, "owner", ANN)
    bench.upkeep.return_own("a/0")
    bench.submit(1, owner=BOB)
    assert owners_of(core) == {BOB}
    assert bench.get(first).succeeded == 0
    resume(bench, "owner", ANN)
    assert owners_of(core) == {ANN}


def test_paused_version_waits_on_every_core_while_another_is_served(bench: Bench) -> None:
    core = bench.core("a/0")
    announce_other(bench, "a/0")
    pause(bench, "model", VERSION)
    waits, goes = bench.submit(1), bench.submit(1, version="other@1")
    later = bench.core("b/0")
    for each in (core, later):
        claim = each.claim([VERSION, "other@1"], linger=False)
        if claim is not None:
            each.commit(claim.lease, answered(claim))
    assert (bench.get(waits).status, bench.get(goes).status) == ("queued", "succeeded")
    assert resume(bench, "model", VERSION)
    assert is_rung(bench, "a/0")
    assert owners_of(later)


def announce_other(bench: Bench, core: str) -> None:
    announce(bench.settings, core, "other@1")
    Announcer(bench.settings, core).beat({"state": "idle"}, [VERSION, "other@1"], [])


def test_pause_is_told_once_and_what_is_unknown_is_refused(bench: Bench) -> None:
    bench.core("a/0")
    assert [pause(bench, "model", VERSION) for _ in range(2)] == [True, False]
    [found] = paused(bench).all
    assert (found.kind, found.name, found.by) == ("model", VERSION, BY)
    assert [resume(bench, "model", VERSION) for _ in range(2)] == [True, False]
    for kind, name in (("model", "gone@1"), ("owner", "nobody")):
        with pytest.raises(NotFound, match=kind):
            pause(bench, kind, name)
        with pytest.raises(NotFound, match=kind):
            resume(bench, kind, name)


def test_keeper_rings_no_core_for_what_is_paused(bench: Bench) -> None:
    bench.core("a/0")
    bench.submit(1, owner=ANN)

    def silent() -> list[Any]:
        ask = {"grace_ms": 0, "ttl": 60}
        bench.raw.hset("cl:claimed", "a/0", 1)
        return bench.with_link(lambda link: link.run("tend", **ask))

    assert silent() == [b"a/0"]
    pause(bench, "owner", ANN)
    assert silent() == []
    bench.submit(1, owner=BOB)
    assert silent() == [b"a/0"]
    pause(bench, "model", VERSION)
    assert silent() == []


@pytest.mark.parametrize(("kind", "name"), [("owner", ANN), ("model", VERSION)])
def test_paused_backlog_is_no_backlog(bench: Bench, kind: str, name: str) -> None:
    bench.core("a/0", 1000.0)
    bench.raw.hset("cl:core:a/0", "versions", f'["{VERSION}"]')
    bench.submit(400, owner=ANN)
    bench.submit(1, owner=ANN)
    file = ItemFile("job_x", 1000, 50_000)
    bench.submit(0, new_job_id(), owner=ANN, file=file)
    open_work = work(bench)
    assert backlog_s(bench, open_work) > 10
    assert open_work.oldest_s
    pause(bench, kind, name)
    held_up = work(bench)
    assert (held_up.outstanding, held_up.paused) == (open_work.outstanding, open_work.outstanding)
    assert (sum(held_up.movable.values()), backlog_s(bench, held_up), held_up.oldest_s) == (0, 0.0, {})


def test_job_in_a_file_is_fed_no_further_while_paused_and_whole_afterwards(bench: Bench) -> None:
    core, feeder = bench.core("a/0"), feeder_of(bench)
    job, _ = submit_upload(bench, 3000)
    assert bench.get(job).owner == PUBLIC
    pause(bench, "owner", PUBLIC)
    while feeder.feed(job):
        pass
    assert core.claim([VERSION], linger=False) is None
    assert 0 < bench.get(job).fed < 3000
    held_up = work(bench)
    assert held_up.paused == held_up.outstanding
    resume(bench, "owner", PUBLIC)
    for _ in range(20):
        answer_all(core)
        while feeder.feed(job):
            pass
    assert bench.get(job).succeeded == 3000
