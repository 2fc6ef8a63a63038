"""The settings of jobs whose input and output lie elsewhere."""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode

from corelane.settings import rules


class ReferenceFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    input_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Where jobs may read their items from (`input_url`): beginnings of URLs, comma-separated, each "
        "with `/` at its end, as `s3://bucket/in/`; `{owner}` in one is the caller's; nowhere by default.",
    )
    output_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Where jobs may have their results written to (`output_url`), in the same way."
    )
    reference_allowed_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        (),
        description="Private networks that http and https URLs of inputs and outputs may lead to, comma-separated "
        "CIDRs; none by default.",
    )
    max_input_bytes: int = Field(
        4 * 1024**3, ge=1024, description="Largest input read by URL, in bytes, as it is sent and unpacked."
    )
    max_input_items: int = Field(
        1_000_000, ge=1, description="Most items read from one URL; their results wait in Redis, some 200 bytes each."
    )
    input_timeout_s: float = Field(
        3600, gt=0, description="Time after its submission until which a job's input is tried to be read, in seconds."
    )

    @field_validator("input_urls", "output_urls", "reference_allowed_networks", mode="before")
    @classmethod
    def _split_lists(cls, value: object) -> object:
        return rules.split_commas(value)

    _check_prefixes = field_validator("input_urls", "output_urls")(rules.check_prefixes)
