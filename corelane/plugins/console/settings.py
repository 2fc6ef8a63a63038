"""The setting of the console."""

from pydantic import Field
from pydantic_settings import BaseSettings


class ConsoleFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    console: bool = Field(True, description="Whether the API serves the console, the pages at /console.")
