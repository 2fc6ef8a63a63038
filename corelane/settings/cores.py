"""The setting that says how wide a core is on a host without accelerators."""

from pydantic import Field

from corelane.settings.prices import PriceFields


class CoreFields(PriceFields):
    """Part of ``corelane.settings.Settings``, with the fields of prices."""

    cpus_per_core: int = Field(
        1,
        ge=1,
        description="CPUs that make one core where the target is `cpu`: its model runs in as many threads. Wider cores "
        "answer one question sooner, narrow ones more questions; CPUs that fill no core are not used.",
    )
