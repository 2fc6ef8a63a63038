"""The settings of files, batches, and inputs and outputs by URL."""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode

from corelane.settings import rules

#: The accepted values of settings that allow URLs.
PREFIXES = rules.Wanted(
    "beginnings of s3, https or http URLs, each with `/` at its end, comma-separated",
    "s3://bucket/corelane/,https://data.example.com/",
)


class FilesFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    # Files and batches
    max_file_bytes: int = Field(
        200 * 1024 * 1024,
        ge=1024,
        description="Largest file taken by /v1/files and /v1/batches, in bytes; goes to files_url.",
    )
    max_file_lines: int = Field(50_000, ge=1, description="Most lines taken in a file for a batch.")
    files_ttl_s: int = Field(
        30 * 24 * 3600,
        ge=3600,
        description="Time files and finished batches are kept, unless asked otherwise, seconds.",
    )

    # Input and output by URL
    input_urls: Annotated[tuple[str, ...], NoDecode, PREFIXES] = Field(
        (),
        description="Where jobs may read their items from (`input_url`): beginnings of URLs, comma-separated, each "
        "with `/` at its end, as `s3://bucket/in/`; `{owner}` in one is the caller's; nowhere by default.",
    )
    output_urls: Annotated[tuple[str, ...], NoDecode, PREFIXES] = Field(
        (),
        description="Where jobs may have their results written to (`output_url`), in the same way.",
    )
    reference_allowed_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, rules.NETWORKS] = Field(
        (),
        description="Private networks that http and https URLs of inputs and outputs may lead to, comma-separated "
        "CIDRs; none by default.",
    )
    max_input_bytes: int = Field(
        4 * 1024**3, ge=1024, description="Largest input read by URL, in bytes, as it is sent and unpacked."
    )

    @field_validator("input_urls", "output_urls", "reference_allowed_networks", mode="before")
    @classmethod
    def _split_lists(cls, value: object) -> object:
        return rules.split_commas(value)

    _check_prefixes = field_validator("input_urls", "output_urls")(rules.check_prefixes)
