import pytest

from corelane.domain.dispatch import Core, Ref, return_refs
from corelane.domain.ids import new_job_id


def test_ref_survives_the_lane() -> None:
    ref = Ref(new_job_id(), "public", 1, 96, 96, 32, 4000, 2)
    assert Ref.decode(ref.encode()) == ref


def test_returned_refs_are_single_items_with_one_attempt_more() -> None:
    returned = return_refs(Ref("job_x", "public", 1, 96, 96, 4, 400))
    assert [(r.payload, r.offset, r.first, r.count, r.tokens, r.attempt) for r in returned] == [
        (96, 0, 96, 1, 100, 2),
        (96, 1, 97, 1, 100, 2),
        (96, 2, 98, 1, 100, 2),
        (96, 3, 99, 1, 100, 2),
    ]
    assert return_refs(returned[2]) == [Ref("job_x", "public", 1, 96, 98, 1, 100, 3)]


def test_core_names_its_queue_and_node() -> None:
    core = Core.parse("gpu-7/12")
    assert (core.queue, core.node, str(core)) == ("core.gpu-7.12", "core12@gpu-7", "gpu-7/12")
    with pytest.raises(ValueError, match="host/0"):
        Core.parse("gpu-7")
