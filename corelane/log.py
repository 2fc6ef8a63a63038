"""Logging: structlog over the standard library, so that Celery, Hypercorn and Redis join the same stream.

One JSON object a line, or coloured text on a terminal. Ids (job_id, core, …) are bound with
``structlog.contextvars``. Documents and questions are never logged.
"""

import logging
import sys
from typing import Any, Literal

import structlog

#: Celery's loggers that tell of every single task; our own lines say what a task did.
CHATTY_LOGGERS = ("celery.app.trace", "celery.worker.strategy", "celery.beat")


def configure_logging(level: str = "info", style: Literal["auto", "json", "pretty"] = "auto") -> None:
    """Send every log record of this process to standard error in one format. Safe to call again."""
    pretty = style == "pretty" or (style == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: list[Any] = (
        # Not rich's tracebacks: they show local variables, which may hold documents.
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if pretty
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level != "debug":
        for name in CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger named after the module that asks."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
