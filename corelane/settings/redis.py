"""The settings that say how Redis is reached, and what is accepted as stored."""

from pydantic_settings import BaseSettings


class RedisFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""
