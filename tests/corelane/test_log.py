"""Logs tell what happened, never what was asked."""

import logging
from typing import Literal

import pytest
from pydantic import BaseModel, ValidationError

from corelane.log import configure_logging, get_logger

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
