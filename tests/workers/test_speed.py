"""How fast a core is, by its own samples."""

from corelane.domain.forecast import Speed
from workers.core.speed import SpeedMeter


def test_small_batches_do_not_slow_a_core_that_was_seen_at_full_speed() -> None:
    meter = SpeedMeter()
    assert meter.speed() is None
    for _ in range(10):
        meter.add(64, 0.5, full=False)
    assert meter.speed() == Speed(128, 128, 128)
    meter.add(4096, 0.5, full=True)
    for _ in range(10):
        meter.add(64, 0.5, full=False)
    assert meter.speed() == Speed(8192, 8192, 8192)
