"""All settings, read once at an entry point and passed on from there; no other module reads the environment.

Each field is also an environment variable: ``CORELANE_`` + the name in capitals. A file ``.env`` in the working
folder and files in ``/run/secrets`` are read too. Names end in their unit.
"""

import os
import socket
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from corelane.settings import rules
from corelane.settings.fields import GroupedFields
from corelane.settings.names import UnknownName, find_unknown

SECRETS_DIR = Path("/run/secrets")
ENV_FILE = Path(".env")

#: Set for processes whose parent has logged unknown names already, so that each is logged once.
NAMES_CHECKED = "_CORELANE_NAMES_CHECKED"

Network = IPv4Network | IPv6Network

Fields = TypeVar("Fields", bound=BaseSettings)


class Settings(GroupedFields):
    """All choices that an operator can make, in one frozen record."""

    model_config = SettingsConfigDict(
        env_prefix="CORELANE_",
        env_file=ENV_FILE,
        secrets_dir=SECRETS_DIR if SECRETS_DIR.is_dir() else None,
        frozen=True,
        env_ignore_empty=True,
        extra="ignore",
        protected_namespaces=(),
    )

    # Places
    redis_url: str = Field("redis://127.0.0.1:6379/0", description="Where Redis (or Valkey) listens, as a URL.")
    redis_port: int = Field(
        6379, ge=0, le=65535, description="Port of the Redis that `serve` starts here; 0 picks a free one."
    )
    data_dir: Path = Field(Path(".corelane"), description="Folder for everything kept on disk: Redis files, artifacts.")
    artifacts_dir: Path | None = Field(
        None, description="Folder of compiled artifacts; `artifacts` inside data_dir if unset."
    )
    artifacts_url: str | None = Field(
        None,
        pattern=r"^[a-z0-9+.-]+://.+",
        description="Remote root of artifacts, an fsspec URL (s3://bucket/folder); kept in `fetched` in data_dir.",
    )
    files_dir: Path | None = Field(
        None, description="Folder of large jobs' items, shared by API and keeper; `files` inside data_dir if unset."
    )
    files_url: str | None = Field(
        None,
        pattern=r"^[a-z0-9+.-]+://.+",
        description="Where uploaded files and those of batches lie, an fsspec URL (s3://bucket/folder); `kept` inside "
        "files_dir if unset.",
    )

    # What is served
    model: str = Field(
        "qa-minilm",
        description="The model that `default` means: one that comes with Corelane, a folder or a Hugging Face id.",
    )
    models: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Further compiled models that every core loads, comma-separated names."
    )
    handlers: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Handlers that workers may import, comma-separated: `package.module:Class`, or `package.*` for all "
        "of a package's.",
    )
    handler_errors: Literal["type", "frames"] = Field(
        "type",
        description="What callers see of a handler's exception: its `type`, or `frames`, its line too.",
    )
    target: Literal["cpu", "inf1", "inf2", "trn1", "trn2", "trn3", "cuda", "null"] = Field(
        "cpu",
        description="What the artifacts are compiled for: `cpu`, a Neuron chip (`inf1`, `inf2`, `trn1`, `trn2`, "
        "`trn3`), `cuda` (NVIDIA GPUs), or `null`, which gives no results, for measuring the queue alone.",
    )

    # HTTP
    host: str = Field("127.0.0.1", description="Address the API listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port the API listens on; 0 picks a free one.")
    http2: bool = Field(False, description="Whether the API speaks HTTP/2 too, by prior knowledge or `Upgrade: h2c`.")
    max_body_bytes: int = Field(8 * 1024 * 1024, ge=1024, description="Largest request body taken, in bytes.")
    max_items: int = Field(10_000, ge=1, description="Most items taken in one job.")
    max_upload_bytes: int = Field(
        4 * 1024**3, ge=1024, description="Largest job taken as lines (NDJSON), in bytes; kept on disk, not in Redis."
    )
    max_windows: int = Field(
        20_000,
        ge=1,
        description="Most windows read of one item, which fails beyond; 2,000,000 characters of English have 2,000.",
    )
    max_item_bytes: int = Field(
        8 * 1024**2, ge=1024, description="Most bytes of a handler's item, as JSON, and of each file that it names."
    )
    max_output_bytes: int = Field(
        1024**2, ge=1024, description="Most bytes of a handler's output, or of a text's tokens, as JSON."
    )
    max_wait_s: float = Field(60, ge=0, description="Longest time a request may wait for a job, in seconds.")
    results_ttl_s: int = Field(
        7 * 24 * 3600, ge=60, description="Time a finished job and its results are kept, seconds."
    )

    # Keys and limits
    auth: Literal["auto", "required", "off"] = Field(
        "auto",
        description="Whether requests need an API key: `required`, `off`, or `auto`: where `host` is not loopback.",
    )
    open_metrics: bool = Field(True, description="Whether /metrics needs no key; else the key needs `read`.")
    submit_rate: str | None = Field(
        None,
        pattern=rules.RATE,
        description="Requests that change something, of one owner or of one address without a key, as `20/second` or "
        "`600/minute`; not limited if unset.",
    )
    read_rate: str | None = Field(
        None, pattern=rules.RATE, description="Requests that only look, counted in the same way; not limited if unset."
    )
    trusted_hops: int = Field(
        0,
        ge=0,
        le=10,
        description="Proxies before the API whose X-Forwarded-For, -Proto, -Host and -Prefix are believed.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Host names of requests, comma-separated, `*.a.com` too; any by default, private if keys are off.",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Origins of web pages that may call the API, comma-separated, or `*`; none by default."
    )

    # Cores and dispatch
    core: int | None = Field(None, ge=0, description="The core this process serves; set by `corelane worker`.")
    core_host: str = Field(
        default_factory=lambda: socket.gethostname().split(".")[0],
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Host part of core names: letters, digits, `-` and `_`.",
    )
    cores: int | None = Field(None, ge=1, description="Cores `serve` starts workers for; all it finds if unset.")
    claim_tokens: int = Field(4096, ge=64, description="Estimated tokens a core keeps claimed ahead of its batches.")
    max_outstanding_tokens: int = Field(
        50_000_000, ge=1000, description="Estimated tokens that may wait in all; jobs beyond are refused with 429."
    )
    max_owner_tokens: int = Field(
        25_000_000, ge=1000, description="Estimated tokens that may wait for one API key; jobs beyond get 429."
    )
    feed_tokens: int = Field(
        2_000_000, ge=1000, description="Estimated tokens of a job sent as lines that are in Redis at a time."
    )
    linger_s: float = Field(1.0, ge=0, description="Time an idle drain waits for work before it ends, in seconds.")
    lease_s: float = Field(6, gt=1, description="Time a lease lasts without being renewed, in seconds.")
    heartbeat_s: float = Field(1, gt=0, description="Time between a core's heartbeats, in seconds.")
    max_memory_mb: float | None = Field(
        None,
        gt=0,
        description="Memory in MB above which a core's process is replaced after a batch; no limit if unset.",
    )
    max_attempts: int = Field(3, ge=1, description="Attempts an item gets before it fails with `worker_lost`.")

    # Accelerator cores
    core_restarts: int = Field(
        5, ge=0, description="Restarts of a core's process within ten minutes, after which it goes out of service."
    )

    # Webhooks
    webhook_secret: SecretStr | None = Field(
        None,
        description="Secret that signs webhooks of owners who have none of their own, `whsec_` + base64; without it "
        "their jobs with a webhook are refused.",
    )
    webhook_previous_secret: SecretStr | None = Field(
        None, description="The secret before it: while both are set, both sign, and receivers change when they like."
    )
    webhook_allowed_networks: Annotated[tuple[Network, ...], NoDecode] = Field(
        (),
        description="Private networks webhooks may go to, by http and on any port too, comma-separated CIDRs; none by "
        "default.",
    )
    webhook_allow_http: bool = Field(False, description="Whether webhooks may go to public addresses by plain http.")
    webhook_proxy: str | None = Field(
        None,
        pattern=r"^http://[^/@\s]+$",
        description="A proxy that posts webhooks, `http://host:port`; it resolves their names and guards private "
        "addresses (Smokescreen does).",
    )
    webhook_timeout_s: float = Field(
        15, gt=0, le=300, description="Longest time one attempt at a webhook takes, from its first step to its last, s."
    )
    webhook_retries_s: Annotated[tuple[float, ...], NoDecode] = Field(
        rules.RETRY_PAUSES_S,
        description="Pauses before the second and later attempts at a webhook, comma-separated seconds; 5 s to 10 h, "
        "27 h in all, by default.",
    )
    public_url: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="Where callers reach the API, for absolute links in webhooks; relative ones if unset.",
    )

    # Flower
    flower_host: str = Field("127.0.0.1", description="Address Flower listens on.")
    flower_port: int = Field(5555, ge=0, le=65535, description="Port Flower listens on; 0 picks a free one.")
    flower_password: SecretStr | None = Field(None, description="Password for Flower; generated and shown if unset.")

    # The command line
    url: str | None = Field(
        None,
        pattern=r"^https?://[^/\s]+",
        description="The service that commands ask; the one of this machine if unset.",
    )
    api_key: SecretStr | None = Field(None, description="API key that commands send to a service; none if unset.")

    # Logs
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )
    log_format: Literal["auto", "json", "pretty"] = Field(
        "auto", description="One JSON object a line, or coloured text; auto: text on a terminal only."
    )

    @field_validator(
        *("models", "handlers", "webhook_allowed_networks", "webhook_retries_s", "allowed_hosts", "cors_origins"),
        mode="before",
    )
    @classmethod
    def _split_commas(cls, value: object) -> object:
        return rules.split_commas(value)

    _check_redis_url = field_validator("redis_url")(rules.check_redis_url)
    _check_origins = field_validator("cors_origins")(rules.check_origins)
    _check_hosts = field_validator("allowed_hosts")(rules.check_hosts)
    _check_pauses = field_validator("webhook_retries_s")(rules.check_pauses)
    _check_secrets = field_validator("webhook_secret", "webhook_previous_secret")(rules.check_secret)

    def of(self, fields: type[Fields]) -> Fields:
        """Return these settings as those of a plugin; ``fields`` is the class of the plugin's fields."""
        if not isinstance(self, fields):
            raise TypeError(f"no plugin that is installed has the settings {fields.__name__}")
        return self

    @cached_property
    def requires_keys(self) -> bool:
        """Return whether the API requires a key."""
        return self.auth == "required" or (self.auth == "auto" and not is_loopback(self.host))

    @cached_property
    def artifact_root(self) -> Path:
        """Return the folder of artifacts, resolved."""
        return (self.artifacts_dir or self.data_dir / "artifacts").resolve()

    @cached_property
    def fetched_root(self) -> Path:
        """Return the cache of artifacts from ``artifacts_url``, resolved."""
        return (self.data_dir / "fetched").resolve()

    @cached_property
    def files_root(self) -> Path:
        """Return the folder of large jobs' items, resolved."""
        return (self.files_dir or self.data_dir / "files").resolve()

    def environment(self, **changes: object) -> dict[str, str]:
        """Return the environment for a child process that must have these settings, with ``changes`` to them."""
        env = dict(os.environ) | {NAMES_CHECKED: "1"}
        values = {name: getattr(self, name) for name in type(self).model_fields} | changes
        for name, value in values.items():
            key = f"CORELANE_{name.upper()}"
            if value is None:
                env.pop(key, None)
            elif isinstance(value, SecretStr):
                env[key] = value.get_secret_value()
            elif isinstance(value, tuple):
                env[key] = ",".join(str(part) for part in value)
            else:
                env[key] = str(value)
        return env


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def variables(prefix: str) -> dict[str, str]:
    """Return this process's environment variables with a prefix."""
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}


def read_settings(**given: Any) -> Settings:
    """Return the settings, overridden by those from a command line; None means "not given".

    Raises SettingsError with a sentence for each wrong value.
    """
    given = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise rules.SettingsError(list(rules.refusals(error, Settings.model_fields, given))) from None


def unknown_names() -> list[UnknownName]:
    """Return non-empty names in the environment, `.env` and the secrets that look like settings but are not."""
    files = [path.name for path in SECRETS_DIR.iterdir()] if SECRETS_DIR.is_dir() else []
    written = dotenv_values(ENV_FILE, interpolate=False) if ENV_FILE.is_file() else {}
    given = [name for name, value in [*written.items(), *os.environ.items()] if value]
    return find_unknown([*given, *files], Settings.model_fields)


def names_were_checked() -> bool:
    """Return whether the parent process has looked for unknown names and logged them."""
    return NAMES_CHECKED in os.environ
