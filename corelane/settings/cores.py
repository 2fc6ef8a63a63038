"""How wide a core is on a host without accelerators, and where processes give signs of life."""

from pathlib import Path

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
    health_dir: Path | None = Field(
        None,
        description="Folder where workers, keepers and webhook senders note every second that they live, for "
        "`corelane health` and the probes of containers; none if unset.",
    )
