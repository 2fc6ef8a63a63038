"""Rules for settings that types do not express, and the sentences that refuse wrong values. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address, ip_network
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo

from corelane.settings.address import AddressRefused, read_address

#: Longest value shown, in characters.
SHOWN_CHARS = 80

#: Pauses before the second and later attempts at a webhook, in seconds: a day in total, as Standard Webhooks suggests.
RETRY_PAUSES_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)

#: Longest total time of attempts at a webhook, in seconds (two days). It is below the time that the store keeps a
#: delivery in progress.
LONGEST_RETRIES_S = 2 * 24 * 3600.0

#: A number of requests per unit of time.
RATE = r"^[1-9][0-9]{0,6}/(second|minute|hour|day)$"

#: A scheme and a host, without a path, as browsers send it.
ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#@]+")

#: The beginning of an input's or output's URL; `*` may stand for any host.
PREFIX = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,62}/([^\s?#]*/)?|https?://(\*|[^/\s?#@*]+)/([^\s?#]*/)?")

#: A host name; `*.` before it means every name below it.
HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\*")

#: Options whose name differs from their setting's.
OPTIONS = {"data_dir": "--data", "redis_url": "--redis"}


class Wanted(NamedTuple):
    """What a setting accepts, in words, and an example. It is in the field's ``Annotated``, or in ``WANTED``."""

    words: str
    example: str


#: What settings with networks accept.
NETWORKS = Wanted("networks as CIDRs, comma-separated", "10.0.0.0/8,192.168.7.0/24")

_NEW_SECRET = ("`whsec_` and the base64 of at least 18 random bytes", "whsec_$(openssl rand -base64 24)")
_RATE = ("a number of requests per `second`, `minute`, `hour` or `day`", "600/minute")
_STORAGE = ("an fsspec URL", "s3://bucket/folder")

#: What a setting accepts, and an example, if its type does not say it.
WANTED = {
    "redis_url": (
        "the URL of a Redis, `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `rediss+sentinel://`",
        "redis://127.0.0.1:6379/0",
    ),
    "cell": ("one digit or lower-case letter, but i, l, o and u", "0"),
    "artifacts_url": _STORAGE,
    "files_url": _STORAGE,
    "submit_rate": _RATE,
    "read_rate": _RATE,
    "allowed_hosts": ("host names without scheme, port or path, comma-separated", "corelane.example.com"),
    "cors_origins": (
        "origins, each a scheme and a host without a path, comma-separated, or `*`",
        "https://example.com",
    ),
    "core_host": ("letters, digits, `-` and `_`", "rack-7"),
    "webhook_secret": _NEW_SECRET,
    "webhook_previous_secret": _NEW_SECRET,
    "webhook_allowed_networks": NETWORKS,
    "webhook_proxy": ("`http://host:port`, without a user or a path", "http://proxy.internal:4750"),
    "webhook_retries_s": (
        f"pauses above 0 in seconds, comma-separated, {LONGEST_RETRIES_S:.0f} s in all at most",
        "5,300,1800",
    ),
    "public_url": ("an http or https URL", "https://qa.example.com"),
    "url": ("an http or https URL", "http://127.0.0.1:8000"),
    "models": ("names of compiled models, comma-separated", "qa-minilm"),
    "data_dir": ("a folder", ".corelane"),
    "artifacts_dir": ("a folder", "/data/artifacts"),
    "files_dir": ("a folder", "/data/files"),
}


class SettingsError(ValueError):
    """Settings have wrong values; ``sentences`` has one sentence for each."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


def check_redis_url(url: str) -> str:
    """Return the URL; raises ValueError for one that Redis clients cannot use."""
    read_address(url)
    return url


def split_commas(value: object) -> object:
    """Split a text at commas; return any other value unchanged."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def check_prefixes(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return beginnings of URLs; raises ValueError for one that would allow more than it seems to."""
    for prefix in prefixes:
        if not PREFIX.fullmatch(prefix) or ".." in prefix.split("/"):
            raise ValueError(f"{prefix} is no beginning of a URL that ends with /")
    return prefixes


def check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    """Return origins; raises ValueError for one that no browser would send."""
    for origin in origins:
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin} is no origin")
    return origins


