"""What Celery is told so that it comes back soon after Redis does, and holds nobody up until then."""

from typing import Any

import pytest
from kombu import Connection

from corelane.broker.app import make_celery
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
