"""How wide a core is on a host without accelerators, and where processes give signs of life."""

from pathlib import Path
from typing import Literal

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
    cpu_kind: Literal["auto", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"] = Field(
        "auto",
        description="Kind of CPU by which workers choose among the artifacts of a version, named after its latest "
        "instruction set, as `amx_bf16`; `auto` reads it from /proc/cpuinfo.",
    )
    compile_per_cpu: bool = Field(
        False,
        description="Whether `serve` compiles the default model for this host's kind of CPU too, where its artifact "
        "was chosen on another kind; the new artifact lies beside that one.",
    )
    health_dir: Path | None = Field(
        None,
        description="Folder where workers, keepers and webhook senders note every second that they live, for "
        "`corelane health` and the probes of containers; none if unset.",
    )
