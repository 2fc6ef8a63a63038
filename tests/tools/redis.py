"""The Redis servers of the tests, and who asks them: the service as a user of the access control list, or anyone.

``REDIS_TEST_SERVER`` names another server than the bundled one: one of ``tests.redis_servers.debian``.

With ``REDIS_TEST_ACL=1`` (``make test-acl``) each server has the ACL file of ``deploy/redis``, and
the code under test gets a URL with the service's user. The tests' own clients are the user ``default``, who may do all.
"""

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from corelane.cli.redis_server import find_server
from corelane.cli.redis_users import with_user
from deploy.redis.users import PATH
from tests.redis_servers.debian import SERVERS

IS_ON = os.environ.get("REDIS_TEST_ACL", "") not in ("", "0")

USER, PASSWORD = "corelane", "password-of-the-service-in-tests"

#: The name of the server to test with; the one that `serve` would start if empty.
SERVER = os.environ.get("REDIS_TEST_SERVER", "")

#: The tests' own user, who needs no password.
ANYONE = "user default on nopass ~* &* +@all"


def server_binary() -> Path:
    """Return the server to test with."""
    if not SERVER:
        return find_server()
    [path] = [server.path for server in SERVERS if server.name == SERVER]
    if not path.exists():
        raise RuntimeError(f"no {SERVER} here: `make redis-servers` gets it")
    return path


def users_file(folder: Path, is_on: bool = IS_ON) -> Path | None:
    """Write an ACL file for a server in this folder, if there is to be one."""
    if not is_on:
        return None
    path = folder / "users.acl"
    path.write_text(f"{ANYONE}\n{filled_users()}")
    return path


def filled_users(password: str = PASSWORD) -> str:
    """Return the users of ``deploy/redis/users.acl``, all with one password, without the line for ``default``."""
    text = PATH.read_text().partition("\n")[2]
    return text.replace("#DIGEST", f"#{hashlib.sha256(password.encode()).hexdigest()}")


def service_url(port: int, is_on: bool = IS_ON) -> str:
    """Return the URL of a server with such a file, as the service gets it."""
    url = f"redis://127.0.0.1:{port}/0"
    return with_user(url, USER, PASSWORD) if is_on else url


def client_of(url: str, timeout_s: float | None = None) -> Any:
    """Return a client that repeats nothing: the library's own waits for seconds where a server has not started."""
    times = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True, **times)


def admin_url(url: str) -> str:
    """Return the same server's URL for a user who may do all."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def at_port(url: str, port: int) -> str:
    """Return a URL with another port of this machine, as that of a proxy."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()
