"""A core's process gives signs of life from its first second, whether Redis is there or not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corelane.domain.dispatch import Core
from corelane.metrics.liveness import read_liveness
from corelane.settings import Settings
from tests.conftest import free_port
from workers.core.faults import FaultHistory, FaultRecord
from workers.core.process import CoreProcess


@contextmanager
def started(
    folder: Path, history: FaultHistory, should_stop: Callable[[], bool], *, is_stuck: bool = False
) -> Iterator[list[tuple[str, str]]]:
    """Start a core's process without Redis; yield the states and reasons it notes, by the time it has to stop."""
    settings = Settings(
        redis_url=f"redis://127.0.0.1:{free_port()}/0",
        target="null",
        core_host="pod-0",
        health_dir=folder,
        heartbeat_s=0.05,
    )
    record = FaultRecord()
    record.save(history)
    process = CoreProcess(settings, Core("pod-0", 0), "bell", record)
    if is_stuck:
        process.vitals.running_since = float("-inf")
    process.start(should_stop)
    try:
        yield [(sign.state, sign.reason) for sign in read_liveness(folder)]
    finally:
        process.close()
        assert read_liveness(folder) == [], "one that was asked to end is not missed"


def test_process_gives_a_sign_before_redis_is_there(tmp_path: Path) -> None:
    with started(tmp_path, FaultHistory(), lambda: True) as signs:
        assert signs == [("starting", "")]


def test_core_that_is_held_is_waiting_and_one_that_is_broken_out_of_service(tmp_path: Path) -> None:
    def is_waiting() -> bool:
        return any(sign.state == "waiting" for sign in read_liveness(tmp_path / "held"))

    held = FaultHistory(busy=9, reason="process 7 holds the core")
    with started(tmp_path / "held", held, is_waiting) as signs:
        assert signs == [("waiting", "process 7 holds the core")]
    broken = FaultHistory(out=True, reason="status 1200")
    with started(tmp_path / "broken", broken, lambda: True) as signs:
        assert signs == [("out_of_service", "status 1200")]


def test_process_whose_batch_does_not_end_gives_no_sign(tmp_path: Path) -> None:
    with started(tmp_path, FaultHistory(), lambda: True, is_stuck=True) as signs:
        assert signs == []
