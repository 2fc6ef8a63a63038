"""How fast a core is, by its own samples."""

from corelane.domain.dispatch import Core
from workers.core.heartbeat import Vitals


def test_small_batches_do_not_slow_a_core_that_was_seen_at_full_speed() -> None:
    vitals = Vitals(Core("test", 0))
    assert vitals.speed() is None
    for _ in range(10):
        vitals.worked.append((64, 0.5, False))
    assert vitals.speed() == 128.0
    vitals.worked.append((4096, 0.5, True))
    for _ in range(10):
        vitals.worked.append((64, 0.5, False))
    assert vitals.speed() == 8192.0
