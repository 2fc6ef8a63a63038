"""The settings of stored contexts."""

from pydantic import Field
from pydantic_settings import BaseSettings


class ContextFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    context_ttl_s: int = Field(
        7 * 24 * 3600,
        ge=60,
        description="Time stored contexts are kept after they were last used, unless asked for less, in seconds.",
    )
    max_contexts: int = Field(1000, ge=0, description="Most stored contexts of one owner; 0: none are stored.")
    max_contexts_bytes: int = Field(
        64 * 1024 * 1024, ge=0, description="Most bytes of one owner's stored contexts, which are in Redis."
    )
    context_text_bytes: int = Field(
        32 * 1024 * 1024, ge=0, description="Bytes of stored contexts' texts a core keeps for later questions on them."
    )
