"""Settings of cores, Redis, scaling, texts and chaos, joined with the other groups and those of plugins."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from corelane.plugin import all_plugins

#: The name of a service: one character of the alphabet of ids.
CELL_NAME = r"[0-9a-hjkmnp-tv-z]"

#: The kinds of CPU (``corelane.artifacts.instructions``); ``auto`` is the kind of this CPU.
CpuKind = Literal["auto", "avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"]

#: The settings that plugins add.
PLUGIN_FIELDS = tuple(fields for plugin in all_plugins() if (fields := plugin.settings()) is not None)


class GroupedFields(
    *PLUGIN_FIELDS,  # type: ignore[misc]
    BaseSettings,
):
    """Part of ``corelane.settings.Settings``: every field that is not declared in the package itself."""

    # Processes of the API
    api_processes: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Processes that `corelane api` runs on its address; one for every four CPUs if unset, from 1 to 4.",
    )

    # How wide a core is on a host without accelerators, and where processes note that they live
    cpus_per_core: int = Field(
        1,
        ge=1,
        description="CPUs that make one core where the target is `cpu`: its model runs in as many threads. Wider cores "
        "serve one item sooner, narrow ones more items; CPUs that fill no core are not used.",
    )
    cpu_kind: CpuKind = Field(
        "auto",
        description="Kind of CPU by which workers choose among the artifacts of a version, named after its latest "
        "instruction set, as `amx_bf16`; `auto` reads it from /proc/cpuinfo.",
    )
    health_dir: Path | None = Field(
        None,
        description="Folder where workers, keepers and webhook senders note every second that they live, for "
        "`corelane health` and the probes of containers; none if unset.",
    )

    # Which service a Redis belongs to, and what is accepted as stored
    cell: str = Field(
        "0",
        pattern=f"^{CELL_NAME}$",
        description="The service that this process belongs to, of several behind a gateway: one character, in every id "
        "made.",
    )
    replicas_ack: int = Field(
        0,
        ge=0,
        le=10,
        description="A job is accepted, and an end told, once this many replicas of Redis hold it; 0 does not ask.",
    )

    # Whether the service may be without cores
    min_cores: int = Field(
        1,
        ge=0,
        description="Cores with the default model without which `/readyz` says 503; 0 where a scaler may stop all, and "
        "the first job starts one.",
    )

    # How long texts may be, and how much of them a core keeps
    max_question_chars: int = Field(10_000, ge=1, description="Longest question or query taken, in characters.")
    max_context_chars: int = Field(2_000_000, ge=1, description="Longest text taken, in characters.")

    # Chaos runs
    null_batch_s: float = Field(
        0, ge=0, description="For chaos runs only: time one batch of the null engine takes, in seconds."
    )

    @property
    def text_chars(self) -> tuple[int, str]:
        """Return the most characters of a text, and the name of the setting."""
        return self.max_context_chars, "CORELANE_MAX_CONTEXT_CHARS"

    @property
    def beside_chars(self) -> tuple[int, str]:
        """Return the most characters of what is asked about a text, and the name of the setting."""
        return self.max_question_chars, "CORELANE_MAX_QUESTION_CHARS"
