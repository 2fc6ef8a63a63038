"""Where compiled artifacts are kept for later data folders."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings

#: The value that turns the cache off.
OFF = "off"

#: Variables that make torch's libraries choose other kernels than the CPU's best.
KERNEL_VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")


class ArtifactFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    artifact_cache: str | None = Field(
        None,
        description="Folder where `serve` and `compile` keep what they compiled, for later data folders of this user; "
        "`corelane/artifacts` in the user's cache folder if unset, `off` keeps nothing.",
    )

    @property
    def artifact_cache_root(self) -> Path | None:
        """Return the folder of the artifact cache; None if it is off."""
        if self.artifact_cache == OFF:
            return None
        return user_cache(os.environ) if self.artifact_cache is None else Path(self.artifact_cache).resolve()  # noqa: TID251  # XDG's


def user_cache(environment: Mapping[str, str]) -> Path | None:
    """Return the folder for a user's caches by the XDG rules; None for a user without a home."""
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / "corelane" / "artifacts"
    try:
        return Path.home() / ".cache" / "corelane" / "artifacts"
    except RuntimeError:
        return None


def kernel_environment() -> dict[str, str]:
    """Return those variables of this process that choose kernels."""
    return {name: os.environ[name] for name in KERNEL_VARIABLES if name in os.environ}  # noqa: TID251  # the libraries'
