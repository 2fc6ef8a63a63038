"""The settings that say which service a Redis belongs to, and what is accepted as stored."""

from pydantic import Field
from pydantic_settings import BaseSettings

#: The name of a service: one character of the alphabet of ids.
CELL_NAME = r"[0-9a-hjkmnp-tv-z]"


class RedisFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    cell: str = Field(
        "0",
        pattern=f"^{CELL_NAME}$",
        description="The service that this process belongs to, of several behind a gateway: one character, in every id "
        "made.",
    )
    replicas_ack: int = Field(
        0,
        ge=0,
        le=10,
        description="A job is accepted, and an end told, once this many replicas of Redis hold it; 0 does not ask.",
    )
    replicas_ack_ms: int = Field(
        1000, ge=10, le=30_000, description="Longest wait for them, in milliseconds; then the answer is 503."
    )
