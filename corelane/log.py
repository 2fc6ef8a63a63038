"""Logging: structlog over the standard library, so that Celery, Hypercorn and Redis write to the same stream.

The texts of items are never logged. Corelane's lines are written by structlog's last step. Only lines of libraries
go through the standard library, which takes three times as long.
"""

import io
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping
from contextlib import nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal, NoReturn, TextIO

import orjson
import structlog

#: Celery's loggers that write a line for every task; Corelane's own lines say what a task did.
CHATTY_LOGGERS = ("celery.app.trace", "celery.worker.strategy", "celery.beat")

#: A long outage is logged again after this time, in seconds.
TELL_AGAIN_S = 60.0

#: How Celery's lines about an unreachable broker begin, and the logger they come from.
BROKER_LINES = ("consumer: Connection to broker lost", "consumer: Cannot connect to", "Skipping prefetch count")
BROKER_LOGGER = "celery.worker.consumer.consumer"

#: The last characters that are kept of a printed line before it ends.
MOST_PRINTED_CHARS = 100_000

#: How pydantic's errors quote the refused value, in one line.
QUOTING = "input_value="
QUOTED_INPUT = re.compile(r"input_value=.*(?=, input_type=)")


#: The ids that are added to every line of this thread, or of this task of asyncio.
_BOUND: ContextVar[Mapping[str, str] | None] = ContextVar("bound", default=None)


#: The steps that write Corelane's lines. The list is never replaced, as a logger keeps the first list that it saw.
_steps: list[Any] = []

#: The kinds of plugins' errors that this process has logged.
_failed: set[tuple[str, ...]] = set()


class PassedOver:
    """A guard that suppresses errors of a plugin's hook, so that core goes on. It logs each kind of error once."""

    __slots__ = ("_hook", "_plugin")

    def __init__(self, plugin: str, hook: str) -> None:
        self._plugin, self._hook = plugin, hook

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        if (failed := (self._plugin, self._hook, kind.__name__)) not in _failed:
            _failed.add(failed)
            get_logger(__name__).error("plugin_failed", plugin=self._plugin, hook=self._hook, exc_info=error)
        return True


class PrintedLines(io.TextIOBase):
    """A standard stream whose lines become lines of the log, with the ids of the thread that prints them."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        #: The bytes of the stream itself, for those that write to it alone.
        self.buffer = stream.buffer
        self._stream, self._begun = stream, threading.local()
        self._log = get_logger("printed")

    def fileno(self) -> int:
        """Return the number of the stream's file."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Say that it takes text."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that are complete now. Of a line that was written over, as by a bar, the last state counts."""
        *lines, begun = f"{getattr(self._begun, 'text', '')}{text}".split("\n")
        self._begun.text = begun.rpartition("\r")[2][-MOST_PRINTED_CHARS:]
        for line in lines:
            if shown := line.rstrip("\r").rpartition("\r")[2].rstrip():
                self._log.info(shown)
        return len(text)


def log_prints() -> None:
    """Write what this process prints from now on to the log."""
    sys.stdout, sys.stderr = PrintedLines(sys.stdout), PrintedLines(sys.stderr)


def bind_lines(**ids: str) -> None:
    """Add these ids to every later line of this thread or task, in place of earlier ids."""
    _BOUND.set(ids)


def configure_logging(level: str = "info", style: Literal["auto", "json", "pretty"] = "auto") -> None:
    """Send every log record of this process to standard error in one format. Safe to call again."""
    pretty = style == "pretty" or (style == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        add_bound,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        add_time,
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_traceback)]
        if pretty
        else [structlog.processors.ExceptionRenderer(_format_traceback), structlog.processors.JSONRenderer(to_json)]
    )
    handler = logging.StreamHandler(sys.stderr)
    _steps[:] = [
        structlog.stdlib.filter_by_level,
        *shared,
        structlog.stdlib.PositionalArgumentsFormatter(),
        *renderer,
        LineWriter(handler),
    ]
    structlog.configure(
        processors=_steps,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, hide_inputs],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level != "debug":
        logging.getLogger(BROKER_LOGGER).addFilter(is_no_broker_line)
        for name in CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)


class LineWriter:
    """The last step of Corelane's lines: writes each to the stream of the root logger's handler, under its lock."""

    def __init__(self, handler: "logging.StreamHandler[TextIO]") -> None:
        self._handler = handler

    def __call__(self, _: object, __: str, line: Any) -> NoReturn:
        """Write a line; raise DropEvent, as there are no further steps."""
        handler = self._handler
        with handler.lock or nullcontext():
            try:
                handler.stream.write(f"{line}\n")
                handler.stream.flush()
            except (OSError, ValueError):
                pass  # The one who read our lines is gone: work goes on.
        raise structlog.DropEvent


def add_bound(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the bound ids to a line, unless it has them itself."""
    for name, value in (_BOUND.get() or {}).items():
        event.setdefault(name, value)
    return event


def add_time(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the time of a line, in microseconds."""
    seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
    event["timestamp"] = f"{_second(seconds)}.{micros:06d}Z"
    return event


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def to_json(event: Mapping[str, Any], **_: object) -> str:
    """Return a line as JSON; values that JSON lacks are written by Python's ``repr``."""
    try:
        return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # A number or text beyond what orjson takes.
        return json.dumps(event, default=repr)


class Outage:
    """Log an outage when it begins, now and then while it lasts, and when it is over.

    Several users may share one; the outage is over when all of them are served again. Thread-safe.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str) -> None:
        """Lines are named ``EVENT_lost``, ``EVENT_away`` and ``EVENT_back``."""
        self._log, self._event = log, event
        self._without: set[str] = set()
        self._since_s = self._told_s = float("-inf")
        self._lock = threading.Lock()

    def lost(self, detail: str, user: str = "") -> None:
        """Note that a user could not be served."""
        with self._lock:
            now = time.monotonic()
            is_first = not self._without
            self._without.add(user)
            if is_first:
                self._since_s = self._told_s = now
                self._log.warning(f"{self._event}_lost", detail=detail)
            elif now - self._told_s >= TELL_AGAIN_S:
                self._told_s = now
                self._log.warning(f"{self._event}_away", detail=detail, for_s=round(now - self._since_s))

    def served(self, user: str = "") -> None:
        """Note that a user was served."""
        if not self._without:
            return
        with self._lock:
            if user in self._without:
                self._without.discard(user)
                if not self._without:
                    self._log.info(f"{self._event}_back", after_s=round(time.monotonic() - self._since_s, 1))


def is_no_broker_line(record: logging.LogRecord) -> bool:
    """Leave out Celery's lines about an unreachable broker: loops and cores log each ``Outage`` themselves."""
    return not record.getMessage().startswith(BROKER_LINES)


def hide_inputs(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove the values that pydantic quotes in a library's line: they are parts of documents."""
    if QUOTING in (text := str(event.get("event", ""))):
        event["event"] = QUOTED_INPUT.sub(rf"{QUOTING}…", text)
    return event


def _write_traceback(out: TextIO, exc_info: Any) -> None:
    """Write a traceback without local variables and without quoted values, which are parts of documents."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(QUOTED_INPUT.sub(rf"{QUOTING}…", text.getvalue()))


def _format_traceback(exc_info: Any) -> str:
    text = io.StringIO()
    _write_traceback(text, exc_info)
    return text.getvalue().strip()


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger named after the calling module."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
