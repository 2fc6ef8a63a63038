"""Which parts of the service one host runs: ``corelane serve --roles``."""

from collections.abc import Iterable, Mapping

from corelane.cli.errors import require
from corelane.errors import SetupError

#: The roles, in the order in which they start. ``worker`` stands for the workers of all cores of the host.
ROLES = ("redis", "keeper", "worker", "deliveries", "api", "flower")

#: The extra that brings what a role needs, and the modules that must be there.
NEEDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "redis": ("api", ("redis",)),
    "keeper": ("api", ("celery", "redis")),
    "worker": ("worker", ("celery", "torch", "tokenizers")),
    "deliveries": ("api", ("celery", "redis", "ssrfguard")),
    "api": ("api", ("fastapi", "hypercorn", "redis", "celery")),
    "flower": ("worker", ("celery", "flower")),
}

#: The role that each option of `serve` is about.
OPTIONS = {
    "host": "api",
    "port": "api",
    "cores": "worker",
    "min_cores": "worker",
    "max_cores": "worker",
    "model": "worker",
    "flower_port": "flower",
}


def choose_roles(wanted: str | None, *, has_redis: bool, has_flower: bool = True) -> frozenset[str]:
    """Return the roles of this host: those wanted, or all of them. ``has_redis`` says that a Redis URL is given.

    Raise SetupError for a word that is no role, and where it is unclear which Redis is meant.
    """
    roles = frozenset(ROLES) if wanted is None else _parse(wanted)
    if not has_flower:
        roles -= {"flower"}
    if wanted is None:
        return roles - {"redis"} if has_redis else roles
    if has_redis and "redis" in roles:
        raise SetupError("the role redis starts a Redis here, and the URL of another one is set; drop one of the two")
    if not has_redis and "redis" not in roles:
        raise SetupError(
            f"--roles {wanted} starts no Redis: say where it is with --redis URL or CORELANE_REDIS_URL, "
            "or add the role redis"
        )
    return roles


def _parse(text: str) -> frozenset[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise SetupError(f"--roles names no role; choose among {', '.join(ROLES)}")
    for word in words:
        if word not in ROLES:
            raise SetupError(f"{word!r} is no role; choose among {', '.join(ROLES)}")
    return frozenset(words)


def check_options(given: Mapping[str, object], roles: frozenset[str]) -> None:
    """Raise SetupError if an option was given for a role that this host does not have."""
    for name, role in OPTIONS.items():
        if given.get(name) is not None and role not in roles:
            raise SetupError(f"--{name.replace('_', '-')} is of no use without the role {role}")


def require_packages(roles: frozenset[str]) -> None:
    """Raise SetupError naming the extra to install if a role misses a module. With all roles, all are looked for."""
    if roles >= frozenset(ROLES) - {"redis"}:
        require("all", *sorted({module for _, modules in NEEDS.values() for module in modules}))
    for role in in_order(roles):
        extra, modules = NEEDS[role]
        require(extra, *modules)


def in_order(roles: Iterable[str]) -> list[str]:
    """Return the roles in the order in which they start."""
    return [role for role in ROLES if role in set(roles)]
