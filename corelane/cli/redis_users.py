"""The users of the Redis that `corelane serve` starts. Those of another Redis are in ``deploy/redis/users.acl``.

No other user of the machine can read or change the queue of a Redis that `serve` starts.

The operator is Redis' user ``default``, with every right and a password that is kept in the data folder, where only
this user of the machine can read it. The service is user ``corelane``, with the rights that it needs. Its workers run
handlers: they are user ``corelane-worker``, which may make no API keys. Both get a new password at every start, which
their parts find in the environment. The ACL file has only digests. Other users are kept.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from corelane.cli.folders import create_private, keep_private, read_private
from corelane.cli.output import error_console
from corelane.errors import SetupError
from corelane.settings.rules import without_password
from corelane.store.acl import EVERYTHING, service_rules, user_line, worker_rules

OPERATOR, SERVICE, WORKER = "default", "corelane", "corelane-worker"

#: The file of the password, in the data folder; and the ACL file, in Redis' folder below the data folder.
PASSWORD_FILE, ACL_FILE = "redis-password", "users.acl"

#: Random bytes of a password. They cannot be guessed, although the ACL file has a fast digest of it.
PASSWORD_BYTES = 32


def keep_password(path: Path) -> str:
    """Return the password in a file; if there is none, make one that only this user of the machine can read."""
    if not path.exists():
        keep_private(path, secrets.token_urlsafe(PASSWORD_BYTES))
    return read_password(path)


def read_password(path: Path) -> str:
    """Return the password in a file; raise SetupError if it cannot be read or holds none."""
    password = read_private(path, "password")
    if not password or any(sign.isspace() for sign in password):
        raise SetupError(f"{path} holds no password: one line, without spaces")
    return password


def write_users(folder: Path, operator: str, service: str, worker: str) -> Path:
    """Write the ACL file into Redis' folder, with the passwords of operator, service and workers; return its path."""
    path = folder / ACL_FILE
    lines = [
        user_line(OPERATOR, operator, EVERYTHING),
        user_line(SERVICE, service, service_rules()),
        user_line(WORKER, worker, worker_rules()),
    ]
    names = [line.split()[1] for line in lines]
    before = path.read_text().splitlines() if path.exists() else []
    lines += [line for line in before if line.strip() and line.split()[1] not in names]
    beside = folder / f"{ACL_FILE}.new"
    beside.unlink(missing_ok=True)
    with create_private(beside) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    beside.replace(path)
    return path


def with_user(url: str, user: str, password: str) -> str:
    """Return a URL with this user and password."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{place}").geturl()


def warn_of_password(url: str | None) -> str | None:
    """Return the value of a `--redis` option; say on standard error if it has a password, which `ps` shows to all."""
    if url is not None and without_password(url) != url:
        error_console().print("every user of this machine can see the password in --redis: set CORELANE_REDIS_URL")
    return url


def operator_url(noted: Mapping[str, Any]) -> str | None:
    """Return the Redis that a running `serve` notes in its data folder, with the operator's password if it made one."""
    url, file = noted.get("redis"), noted.get("redis_password_file")
    if not isinstance(url, str):
        return None
    return with_user(url, OPERATOR, read_password(Path(file))) if isinstance(file, str) else url
