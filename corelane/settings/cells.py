"""The settings that say which cells there are."""

from pydantic_settings import BaseSettings


class CellFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""
