"""Logging: structlog over the standard library, so that Celery, Hypercorn and Redis join the same stream.

One JSON object a line, or coloured text on a terminal. Ids (job_id, core, …) are bound with
``structlog.contextvars``. Documents and questions are never logged.
"""

import io
import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import structlog

#: Celery's loggers that tell of every single task; our own lines say what a task did.
CHATTY_LOGGERS = ("celery.app.trace", "celery.worker.strategy", "celery.beat")

#: How pydantic's errors quote what they refuse, in one line.
QUOTING = "input_value="
QUOTED_INPUT = re.compile(r"input_value=.*(?=, input_type=)")


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
        [hide_inputs, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_traceback)]
        if pretty
        else [structlog.processors.format_exc_info, hide_inputs, structlog.processors.JSONRenderer()]
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


def hide_inputs(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Strike out what pydantic quotes of the values it refuses: they are parts of documents."""
    for name in ("event", "exception"):
        if QUOTING in (text := str(event.get(name, ""))):
            event[name] = QUOTED_INPUT.sub(rf"{QUOTING}…", text)
    return event


def _write_traceback(out: TextIO, exc_info: Any) -> None:
    """A traceback as text; not rich's, which shows local variables, and so documents."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(QUOTED_INPUT.sub(rf"{QUOTING}…", text.getvalue()))


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger named after the module that asks."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
