"""The users of Redis: for the server that `corelane serve` starts, and, by ``corelane redis-acl``, for your own.

No other user of the machine can read or change the queue of a Redis that `serve` starts.

The operator is Redis' user ``default``, with every right and a password that is kept in the data folder, where only
this user of the machine can read it. The service is user ``corelane``, with the rights that it needs. Its workers run
handlers: they are user ``corelane-worker``, which may make no API keys. Both get a new password at every start, which
their parts find in the environment. The ACL file has only digests. Other users are kept.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from corelane.cli.folders import create_private, keep_private, read_private
from corelane.cli.output import error_console
from corelane.errors import InvalidInput, SetupError
from corelane.settings.rules import without_password
from corelane.store.acl import EVERYTHING, USER_NAME, Role, rights_of, user_line

OPERATOR, SERVICE, WORKER = "default", "corelane", "corelane-worker"

#: The file of the password, in the data folder; and the ACL file, in Redis' folder below the data folder.
PASSWORD_FILE, ACL_FILE = "redis-password", "users.acl"

#: The line for Redis' own user, used without a user name. If a file does not name that user, it may do everything.
DEFAULT_OFF = "user default reset off"

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
        user_line(SERVICE, service, rights_of(Role.SERVICE)),
        user_line(WORKER, worker, rights_of(Role.WORKER)),
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


def redis_acl(
    password_file: Annotated[
        Path, typer.Option(help="File with the user's password, one line; made, readable by you alone, if missing.")
    ],
    role: Annotated[Role, typer.Option(help="What the user is for.")] = Role.SERVICE,
    user: Annotated[
        str | None, typer.Option(help="Name of the user; `corelane` or `corelane-ROLE` if not given.")
    ] = None,
    database: Annotated[int, typer.Option(min=0, help="Number of the database in the service's URL.")] = 0,
    add: Annotated[bool, typer.Option("--add", help="The user's line alone, to add it to a file.")] = False,
) -> None:
    """Print an ACL file for Redis 7 or newer, or Valkey: one user, and nothing for all others.

    The file has the password's SHA-256 digest. Start Redis with `--aclfile FILE`.
    """
    name = user or ("corelane" if role is Role.SERVICE else f"corelane-{role.value}")
    if not USER_NAME.fullmatch(name) or name == "default":
        raise InvalidInput("--user takes 1 to 64 letters, digits, `_` and `-`, and not `default`")
    if not password_file.exists():
        error_console().print(f"made a password in {password_file}")
    line = user_line(name, keep_password(password_file), rights_of(role, database))
    typer.echo(line if add else f"{DEFAULT_OFF}\n{line}")
