"""Connections that ask too much or take nothing, on real sockets: what they hold is bounded, and given back."""

import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest

from corelane.settings import Settings
from tests.api.conftest import Service
from tests.api.wires import ESTABLISHED, connect, connections, request
from tests.integration.conftest import wait_for

ONE = {"question": "Who?", "context": "Ada."}

MOST = 5


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return Settings(
        **settings.model_dump(exclude_unset=True), max_connection_requests=MOST, send_timeout_s=0.5, max_body_bytes=4096
    )


def at_rest(service: Service) -> bool:
    """Whether no connection is left but that of the service's own client."""
    return connections(service) == {ESTABLISHED: 1}


def statuses(service: Service) -> list[str]:
    return [job["status"] for job in service.http.get("/v1/jobs").json()["data"]]


@pytest.mark.parametrize("count", [2, 900])
def test_requests_sent_ahead_of_a_caller_who_left_are_not_served(service: Service, count: int) -> None:
    service.http.get("/livez")
    caller = connect(service)
    caller.sendall(request("POST", "/v1/answers", ONE) * count)
    wait_for(lambda: len(statuses(service)) == 1)
    caller.close()
    wait_for(lambda: at_rest(service))
    wait_for(lambda: statuses(service) == ["canceled"])


def test_more_requests_sent_ahead_than_allowed_end_the_connection_after_an_answer(service: Service) -> None:
    with closing(connect(service)) as caller:
        caller.sendall(request("GET", "/livez") * 20)
        told = caller.makefile("rb").read().lower()
    assert told.count(b"http/1.1 200") == MOST
    assert told.count(b"connection: close") == 1


def test_requests_one_after_the_other_are_answered_without_end_on_one_connection(service: Service) -> None:
    with closing(connect(service)) as caller:
        answers = caller.makefile("rb")
        for _ in range(4 * MOST):
            caller.sendall(request("GET", "/livez") * 2)
            for _ in range(2):
                assert answers.readline().startswith(b"HTTP/1.1 200")
                while (line := answers.readline().strip().lower()) != b"":
                    assert not line.startswith(b"connection")
                answers.read(len(service.http.get("/livez").content))


def test_caller_who_floods_the_connection_behind_a_question_is_let_go(service: Service) -> None:
    service.http.get("/livez")
    with closing(connect(service)) as caller:
        caller.sendall(request("POST", "/v1/answers", ONE))
        wait_for(lambda: statuses(service) == ["queued"])
        flood = request("GET", "/livez") * 100_000
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            caller.sendall(flood)
        wait_for(lambda: statuses(service) == ["canceled"])
    wait_for(lambda: at_rest(service))


def test_caller_who_takes_nothing_of_the_answers_is_cut_off(service: Service) -> None:
    service.http.get("/livez")
    host, port = service.url.removeprefix("http://").split(":")
    with closing(socket.socket()) as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.connect((host, int(port)))
        caller.sendall(request("GET", "/livez"))
        assert caller.recv(1000).startswith(b"HTTP/1.1 200")
        assert connections(service) == {ESTABLISHED: 2}
        caller.sendall(request("GET", "/docs/swagger-ui-bundle.js") * 100)
        wait_for(lambda: at_rest(service))


@pytest.mark.parametrize("part", [30, -1], ids=["head", "body"])
def test_half_a_request_leaves_nothing_behind(service: Service, part: int) -> None:
    service.http.get("/livez")
    with closing(connect(service)) as caller:
        caller.sendall(request("POST", "/v1/answers", ONE)[:part])
    wait_for(lambda: at_rest(service))
    assert statuses(service) == []


def test_connection_that_its_caller_closed_is_not_kept_until_it_would_be_too_idle(service: Service) -> None:
    service.http.get("/livez")
    with closing(connect(service)) as caller:
        caller.sendall(request("GET", "/livez"))
        assert caller.recv(1000)
    wait_for(lambda: at_rest(service))


class Streams:
    """A caller of HTTP/2 who resets what it opens."""

    def __init__(self, service: Service) -> None:
        self.socket = connect(service)
        self._wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._wire.initiate_connection()
        self.allowed = self.answered = 0
        self.ended: h2.errors.ErrorCodes | int | None = None
        self.exchange(lambda: self.allowed > 0)

    def open(self, path: str, *, reset: bool) -> None:
        stream = self._wire.get_next_available_stream_id()
        head = [(":method", "GET"), (":scheme", "http"), (":authority", "here"), (":path", path)]
        self._wire.send_headers(stream, head, end_stream=True)
        if reset:
            self._wire.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)

    def has_answers(self, count: int) -> bool:
        return self.answered == count

    def exchange(self, until: Callable[[], bool]) -> None:
        """Send what is due and read, until something is so or the connection is closed."""
        self.socket.sendall(self._wire.data_to_send())
        while not until() and (data := self.socket.recv(65536)):
            for event in self._wire.receive_data(data):
                if isinstance(event, h2.events.RemoteSettingsChanged):
                    code = h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS
                    self.allowed = event.changed_settings[code].new_value
                elif isinstance(event, h2.events.DataReceived):
                    self._wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    self.answered += 1
                elif isinstance(event, h2.events.ConnectionTerminated):
                    self.ended = event.error_code
            self.socket.sendall(self._wire.data_to_send())


def test_caller_who_opens_streams_only_to_reset_them_is_told_to_calm_down(service: Service) -> None:
    service.http.get("/livez")
    caller = Streams(service)
    with closing(caller.socket):
        assert caller.allowed == MOST
        for _ in range(20 * MOST):
            caller.open("/v1/jobs", reset=True)
        caller.exchange(lambda: caller.ended is not None)
        assert caller.ended == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
        wait_for(lambda: at_rest(service))


def test_connection_over_http_2_goes_on_after_a_thousand_requests(service: Service) -> None:
    service.http.get("/livez")
    caller = Streams(service)
    with closing(caller.socket):
        for asked in range(MOST, 1100, MOST):
            for _ in range(MOST):
                caller.open("/docs", reset=False)
            caller.exchange(partial(caller.has_answers, asked))
        assert caller.ended is None
    wait_for(lambda: at_rest(service))
