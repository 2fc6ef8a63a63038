"""Where a version is wanted."""

import pytest

from corelane.domain.placement import (
    ALL_CORES,
    UNPLACED,
    CoreSight,
    Placement,
    displace,
    is_wanted,
    place,
    predict,
    reload,
)

CORES = [f"host/{n}" for n in range(6)]


def wanted_on(placement: Placement, own: tuple[str, ...] = ()) -> list[str]:
    return [core for core in CORES if is_wanted(placement, core, is_own=core in own)]


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


def test_loading_anew_changes_nothing_about_where_a_version_is_wanted() -> None:
    named = place(UNPLACED, "host/1", 1, manifest="a")
    again = reload(named, "host/1", 5)
    assert wanted_on(again) == wanted_on(named)
    assert (again.manifest, again.reload_ms("host/1"), again.reload_ms("host/2")) == ("a", 5, 0)
    everywhere = reload(again, ALL_CORES, 6, manifest="b")
    assert (everywhere.manifest, {everywhere.reload_ms(core) for core in CORES}) == ("b", {6})
    assert displace(everywhere, "host/1", 7).reload_ms("host/2") == 6


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
        (UNPLACED, [sight(qa="failed"), sight("host/1", qa="waiting")], True, "it is waiting on host/1"),
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