def check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return host names; raises ValueError for one that no request could have."""
    for host in hosts:
        if not HOST_NAME.fullmatch(host):
            ip_address(host.removeprefix("[").removesuffix("]"))  # raises ValueError if it is not an address either
    return hosts


def check_pauses(pauses: tuple[float, ...]) -> tuple[float, ...]:
    """Return pauses between attempts; raises ValueError if they would take too long in total."""
    if any(pause <= 0 for pause in pauses) or sum(pauses) > LONGEST_RETRIES_S:
        raise ValueError("pauses must be above 0, and end")
    return pauses


def check_secret(secret: SecretStr | None) -> SecretStr | None:
    """Return a signing secret; raises ValueError for a placeholder."""
    text = "" if secret is None else secret.get_secret_value()
    if secret is not None and (not text.startswith("whsec_") or len(text) < 30 or "changeme" in text.lower()):
        raise ValueError(f"must be {_NEW_SECRET[0]}")
    return secret


def without_password(url: str) -> str:
    """Return a URL without passwords, fit to be shown. A password may contain `@` and `/`."""
    # The query comes first, as an `@` in it would be taken for the end of a user's password.
    shown = re.sub(r"(?<=[?&])((?:sentinel_)?(?:username|password)|ssl_password)=[^&#]*", r"\1=***", url)
    return re.sub(r"^([A-Za-z+]+://)?.*@", r"\1***@", shown)


def refusals(error: ValidationError, fields: Mapping[str, FieldInfo], given: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each wrong setting; ``given`` are the settings from the command line."""
    seen: set[str] = set()
    for each in error.errors(include_url=False):
        name = str(each["loc"][0]) if each["loc"] else ""
        if name not in fields or name in seen:
            continue
        seen.add(name)
        reason = each.get("ctx", {}).get("error")
        sentence = refusal(name, fields[name], each["input"], is_option=name in given)
        yield f"{sentence}; {reason}" if isinstance(reason, AddressRefused) else sentence


def refusal(name: str, field: FieldInfo, value: object, *, is_option: bool) -> str:
    """Return the sentence that refuses a value of a setting."""
    shown = OPTIONS.get(name, f"--{name.replace('_', '-')}") if is_option else f"CORELANE_{name.upper()}"
    wanted, example = describe(name, field)
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if (wanted, example) == NETWORKS:
        example = _without_host_bits(text) or example
    begin = f"{shown} has a wrong value" if is_secret(field) else f"{shown} cannot be {_show(text)!r}"
    sentence = f"{begin}: it takes {wanted}"
    if example:
        sentence += f", for example {shown}{' ' if is_option else '='}{example}"
    if text.startswith("tcp://"):
        sentence += "; Kubernetes sets it for a Service named corelane: rename that, or set enableServiceLinks to false"
    return sentence


def describe(name: str, field: FieldInfo) -> tuple[str, str]:
    """Return what a setting accepts, in words, and an example, which is empty if any text is accepted."""
    said = [each for each in field.metadata if isinstance(each, Wanted)]
    if said or name in WANTED:
        return said[0] if said else WANTED[name]
    kind = next(each for each in _kinds(field.annotation) if each is not type(None))
    default = field.get_default(call_default_factory=False)
    if get_origin(kind) is Literal:
        choices = [str(choice) for choice in get_args(kind)]
        return f"one of {', '.join(choices)}", choices[0]
    if kind is bool:
        return "true or false", str(default).lower()
    if kind in (int, float):
        bounds = {type(each).__name__: getattr(each, type(each).__name__.lower()) for each in field.metadata}
        least = bounds.get("Ge", bounds.get("Gt"))
        example = default if default is not None else max(1, least or 0)
        return ("a whole number" if kind is int else "a number") + _range(bounds), f"{example}"
    return "text", "" if default is None or is_secret(field) else str(default)


def is_secret(field: FieldInfo) -> bool:
    """Return whether a setting's value must not be shown."""
    return SecretStr in _kinds(field.annotation)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _range(bounds: Mapping[str, Any]) -> str:
    least, above, most = bounds.get("Ge"), bounds.get("Gt"), bounds.get("Le")
    if least is None:
        low = "" if above is None else f" above {above}"
        return low if most is None else f"{low}, at most {most}"
    return f" of {least} or more" if most is None else f" from {least} to {most}"


def _show(text: str) -> str:
    text = without_password(text)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _without_host_bits(text: str) -> str | None:
    """Return the network that was probably meant by an address with a prefix length, as in 10.0.0.1/8."""
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        return None
