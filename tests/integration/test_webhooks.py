"""A webhook given with a job arrives once it is final, and its signature verifies with the stock library."""

from collections.abc import Iterator

import pytest
from pytest_httpserver import HTTPServer
from standardwebhooks.webhooks import Webhook
from werkzeug import Request, Response

from tests.integration.conftest import WEBHOOK_SECRET, Fleet, wait_for


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1") as server:
        yield server


def submit(fleet: Fleet, url: str) -> dict:
    body = {"question": "Who?", "context": "Ada wrote it.", "webhook": {"url": url, "events": ["job.completed"]}}
    return fleet.api.post("/v1/jobs", json=body).json()


def test_final_status_is_posted_and_signed(fleet: Fleet, receiver: HTTPServer) -> None:
    seen: list[tuple[dict[str, str], bytes]] = []

    def take(request: Request) -> Response:
        seen.append((dict(request.headers), request.get_data()))
        return Response(status=204)

    receiver.expect_request("/hook", method="POST").respond_with_handler(take)
    job = submit(fleet, receiver.url_for("/hook"))
    wait_for(lambda: len(seen) > 0, 20)
    headers, body = seen[0]
    event = Webhook(WEBHOOK_SECRET).verify(body, headers)
    assert event["type"] == "job.completed"
    assert event["data"]["id"] == job["id"]
    assert event["data"]["status"] == "succeeded"
    assert event["data"]["counts"]["succeeded"] == 1


def test_failed_delivery_is_tried_again_with_the_same_id_and_bytes(fleet: Fleet, receiver: HTTPServer) -> None:
    seen: list[tuple[str, bytes]] = []

    def refuse_once(request: Request) -> Response:
        seen.append((request.headers["webhook-id"], request.get_data()))
        return Response(status=500 if len(seen) == 1 else 204)

    receiver.expect_request("/again", method="POST").respond_with_handler(refuse_once)
    submit(fleet, receiver.url_for("/again"))
    wait_for(lambda: len(seen) == 2, 30)
    assert seen[0] == seen[1]


def test_redirect_is_not_followed(fleet: Fleet, receiver: HTTPServer) -> None:
    receiver.expect_request("/from").respond_with_data("", status=302, headers={"Location": receiver.url_for("/to")})
    receiver.expect_request("/to").respond_with_data("")
    submit(fleet, receiver.url_for("/from"))
    wait_for(lambda: len(receiver.log) > 0, 20)
    assert [request.path for request, _ in receiver.log] == ["/from"]
