"""Callers who leave while they wait, over real connections: what nobody waits for is not computed."""

import socket
import struct
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx2
import pytest

from corelane.domain.jobs import JobStatus
from tests.api.conftest import Service
from tests.api.wires import ESTABLISHED, connections, send
from tests.tools.waiting import eventually

ONE = {"question": "Who?", "context": "Ada."}
AS_PIPELINE = {"inputs": [ONE, ONE]}


def hang_up(caller: socket.socket) -> None:
    caller.close()


def reset(caller: socket.socket) -> None:
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()


def close_sending_side(caller: socket.socket) -> None:
    caller.shutdown(socket.SHUT_WR)


def statuses(service: Service) -> list[JobStatus]:
    return [JobStatus(job["status"]) for job in service.http.get("/v1/jobs").json()["data"]]


@pytest.mark.parametrize("leave", [hang_up, reset, close_sending_side])
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/answers", ONE), ("/v1/hf/question-answering", AS_PIPELINE)], ids=["answers", "hf"]
)
def test_job_of_a_caller_who_left_is_canceled(
    service: Service, path: str, body: Any, leave: Callable[[socket.socket], None]
) -> None:
    with closing(send(service, "POST", path, body)) as caller:
        eventually(lambda: statuses(service) == [JobStatus.QUEUED])
        leave(caller)
        eventually(lambda: statuses(service) == [JobStatus.CANCELED])


def test_key_that_the_route_does_not_know_keeps_no_job(service: Service) -> None:
    send(service, "POST", "/v1/answers", ONE, "Idempotency-Key: mine").close()
    eventually(lambda: statuses(service) == [JobStatus.CANCELED])


def test_job_that_was_submitted_with_a_wait_outlives_its_caller(service: Service) -> None:
    submitting = send(service, "POST", "/v1/jobs", ONE, "Prefer: wait=60")
    eventually(lambda: statuses(service) == [JobStatus.QUEUED])
    job = service.http.get("/v1/jobs").json()["data"][0]["id"]
    looking = send(service, "GET", f"/v1/jobs/{job}?wait=60")
    eventually(lambda: connections(service) == {ESTABLISHED: 3})
    submitting.close()
    looking.close()
    eventually(lambda: connections(service) == {ESTABLISHED: 1})
    assert statuses(service) == [JobStatus.QUEUED]


def test_caller_who_is_answered_202_may_leave(service: Service) -> None:
    with httpx2.Client(base_url=service.url, timeout=60) as caller:
        given = caller.post("/v1/answers", json=ONE, headers={"Prefer": "wait=0"})
        assert given.status_code == 202
    assert statuses(service) == [JobStatus.QUEUED]
