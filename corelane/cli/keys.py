"""``corelane keys``: make, list and revoke API keys, directly in Redis, which only the operator can do.

The commands use the Redis in CORELANE_REDIS_URL, or that of the `corelane serve` on the data folder, or else the Redis
at the default address, which may belong to something else. A running service notices changes within two seconds.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.commands import CommandGroup, Made
from corelane.cli.errors import require
from corelane.cli.folders import DataOption, running_service
from corelane.cli.output import error_console, print_line, print_list, print_sentence
from corelane.cli.redis_users import operator_url
from corelane.cli.service import JsonOption
from corelane.domain.api_keys import KEY_FORM, OWNER_FORM, Key, Scope, key_digest, scope_names
from corelane.domain.ids import is_id, iso_time
from corelane.errors import InvalidInput, NotFound, SetupError
from corelane.settings import read_settings
from corelane.settings.rules import without_password

if TYPE_CHECKING:
    from corelane.store.api_keys import ApiKeyStore
    from corelane.store.link.blocking import Link

#: Longest name of a key.
NAME_CHARS = 100

#: Least and most weight of a key's owner in the fair shares.
LEAST_SHARE, MOST_SHARE = 0.1, 100.0

DAY_MS = 24 * 3600 * 1000

keys = CommandGroup(help="API keys: make, list, revoke. Works on the service's Redis.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class FoundRedis:
    """A Redis, whether the operator named it, and a connection to it."""

    url: str
    is_named: bool
    link: "Link"
    #: The service to which the Redis belongs, if the Redis does not say so itself.
    cell: str

    @property
    def keys(self) -> "ApiKeyStore":
        """The API keys it holds."""
        from corelane.store.api_keys import ApiKeyStore

        return ApiKeyStore(self.link)


def find_redis(data: DataOption = None) -> FoundRedis:
    """Return the Redis that a command works on; raise SetupError if the password for it is not known."""
    require("api", "redis")
    from corelane.store.link.blocking import Link

    settings = read_settings(data_dir=data)
    is_named, url = "redis_url" in settings.model_fields_set, settings.redis_url
    if not is_named and (running := running_redis(settings.data_dir)):
        url, is_named = running, True
        if "***" in url:
            raise SetupError(
                f"the service on {settings.data_dir} uses the Redis at {url}: set CORELANE_REDIS_URL to its URL"
            )
    return FoundRedis(url, is_named, Link(url), settings.cell)


def running_redis(folder: Path) -> str | None:
    """Return the Redis of the `corelane serve` on this data folder; None if none runs, or if it notes none."""
    noted = running_service(folder)
    return operator_url(noted) if noted else None


ServiceRedis = Annotated[FoundRedis, Made(find_redis)]


@keys.command()
def create(
    found: ServiceRedis,
    name: Annotated[str, typer.Option(help="Whose key, or what for; shown by `list`.")],
    scope: Annotated[
        list[Scope] | None, typer.Option(help="What it allows, once for each; submit and read if not given.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Whose jobs it sees: keys of one owner see the same. A new owner if not given.")
    ] = None,
    expires_in_days: Annotated[float | None, typer.Option(min=0.0001, max=36_500, help="Days it can be used.")] = None,
    share: Annotated[float, typer.Option(help="Its owner's part of the cores beside owners of share 1.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it, once: only its digest is kept. The key alone goes to standard output."""
    if not 1 <= len(name) <= NAME_CHARS or not name.isprintable():
        raise InvalidInput(f"--name takes 1 to {NAME_CHARS} printable characters")
    if owner is not None and not OWNER_FORM.fullmatch(owner):
        raise InvalidInput("--owner takes 1 to 64 letters, digits, `.`, `_` and `-`")
    if not LEAST_SHARE <= share <= MOST_SHARE:
        raise InvalidInput("--share takes a number from 0.1 to 100")
    expires_ms = None if expires_in_days is None else int(time.time() * 1000 + expires_in_days * DAY_MS)
    check_is_corelane(found)
    key, secret = found.keys.create(name, scope or [Scope.SUBMIT, Scope.READ], owner, expires_ms, found.cell, share)
    if as_json:
        print_line(describe(key) | {"key": secret})
        return
    until = "" if key.expires_ms is None else f", until {iso_time(key.expires_ms)}"
    about = f"{key.id}, {key.name}: {' and '.join(scope_names(key.scopes))}, owner {key.owner}{until}"
    error_console().print(f"{about}\nStore it now, it is not shown again:")
    typer.echo(secret)


@keys.command("list")
def list_keys(
    found: ServiceRedis,
    show_all: Annotated[bool, typer.Option("--all", help="Revoked and expired keys too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the ids, names, owners, scopes and last uses of the keys; the keys themselves are stored nowhere."""

    def row(key: Mapping[str, Any]) -> tuple[str, ...]:
        owner = "itself" if key["owner"] == key["id"] else key["owner"]
        expires, used = (key["expires_at"] or "never")[:10], key["last_used_on"] or "never"
        of_key = (key["id"], key["name"], owner, ", ".join(key["scopes"]), f"{key['share']:g}")
        return *of_key, key["created_at"][:10], used, expires, key["state"]

    columns = ("id", "name", "owner", "scopes", "share", "created", "last used", "expires", "state")
    shown = (key for key in map(describe, found.keys.list()) if show_all or key["state"] == "active")
    print_list(shown, columns, row, whole={*columns} - {"name", "scopes", "share"}, as_json=as_json)


@keys.command()
def revoke(
    found: ServiceRedis,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="A key's id, key_…; or the key itself, if it leaked.")],
    as_json: JsonOption = False,
) -> None:
    """Have a key refused from now on, for good. Jobs it submitted continue, and stay with their owner."""
    known: str | None = key_id
    if not is_id("key", key_id):
        if not KEY_FORM.fullmatch(key_id):
            raise InvalidInput(f"{key_id[:20]!r} is neither a key's id (key_…) nor a key (clk_…)")
        known = found.keys.id_of(key_digest(key_id))
    key = found.keys.revoke(known) if known else None
    if key is None:
        raise NotFound(f"there is no key {key_id[:64]!r}; `corelane keys list --all` shows them")
    told = f"{key.id} ({key.name}) is revoked; running services refuse it within two seconds"
    print_sentence(describe(key), as_json, told)


def describe(key: Key) -> dict[str, Any]:
    """Return a key as plain data."""
    return {
        "id": key.id,
        "name": key.name,
        "owner": key.owner,
        "scopes": scope_names(key.scopes),
        "share": key.share,
        "state": key.state(time.time() * 1000),
        "created_at": iso_time(key.created_ms),
        "last_used_on": key.used or None,
        "expires_at": None if key.expires_ms is None else iso_time(key.expires_ms),
        "revoked_at": None if key.revoked_ms is None else iso_time(key.revoked_ms),
    }


def check_is_corelane(found: FoundRedis) -> None:
    """Raise SetupError if no Corelane has used this Redis and it was not named; warn if it was named."""
    from corelane.store import keys

    if found.link("EXISTS", keys.CORES, keys.MODELS, keys.PLAN, keys.API_KEYS):
        return
    said = f"no Corelane has used the Redis at {without_password(found.url)} yet"
    if not found.is_named:
        raise SetupError(f"{said}: set CORELANE_REDIS_URL to the service's, or name its data folder with --data FOLDER")
    error_console().print(f"{said}; the key counts there once one does")
