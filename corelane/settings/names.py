"""Names that look like settings but are not: mistyped variables. Pure."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches

PREFIX = "CORELANE_"

#: Variables with this prefix that are not settings: those of the compose file.
OTHERS = frozenset({"CORELANE_WHEELS", "CORELANE_IMAGE", "CORELANE_NEURON_IMAGE", "CORELANE_CUDA_IMAGE"})

#: Variables that Kubernetes sets for a Service named `corelane` or `corelane-…`.
SERVICE_LINK = re.compile(r"CORELANE_(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)")

#: Settings that restrict access, or are secret. If one is mistyped, the service may be left open.
GUARDS = frozenset(
    {
        *("auth", "host", "open_metrics", "submit_rate", "read_rate", "trusted_hops", "allowed_hosts", "cors_origins"),
        *("webhook_secret", "webhook_previous_secret", "webhook_allowed_networks", "webhook_allow_http"),
        *("webhook_proxy", "flower_host", "flower_password", "api_key", "redis_url"),
    }
)

#: How similar a mistyped prefix must be to the right one, from 0 to 1.
PREFIX_LIKENESS = 0.8


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A variable that is not a setting, and the most similar setting's variable, if there is one."""

    name: str
    nearest: str | None = None

    @property
    def guards(self) -> bool:
        """Return whether the setting that was probably meant protects the service."""
        return self.nearest is not None and self.nearest.removeprefix(PREFIX).lower() in GUARDS

    @property
    def sentence(self) -> str:
        """Return a warning for the operator."""
        said = f"{self.name} is not a setting of Corelane and does nothing"
        if self.nearest is None:
            return f"{said}; docs/reference.md lists the settings"
        if self.guards:
            return f"{said}: {self.nearest}, which protects the service, is not in force; rename it to {self.nearest}"
        return f"{said}; is {self.nearest} meant?"


def find_unknown(present: Iterable[str], fields: Collection[str]) -> list[UnknownName]:
    """Return names that were meant as settings but are not, sorted; ``fields`` are the names of the settings."""
    known = {f"{PREFIX}{field.upper()}" for field in fields}
    names, found = {name.upper() for name in present}, []
    for name in sorted(names - known - OTHERS):
        if name.startswith(PREFIX):
            if not _is_service_link(name, names):
                close = get_close_matches(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], 1)
                found.append(UnknownName(name, f"{PREFIX}{close[0]}" if close else None))
        elif meant := _with_our_prefix(name, known):
            found.append(UnknownName(name, meant))
    return found


def _is_service_link(name: str, names: Collection[str]) -> bool:
    """Return whether Kubernetes has set a variable for a Service named like Corelane."""
    of_service = name.endswith("_PORT") and f"{name.removesuffix('_PORT')}_SERVICE_HOST" in names
    return of_service or SERVICE_LINK.fullmatch(name) is not None


def _with_our_prefix(name: str, known: Collection[str]) -> str | None:
    """Return the setting meant by a name of which only the prefix is mistyped, as in ``CORLANE_AUTH``."""
    prefix, _, rest = name.partition("_")
    meant = f"{PREFIX}{rest}"
    if meant not in known or SequenceMatcher(None, prefix, PREFIX[:-1]).ratio() < PREFIX_LIKENESS:
        return None
    return meant
