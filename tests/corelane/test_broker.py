"""What Celery is told so that it comes back: soon after Redis does, and whatever a host's clock says."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from celery.beat import Scheduler
from kombu import Connection

from corelane.broker import make_celery
from corelane.settings import Settings


def test_pauses_between_attempts_to_connect_stay_short(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def remember(self: Connection, *args: Any, **kwargs: Any) -> Connection:
        given.update(kwargs)
        return self

    monkeypatch.setattr(Connection, "ensure_connection", remember)
    app = make_celery(Settings())
    connection = app.connection_for_read()
    assert connection.ensure_connection(print, None, callback=print) is connection
    assert given["interval_max"] <= 2
    assert given["interval_start"] <= 1


def test_beat_goes_by_a_clock_that_is_never_put_back(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    app = make_celery(settings.model_copy(update={"sweep_s": 0.01}))
    beat = Scheduler(app, max_interval=0.01)
    sent: list[str] = []
    monkeypatch.setattr(beat, "apply_entry", lambda entry, producer=None: sent.append(entry.name))
    monkeypatch.setattr(beat, "_do_sync", lambda: None)

    def tick_until(count: int) -> None:
        deadline = time.monotonic() + 5
        while len(sent) < count and time.monotonic() < deadline:
            time.sleep(min(max(beat.tick(), 0), 0.05))
        assert len(sent) >= count

    tick_until(2)
    monkeypatch.setattr(app, "now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    tick_until(4)
