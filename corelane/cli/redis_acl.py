"""``corelane redis-acl``: write the users of a Redis of your own, each with the rights it needs and no more."""

from pathlib import Path
from typing import Annotated

import typer

from corelane.cli.output import error_console
from corelane.cli.redis_users import keep_password
from corelane.errors import InvalidInput
from corelane.store.acl import USER_NAME, Role, rights_of, user_line

#: Redis' own user, whom each connection without a name is. In a file that does not name it, it may do all.
NOBODY = "user default reset off"


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
    typer.echo(line if add else f"{NOBODY}\n{line}")
