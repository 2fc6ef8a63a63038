"""What Celery is told so that it comes back soon after Redis does, and holds nobody up until then."""

from typing import Any

import pytest
from kombu import Connection, Queue

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


def test_one_that_waits_for_a_message_soon_looks_whether_it_has_to_stop(settings: Settings) -> None:
    connection = make_celery(settings).connection_for_read()
    with connection, connection.Consumer([Queue("keeper")], callbacks=[print]), pytest.raises(TimeoutError):
        connection.drain_events(timeout=3600)


def test_channel_closes_without_its_wait_for_a_message(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = make_celery(settings).connection_for_read()
    with connection, connection.Consumer([Queue("keeper")], callbacks=[print]) as consumer:
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.01)
        assert consumer.channel._in_poll
        monkeypatch.setattr(type(consumer.channel), "_brpop_read", lambda *_, **__: pytest.fail("it waits"))
        consumer.channel.close()
        assert consumer.channel.closed
