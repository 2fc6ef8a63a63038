"""The setting of usage."""

from pydantic import Field
from pydantic_settings import BaseSettings


class AccountingFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    usage_days: int = Field(400, ge=1, description="Days for which the usage of each API key is kept.")
