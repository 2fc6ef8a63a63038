"""The settings of accelerators."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class BackendsFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    exec_timeout_s: int = Field(
        30,
        ge=1,
        description="Longest time a forward pass on a Neuron core may take, in seconds; below 300 s, when a core is "
        "taken for stuck.",
    )
    device_memory_bytes: int | None = Field(
        None,
        ge=1,
        description="Device memory that the models of one worker may take; what `neuron-ls` or the chip says if unset.",
    )
    neuron_python: str = Field(
        "neuron-python",
        description="Python that has torch-neuron, 3.10 at most, in which models are compiled for inf1 and its cores "
        "run: a path, or a name on PATH.",
    )
    neuron_numbering: Literal["global", "local"] = Field(
        "global",
        description="How Neuron cores are numbered where only some devices are seen: `global` as on the host, `local` "
        "from 0.",
    )
