"""The steps of a core towards its desired state, given the plan."""

from corelane.domain.placement import ALL_CORES, UNPLACED, Placement, PlacementScope, displace, place, reload
from corelane.store.plans import Plan
from workers.models.desired import DesiredModel, Step, VersionStatus, decide, is_settled
from workers.models.life import ModelEvent, ModelState

READY, FAILED, DRAINING = (VersionStatus(state) for state in (ModelState.READY, ModelState.FAILED, ModelState.DRAINING))
ME, OTHER = "host/0", "host/1"
EVERYWHERE = Placement(scope=PlacementScope.ALL, since_ms=5)
NOWHERE = displace(UNPLACED, ALL_CORES, 9)


def steps(event: ModelEvent, *wished: DesiredModel | str) -> list[Step]:
    """Return the same step for versions; one that is not wanted goes by its name."""
    return [(event, each if isinstance(each, DesiredModel) else DesiredModel(each)) for each in wished]


def test_what_the_settings_name_is_loaded_first_then_what_is_placed_here() -> None:
    plan = Plan({"a@2": EVERYWHERE, "a@3": place(UNPLACED, OTHER, 1)})
    assert decide(plan, ME, ["b@1"], {}) == steps(ModelEvent.ASK, DesiredModel("b@1"), DesiredModel("a@2", 5))


def test_what_is_held_as_wanted_is_left_alone() -> None:
    assert decide(Plan({"a@2": EVERYWHERE}), ME, ["a@1"], {"a@1": READY, "a@2": READY}) == []


def test_failed_load_is_tried_again_only_when_asked_for_again() -> None:
    failed = VersionStatus(ModelState.FAILED, 5)
    assert decide(Plan({"a@2": EVERYWHERE}), ME, [], {"a@2": failed}) == []
    again = Plan({"a@2": EVERYWHERE.model_copy(update={"since_ms": 6})})
    assert decide(again, ME, [], {"a@2": failed}) == steps(ModelEvent.ASK, DesiredModel("a@2", 6))


def test_unloaded_version_drains_until_its_last_job_is_final() -> None:
    busy = Plan({"a@1": NOWHERE}, holders={"a@1": [ME, OTHER]}, open_jobs={"a@1": 3})
    assert decide(busy, ME, ["a@1"], {"a@1": READY}) == steps(ModelEvent.DRAIN, "a@1")
    assert decide(busy, ME, ["a@1"], {"a@1": DRAINING}) == []
    done = Plan({"a@1": NOWHERE}, holders={"a@1": [ME, OTHER]})
    assert decide(done, ME, ["a@1"], {"a@1": DRAINING}) == steps(ModelEvent.LEAVE, "a@1")


def test_forced_version_leaves_at_once() -> None:
    plan = Plan({"a@1": displace(UNPLACED, ALL_CORES, 9, force=True)}, open_jobs={"a@1": 3})
    assert decide(plan, ME, ["a@1"], {"a@1": READY}) == steps(ModelEvent.LEAVE, "a@1")


def test_version_that_moves_leaves_once_another_core_that_keeps_it_holds_it() -> None:
    moved = displace(place(UNPLACED, OTHER, 1), ME, 2)
    alone = Plan({"a@1": moved}, holders={"a@1": [ME]}, open_jobs={"a@1": 3})
    assert decide(alone, ME, ["a@1"], {"a@1": READY}) == steps(ModelEvent.DRAIN, "a@1")
    both = Plan({"a@1": moved}, holders={"a@1": [ME, OTHER]}, open_jobs={"a@1": 3})
    assert decide(both, ME, ["a@1"], {"a@1": DRAINING}) == steps(ModelEvent.LEAVE, "a@1")


def test_draining_version_that_is_wanted_again_goes_on() -> None:
    assert decide(Plan({"a@1": EVERYWHERE}), ME, [], {"a@1": DRAINING}) == steps(
        ModelEvent.KEEP, DesiredModel("a@1", 5)
    )


def test_failed_versions_that_are_not_wanted_are_forgotten() -> None:
    assert decide(Plan(), ME, [], {"a@1": FAILED}) == steps(ModelEvent.FORGET, "a@1")


def test_plan_is_looked_at_again_while_a_version_comes_or_goes() -> None:
    assert is_settled({"a@1": READY, "a@2": FAILED})
    for state in (ModelState.LOADING, ModelState.DRAINING, ModelState.LEAVING):
        assert not is_settled({"a@1": VersionStatus(state)})


def test_version_is_loaded_anew_once_for_each_time_it_was_asked_for() -> None:
    placement = reload(UNPLACED, ALL_CORES, 7)
    desired = DesiredModel("a@1", 7, reload_ms=7)
    assert decide(Plan({"a@1": placement}), ME, ["a@1"], {"a@1": READY}) == steps(ModelEvent.RELOAD, desired)
    assert decide(Plan({"a@1": placement}), ME, ["a@1"], {}) == steps(ModelEvent.ASK, desired)
    done = VersionStatus(ModelState.READY, 7, 7)
    assert decide(Plan({"a@1": placement}), ME, ["a@1"], {"a@1": done}) == []
    other = reload(placement, OTHER, 8)
    assert decide(Plan({"a@1": other}), ME, ["a@1"], {"a@1": done}) == []
    assert decide(Plan({"a@1": other}), OTHER, ["a@1"], {"a@1": done}) == steps(
        ModelEvent.RELOAD, DesiredModel("a@1", 8, reload_ms=8)
    )


def test_version_with_another_manifest_than_asked_for_is_loaded_anew_until_that_was_tried() -> None:
    plan = Plan({"a@1": place(UNPLACED, ALL_CORES, 9, manifest="new")})
    held = VersionStatus(ModelState.READY, 5, manifest="old")
    assert decide(plan, ME, [], {"a@1": held}) == steps(ModelEvent.RELOAD, DesiredModel("a@1", 9, manifest="new"))
    assert decide(plan, ME, [], {"a@1": VersionStatus(ModelState.READY, 5, manifest="new")}) == []
    assert decide(plan, ME, [], {"a@1": VersionStatus(ModelState.READY, 9, manifest="old")}) == []


def test_load_that_has_not_begun_is_changed_and_taken_back_with_its_wish() -> None:
    waits = {"a@1": VersionStatus(ModelState.WAITING, 3)}
    assert decide(Plan({"a@1": EVERYWHERE}), ME, [], waits) == steps(ModelEvent.ASK, DesiredModel("a@1", 5))
    assert decide(Plan({"a@1": NOWHERE}), ME, [], waits) == steps(ModelEvent.FORGET, "a@1")
    reloads = {"a@1": VersionStatus(ModelState.RELOADING, 3)}
    assert decide(Plan({"a@1": NOWHERE}), ME, [], reloads) == steps(ModelEvent.KEEP, "a@1")
