"""Two machines of one name: the second says so, and one that takes the place of a lost one waits for its lease."""

import threading
import time

import pytest
import redis
from structlog.testing import capture_logs

from corelane.domain.dispatch import Core
from corelane.errors import SetupError
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.fleet import Announcer
from workers.core import duplicate_host
from workers.core.duplicate_host import DuplicateHostWatch, read_boot, require_own_name

CORE = Core("test", 0)


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"heartbeat_s": 0.02})


def test_name_that_nobody_else_has_is_taken(quick: Settings, raw: redis.Redis) -> None:
    require_own_name(quick, CORE)
    for boot in (read_boot(), ""):
        raw.hset(keys.core(CORE), mapping={"boot": boot, "beat_ms": 1})
        require_own_name(quick, CORE)


def test_name_of_a_lost_machine_is_taken_once_its_lease_is_over(quick: Settings, raw: redis.Redis) -> None:
    raw.hset(keys.core(CORE), mapping={"boot": "another", "beat_ms": 1})
    raw.pexpire(keys.core(CORE), 200)
    require_own_name(quick, CORE)
    assert not raw.exists(keys.core(CORE))


def test_name_of_a_living_machine_is_refused(quick: Settings, raw: redis.Redis) -> None:
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.001):
            raw.hset(keys.core(CORE), mapping={"boot": "another", "beat_ms": time.monotonic_ns()})

    raw.hset(keys.core(CORE), mapping={"boot": "another", "beat_ms": 0})
    other = threading.Thread(target=beat)
    other.start()
    try:
        with pytest.raises(SetupError, match=r"another machine serves a core named test/0; .* CORELANE_CORE_HOST"):
            require_own_name(quick, CORE)
    finally:
        over.set()
        other.join()


def test_machine_that_tells_no_boot_is_not_asked(
    quick: Settings, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_host, "read_boot", str)
    raw.hset(keys.core(CORE), mapping={"boot": "another", "beat_ms": 1})
    require_own_name(quick, CORE)


def test_two_that_start_at_once_say_so_once(settings: Settings, raw: redis.Redis) -> None:
    watch = DuplicateHostWatch(CORE, Announcer(settings, str(CORE)).read)
    with capture_logs() as logs:
        watch.look()
        raw.hset(keys.core(CORE), "boot", read_boot())
        watch.look()
        assert logs == []
        raw.hset(keys.core(CORE), "boot", "another")
        watch.look()
        watch.look()
    [line] = logs
    assert (line["event"], line["core"]) == ("core_name_shared", "test/0")
    assert "CORELANE_CORE_HOST" in line["detail"]
