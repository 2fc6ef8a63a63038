"""A worker whose acknowledgement failed would never consume again: it is ended, and says why before."""

import logging
import subprocess
import sys

import pytest

from workers.watchdog import LOGGER, watch_acknowledgements

#: What kombu does where an acknowledgement fails, with Celery's own logger and a channel that is gone.
FAIL_TO_ACK = """
from celery.worker import request
from kombu.message import Message
from corelane.log import configure_logging
from workers.watchdog import watch_acknowledgements

class GoneChannel:
    no_ack_consumers = ()
    def basic_ack(self, *args, **kwargs):
        raise ConnectionResetError("reset by peer")

configure_logging()
watch_acknowledgements()
request.logger.critical("something else")
Message("body", delivery_tag="bell-7", channel=GoneChannel()).ack_log_error(request.logger, (ConnectionError,))
print("lives on")
"""


def test_worker_ends_after_it_could_not_acknowledge() -> None:
    done = subprocess.run([sys.executable, "-c", FAIL_TO_ACK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "something else" in done.stderr
    assert done.stderr.count("Couldn't ack 'bell-7'") == 1


def test_watchdog_is_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger(LOGGER)
    monkeypatch.setattr(logger, "handlers", [])
    watch_acknowledgements()
    watch_acknowledgements()
    assert len(logger.handlers) == 1
