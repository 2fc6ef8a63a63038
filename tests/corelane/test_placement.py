"""Where a version is wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.placement import (
    ALL_CORES,
    MOST_REPLACED,
    UNPLACED,
    CoreSight,
    Placement,
    chosen,
    counted,
    displace,
    is_wanted,
    load_places,
    place,
    predict,
    reload,
)

CORES = [f"host/{n}" for n in range(6)]


def wanted_on(placement: Placement, own: tuple[str, ...] = ()) -> list[str]:
    return [core for core in CORES if is_wanted(placement, "qa@1", core, CORES, is_own=core in own)]


def test_unplaced_version_is_wanted_where_the_settings_name_it() -> None:
    assert wanted_on(UNPLACED, own=("host/1",)) == ["host/1"]


def test_all_cores_but_those_that_were_left() -> None:
    everywhere = place(UNPLACED, ALL_CORES, 1)
    assert wanted_on(everywhere) == CORES
    assert wanted_on(displace(everywhere, "host/2", 2)) == [core for core in CORES if core != "host/2"]
    assert wanted_on(place(displace(everywhere, "host/2", 2), "host/2", 3)) == CORES


def test_named_cores_add_up_beside_those_of_the_settings() -> None:
    named = place(place(UNPLACED, "host/0", 1), "host/4", 2)
    assert wanted_on(named, own=("host/5",)) == ["host/0", "host/4", "host/5"]
    assert wanted_on(displace(named, "host/5", 3), own=("host/5",)) == ["host/0", "host/4"]


def test_unloaded_from_all_it_stays_away_whatever_the_settings_say() -> None:
    gone = displace(UNPLACED, ALL_CORES, 1)
    assert gone.is_nowhere
    assert wanted_on(gone, own=tuple(CORES)) == []
    assert wanted_on(place(gone, "host/3", 2), own=tuple(CORES)) == ["host/3"]


def test_so_many_cores_are_chosen_and_the_dead_replaced() -> None:
    two = place(UNPLACED, ALL_CORES, 1, count=2)
    held = wanted_on(two)
    assert len(held) == 2
    left = [core for core in CORES if core != held[0]]
    after = [core for core in left if is_wanted(two, "qa@1", core, left, is_own=False)]
    assert len(after) == 2
    assert held[1] in after
    assert len(wanted_on(place(UNPLACED, ALL_CORES, 1, count=99))) == len(CORES)


@given(st.sets(st.sampled_from(CORES), min_size=1), st.sampled_from(CORES), st.integers(1, 6))
def test_core_that_joins_or_dies_changes_at_most_one_other(living: set[str], core: str, count: int) -> None:
    before, after = set(chosen("qa@1", living - {core}, count)), set(chosen("qa@1", living | {core}, count))
    assert len(before - after) <= 1
    assert after - before <= {core}


@given(st.sets(st.sampled_from(CORES)), st.integers(1, 6))
def test_failed_cores_are_replaced_as_far_as_there_are_others_but_only_a_few(failed: set[str], count: int) -> None:
    held = set(counted(place(UNPLACED, ALL_CORES, 1, count=count), "qa@1", CORES, failed))
    if len(failed) <= MOST_REPLACED:
        assert not held & failed
    assert len(held) == min(count, len(CORES) - min(len(failed), MOST_REPLACED))


def test_loading_anew_changes_nothing_about_where_a_version_is_wanted() -> None:
    two = place(UNPLACED, ALL_CORES, 1, count=2, manifest="a")
    again = reload(two, "host/1", 5)
    assert wanted_on(again) == wanted_on(two)
    assert (again.manifest, again.reload_ms("host/1"), again.reload_ms("host/2")) == ("a", 5, 0)
    everywhere = reload(again, ALL_CORES, 6, manifest="b")
    assert (everywhere.manifest, {everywhere.reload_ms(core) for core in CORES}) == ("b", {6})
    assert displace(everywhere, "host/1", 7).reload_ms("host/2") == 6


def test_share_of_the_hosts_own_cores_loads_at_a_time_at_least_one() -> None:
    living = [*(f"a/{n}" for n in range(8)), "b/0"]
    assert [load_places(core, living, 0.25) for core in ("a/0", "b/0", "c/0")] == [2, 1, 1]
    assert load_places("a/0", living, 1) == 8


ON_ALL, NOWHERE = place(UNPLACED, ALL_CORES, 1), displace(UNPLACED, ALL_CORES, 1)


def sight(name: str = "host/0", silent_s: float = 0.5, state: str | None = "idle", **versions: str) -> CoreSight:
    return CoreSight(name, silent_s, state, {f"{model}@1": how for model, how in versions.items()}, {"qa@1": "no file"})


@pytest.mark.parametrize(
    ("placement", "cores", "is_expected", "word"),
    [
        (UNPLACED, [sight(other="ready")], False, "none is about to"),
        (UNPLACED, [sight(qa="failed")], False, "no file"),
        (UNPLACED, [sight(qa="leaving")], False, "none is about to"),
        (NOWHERE, [sight(other="ready")], False, "none is about to"),
        (ON_ALL, [sight(qa="failed"), sight("host/1", qa="failed")], False, "no file"),
        (UNPLACED, [sight(qa="loading")], True, "it is loading on host/0"),
        (UNPLACED, [sight(qa="failed"), sight("host/1", qa="lazy")], True, "it is lazy on host/1"),
        (ON_ALL, [sight(other="ready")], True, "it is wanted on host/0"),
        (UNPLACED, [sight(state="starting")], True, "host/0 is starting"),
        (UNPLACED, [], True, "no core lives"),
        (UNPLACED, [sight(state=None, silent_s=3000)], True, "no core lives"),
        (UNPLACED, [sight(other="ready"), sight("host/1", 20, None)], True, "host/1 was there 20 s ago"),
        (UNPLACED, [sight(other="ready"), sight("host/1", 90, None)], False, "none is about to"),
    ],
)
def test_version_that_no_core_holds_is_expected_only_where_one_will(
    placement: Placement, cores: list[CoreSight], is_expected: bool, word: str
) -> None:
    outlook = predict("qa@1", placement, cores)
    assert outlook.is_expected == is_expected
    assert word in outlook.reason
