"""The price of an hour of a core: the host's price by its type, or as the operator set it, over its cores.

Pure, but for the file of own prices (docs/16-cost.md has an example).
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
    # Costs are a part of the client's models, and a client need not read settings.
    from corelane.settings.prices import PriceFields
    from corelane.settings.rules import SettingsError

#: The currency of the table.
USD = "USD"

#: Seconds in an hour, items in the unit that costs are compared by.
HOUR_S, MILLION = 3600.0, 1_000_000

#: What stands in a stored price for a part that is not known, and for a core without a price.
NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an hour of one core, and the day of that price; None where the operator set the price alone."""

    per_core_hour: float
    currency: str
    instance: str
    as_of: str | None = None

    @classmethod
    def decode(cls, text: str) -> "Price | None":
        """Read a price back from the store; None for that of a core without one."""
        parts = text.split("/")
        if len(parts) != 4:
            return None
        currency, instance, as_of, per_core_hour = parts
        return cls(float(per_core_hour), currency, instance, None if as_of == NOTHING else as_of)

    def encode(self) -> str:
        """Return the stored text: no space, `|` or `;` is in it."""
        return f"{self.currency}/{self.instance}/{self.as_of or NOTHING}/{self.per_core_hour!r}"

    def cost(self, core_s: float) -> float:
        """Return the cost of this time of a core."""
        return core_s * self.per_core_hour / HOUR_S


def cost_per_million(per_hour: float, items_per_s: float) -> float:
    """Return what a million items cost at a rate, by AWS' own formula; infinite if none are answered."""
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
    """The price of an hour of a whole host; ``per_hour`` is None where no price is known."""

    instance: Instance
    per_hour: float | None
    currency: str
    as_of: str | None

    def price(self, cores: int) -> Price | None:
        """Return the price of one core where ``cores`` share that of the host; None without a price."""
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
    """Return what the host of these settings costs.

    A price that is set goes before one of the file, that before one of the table. Raise SettingsError for a type that
    neither knows, and for one whose price is missing.
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
    """Return the price of one core of this host, None if none is known; raise SettingsError like ``host_price``.

    The host's price is shared by ``price_cores`` if set, else by the cores of its accelerators, else by those that were
    found.
    """
    host = host_price(settings)
    return host.price(settings.price_cores or host.instance.cores or found_cores)


def all_instances(own: OwnPrices | None = None) -> dict[str, Instance]:
    """Return all types by name: those of the table, and those of a file of prices in place of them or after them.

    A price of the file is taken as it is, whatever its currency.
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
