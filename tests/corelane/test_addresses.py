"""Addresses are shown without passwords, refused with a sentence, and ports are held without a race."""

import socket
from contextlib import closing

import pytest

from corelane.cli.ports import hold_port, require_port
from corelane.errors import SetupError
from corelane.settings.address import local_url
from corelane.settings.rules import without_password
from tests.conftest import free_port as any_port


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://user:se:cret@host:1/0", "rediss://***@host:1/0"),
        ("redis://:secret@host/0", "redis://***@host/0"),
        ("redis://:p@ss/w@host/0", "redis://***@host/0"),
        ("me:p@ss@host", "***@host"),
        ("redis://host/0?password=secret&db=1", "redis://host/0?password=***&db=1"),
        ("redis://host/0?password=p@ss&db=1", "redis://host/0?password=***&db=1"),
        ("redis://me:p@ss@host/0?password=p@ss", "redis://***@host/0?password=***"),
        (
            "redis+sentinel://me:p@a:1,b:2/main/0?sentinel_password=x",
            "redis+sentinel://***@a:1,b:2/main/0?sentinel_password=***",
        ),
        ("rediss://a/0?ssl_password=x&ssl_keyfile=k", "rediss://a/0?ssl_password=***&ssl_keyfile=k"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_taken_port_is_refused_and_no_other_is_taken() -> None:
    with closing(hold_port("127.0.0.1", any_port())) as held:
        port = held.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port} of 127.0.0.1 is taken.*choose another with --port"):
            hold_port("127.0.0.1", port)
        with pytest.raises(SetupError, match="choose another with --flower-port"):
            require_port("127.0.0.1", port, "--flower-port")
    assert require_port("127.0.0.1", port) == port
    assert require_port("127.0.0.1", 0) > 0


def test_caller_waits_while_nobody_answers_on_a_held_port() -> None:
    with closing(hold_port("127.0.0.1", 0)) as held, socket.create_connection(held.getsockname(), 5) as caller:
        caller.sendall(b"hello")
        accepted, _ = held.accept()
        with accepted:
            assert accepted.recv(5) == b"hello"


def test_addresses_can_be_opened_from_here() -> None:
    assert local_url("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert local_url("::", 80) == "http://[::1]:80"
