"""The watchdog of a core's worker: ends a process that would live on without ever consuming again.

A message whose acknowledgement fails is never given back to the worker's quota: kombu logs "Couldn't ack", and the
worker lives, answers pings, beats, and takes no more work, for good. Ended here, it is relaunched by its supervisor.
"""

import logging
import os
from collections.abc import Callable

#: The beginning of what kombu logs when an acknowledgement fails.
WEDGED = "Couldn't ack"

#: The logger Celery hands to kombu for it.
LOGGER = "celery.worker.request"


class EndWhenWedged(logging.Handler):
    """Ends this process with status 1 once it has logged that an acknowledgement failed."""

    def __init__(self, end: Callable[[int], object] = os._exit) -> None:
        super().__init__(logging.ERROR)
        self._end = end

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on to where it would go, as nothing after this line would, and end."""
        if not str(record.msg).startswith(WEDGED):
            return
        for handler in logging.getLogger().handlers:
            handler.handle(record)
            handler.flush()
        self._end(1)


def watch_acknowledgements() -> None:
    """Set the watchdog on this process; once is enough."""
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(handler, EndWhenWedged) for handler in logger.handlers):
        logger.addHandler(EndWhenWedged())
