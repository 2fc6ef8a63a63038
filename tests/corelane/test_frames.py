"""Frames of pandas and polars as items, and results beside them, against a real service whose engine is null."""

from collections.abc import Callable
from typing import Any

import pandas
import polars
import pytest

from corelane.client import Client
from corelane.errors import InvalidInput, ServiceError
from tests.corelane.both_clients import Awaited
from tests.corelane.stand_in import StandIn, many, problem
from tests.corelane.test_tables import MODEL


@pytest.mark.parametrize("kind", [Client, Awaited])
@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame])
def test_frames_are_given_and_taken(null_service: str, make: Callable[..., Any], kind: Callable[..., Any]) -> None:
    frame = make({"id": [7, 8, 9], "body": ["Good.", None, "Bad."], "label": ["x", "y", "z"]})
    with kind(null_service) as client:
        found = client.run_frame(MODEL, frame, map={"text": "body"})
        assert type(found) is type(frame)
        assert [*found.columns] == [
            "id",
            "body",
            "input_label",
            "status",
            "label",
            "score",
            "windows",
            "error",
            "model",
        ]
        assert [*found["status"]] == ["succeeded", "failed", "succeeded"]
        assert [*found["error"]][1].startswith("row 2: text: this is required")
        with pytest.raises(InvalidInput, match="the frame has `id`, `body`, `label`: it needs `text`"):
            client.run_frame(MODEL, frame)
        with pytest.raises(InvalidInput, match="takes a DataFrame of pandas or polars, not a list"):
            client.run_frame(MODEL, [])
        if isinstance(frame, pandas.DataFrame):
            large = pandas.DataFrame({"text": ["a"] * 5000}, index=[*range(5000, 0, -1)])
            assert [*client.run_frame(MODEL, large).index] == [*large.index]


def test_a_frame_that_cannot_go_on_cancels_its_jobs_though_one_is_gone(client: Client, service: StandIn) -> None:
    def page(*_: object) -> dict[str, Any]:
        service.refusals.append(problem(404, "not_found", "it was deleted"))
        raise RuntimeError("the service broke")

    service.page = page  # type: ignore[assignment, method-assign]
    rows = many(2500)
    with pytest.raises(ServiceError, match="HTTP 500"):
        client.run_frame("one", pandas.DataFrame(rows))
    assert (len(service.jobs), service.canceled) == (3, [*service.jobs][1:])
