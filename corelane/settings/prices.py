"""The settings for the price of a host."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings


class PriceFields(BaseSettings):
    """Part of ``corelane.settings.Settings``. ``corelane.domain.prices`` explains what the fields mean together."""

    instance: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="The type of this host, as `inf2.xlarge`, whose price is in the table or in prices_file; `cpu` for "
        "a host without an accelerator.",
    )
    price_per_hour: float | None = Field(
        None, gt=0, description="What an hour of this whole host costs; goes before the price of its type."
    )
    currency: str = Field("USD", pattern=r"^[A-Z]{3}$", description="Currency of price_per_hour, as in ISO 4217.")
    prices_file: Path | None = Field(
        None, description="A file of your own prices by instance type, dated, TOML or JSON; the table alone if unset."
    )
    price_cores: int | None = Field(
        None,
        ge=1,
        description="Cores that share the host's price; if unset those of its accelerators, on other hosts those that "
        "Corelane uses.",
    )
