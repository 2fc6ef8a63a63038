"""The settings that say how Redis is reached, and what is accepted as stored."""

from pydantic import Field
from pydantic_settings import BaseSettings


class RedisFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    replicas_ack: int = Field(
        0,
        ge=0,
        le=10,
        description="A job is accepted, and an end told, once this many replicas of Redis hold it; 0 does not ask.",
    )
    replicas_ack_ms: int = Field(
        1000, ge=10, le=30_000, description="Longest wait for them, in milliseconds; then the answer is 503."
    )
