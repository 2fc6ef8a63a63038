"""The hourly price of a core: the host's price, by its type or set by the operator, divided by its cores.

Pure, except for reading the file of own prices (docs/16-cost.md has an example).
"""

import json
import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corelane.domain.instances import CPU, INSTANCES, PRICES_OF, Instance

if TYPE_CHECKING:
    # Costs are part of the client's models, and a client need not read settings.
    from corelane.settings.fields import PriceFields
    from corelane.settings.rules import SettingsError

#: The currency of the table.
USD = "USD"

#: Seconds in an hour; the number of items whose costs are compared.
HOUR_S, MILLION = 3600.0, 1_000_000

#: Stands in a stored price for an unknown part, and for a core without a price.
NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Price:
    """The hourly price of one core, and the date of that price; None if the operator set the price without a date."""

    per_core_hour: float
    currency: str
    instance: str
    as_of: str | None = None

    @classmethod
    def decode(cls, text: str) -> "Price | None":
        """Parse a stored price; return None for a core without one."""
        parts = text.split("/")
        if len(parts) != 4:
            return None
        currency, instance, as_of, per_core_hour = parts
        return cls(float(per_core_hour), currency, instance, None if as_of == NOTHING else as_of)

    def encode(self) -> str:
        """Return the stored text. It contains no space, `|` or `;`."""
        return f"{self.currency}/{self.instance}/{self.as_of or NOTHING}/{self.per_core_hour!r}"

    def cost(self, core_s: float) -> float:
        """Return the cost of this many core seconds."""
        return core_s * self.per_core_hour / HOUR_S


def cost_per_million(per_hour: float, items_per_s: float) -> float:
    """Return the cost of a million items at a rate, by AWS' own formula; infinite if none are answered."""
    return MILLION / items_per_s * per_hour / HOUR_S if items_per_s > 0 else math.inf


class OwnInstance(BaseModel):
    """One entry of a file of prices; what it leaves out is as in the table."""

    model_config = ConfigDict(extra="forbid")

    per_hour: float = Field(gt=0, description="Price of an hour of the whole host.")
    chips: int | None = Field(None, ge=0)
    cores: int | None = Field(None, ge=0)
    vcpu: int | None = Field(None, ge=0)
    host_gib: float | None = Field(None, ge=0)
    device_gib: float | None = Field(None, ge=0)
    note: str | None = None


class OwnPrices(BaseModel):
    """A file of prices."""

    model_config = ConfigDict(extra="forbid")

    as_of: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="The day of the prices.")
    currency: str = Field(USD, pattern=r"^[A-Z]{3}$", description="ISO 4217.")
    instances: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")], OwnInstance] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class HostPrice:
    """The hourly price of a whole host; ``per_hour`` is None if no price is known."""

    instance: Instance
    per_hour: float | None
    currency: str
    as_of: str | None

    def price(self, cores: int) -> Price | None:
        """Return the price of one core if ``cores`` share the host's price; None without a price."""
        if self.per_hour is None:
            return None
        return Price(self.per_hour / max(1, cores), self.currency, self.instance.name, self.as_of)


def read_prices(path: Path) -> OwnPrices:
    """Read a file of prices, TOML unless its name ends in `.json`; raise SettingsError with what is wrong."""
    try:
        text = path.read_text()
        return OwnPrices.model_validate(json.loads(text) if path.suffix == ".json" else tomllib.loads(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _refuse(
            f"the file {path}, named by CORELANE_PRICES_FILE, is wrong at `{place}`: {first['msg']}"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refuse(f"CORELANE_PRICES_FILE names {path}, which cannot be read as prices: {reason}") from None


def host_price(settings: "PriceFields") -> HostPrice:
    """Return the price of the host with these settings.

    A price in the settings comes first, then one in the file, then one in the table. Raise SettingsError for an unknown
    type, and for a type without a price.
    """
    own = read_prices(settings.prices_file) if settings.prices_file is not None else None
    name = settings.instance or CPU
    entry = own.instances.get(name) if own is not None else None
    instance = all_instances(own).get(name)
    if instance is None:
        names = ", ".join(all_instances(own))
        raise _refuse(
            f"CORELANE_INSTANCE cannot be {name!r}: it takes one of {names}; write another into a file of your own "
            "prices, and name that by CORELANE_PRICES_FILE"
        )
    if settings.price_per_hour is not None:
        return HostPrice(instance, settings.price_per_hour, settings.currency, None)
    if entry is not None and own is not None:
        return HostPrice(instance, entry.per_hour, own.currency, own.as_of)
    if instance.name == CPU:
        return HostPrice(instance, None, settings.currency, None)
    if instance.usd_per_hour is None:
        raise _refuse(
            f"CORELANE_INSTANCE={name} has no price in the table of {PRICES_OF}: set CORELANE_PRICE_PER_HOUR to what "
            "an hour of the whole host costs you"
        )
    if settings.currency != USD:
        raise _refuse(
            f"CORELANE_CURRENCY cannot be {settings.currency!r} with a price of the table, which is in {USD}: set "
            "CORELANE_PRICE_PER_HOUR too"
        )
    return HostPrice(instance, instance.usd_per_hour, USD, PRICES_OF)


def core_price(settings: "PriceFields", found_cores: int) -> Price | None:
    """Return the price of one core of this host, None if unknown; raise SettingsError like ``host_price``.

    The host's price is divided by ``price_cores`` if set, else by the cores of its accelerators, else by the cores that
    were found.
    """
    host = host_price(settings)
    return host.price(settings.price_cores or host.instance.cores or found_cores)


def all_instances(own: OwnPrices | None = None) -> dict[str, Instance]:
    """Return all types by name: the types of the table, replaced or extended by the types in a file of prices.

    A price in the file is taken as it is, whatever its currency.
    """
    table = dict(INSTANCES)
    for name, entry in own.instances.items() if own is not None else ():
        known = table.get(name) or Instance(name, 0, 0, 0, 0, 0, None)
        changes: dict[str, Any] = entry.model_dump(exclude={"per_hour"}, exclude_none=True)
        table[name] = replace(known, **changes, usd_per_hour=entry.per_hour, usd_reserved_per_hour=None)
    return table


def _refuse(sentence: str) -> "SettingsError":
    from corelane.settings.rules import SettingsError

    return SettingsError([sentence])
