"""How many processes serve the API."""

from pydantic import Field
from pydantic_settings import BaseSettings


class ApiFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    api_processes: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Processes that `corelane api` runs on its address; one for every four CPUs if unset, from 1 to 4.",
    )
