"""Logs tell what happened, never what was asked."""

import logging
import sys
import threading
from typing import Literal

import pytest
from pydantic import BaseModel, ValidationError
from structlog.testing import capture_logs

from corelane.log import Outage, PrintedLines, add_bound, bind_lines, configure_logging, get_logger, is_no_broker_line

MARKER = "the passage nobody may read"


class Small(BaseModel):
    number: int


@pytest.fixture(autouse=True)
def restored_logging() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def fail(passage: str) -> None:
    try:
        Small.model_validate({"number": passage})
    except ValidationError:
        raise RuntimeError("it broke") from None


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_neither_local_variables_nor_refused_values_are_logged(
    style: Literal["json", "pretty"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging("debug", style)
    try:
        fail(MARKER)
    except RuntimeError:
        get_logger("tests").exception("it_broke")
    try:
        Small.model_validate({"number": f"{MARKER}, input_type=str] {MARKER}"})
    except ValidationError as error:
        get_logger("tests").exception("refused")
        logging.getLogger("celery").exception("Task raised %s", error)
    logged = capsys.readouterr().err
    assert "RuntimeError: it broke" in logged
    assert logged.count("valid integer") == 3
    assert MARKER not in logged


def test_logger_that_was_used_follows_a_second_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    logger = get_logger("tests")
    for style in ("json", "pretty"):
        configure_logging("debug", style)
        logger.info("told", style=style)
        with capture_logs() as lines:
            logger.info("seen", style=style)
        assert [line["event"] for line in lines] == ["seen"]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("{")
    assert not second.startswith("{")


def test_outage_is_told_of_when_it_begins_and_when_it_is_over_for_all() -> None:
    with capture_logs() as lines:
        outage = Outage(get_logger("test"), "store")
        outage.served("a")
        for user in ("a", "b", "a", "b"):
            outage.lost("Redis does not answer", user)
        outage.served("a")
        outage.lost("Redis does not answer", "b")
        outage.served("b")
        outage.served("b")
    assert [(line["log_level"], line["event"]) for line in lines] == [("warning", "store_lost"), ("info", "store_back")]


def test_lines_of_celery_about_a_broker_that_is_away_are_left_out() -> None:
    def is_written(text: str, *args: object) -> bool:
        return is_no_broker_line(logging.LogRecord("celery", logging.ERROR, "", 0, text, args, None))

    assert not is_written("consumer: Cannot connect to %s", "redis://localhost")
    assert not is_written("consumer: Connection to broker lost. Trying again")
    assert is_written("something else")


def test_what_is_printed_is_logged_line_by_line_with_the_ids_of_its_thread() -> None:
    out = PrintedLines(sys.stdout)

    def show() -> None:
        bind_lines(version="a@1")
        for part in ("one ", "line\nand", " 10 %\r 20 %\rdone\n\n", "never ended"):
            print(part, end="", file=out)

    with capture_logs([add_bound]) as lines:
        thread = threading.Thread(target=show)
        thread.start()
        thread.join()
        print("apart", file=out)
    assert [(line["event"], line.get("version")) for line in lines] == [
        ("one line", "a@1"),
        ("done", "a@1"),
        ("apart", None),
    ]
