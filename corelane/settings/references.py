"""The settings of jobs whose input and output lie elsewhere."""

from pydantic_settings import BaseSettings


class ReferenceFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""
