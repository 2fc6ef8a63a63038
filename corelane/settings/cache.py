"""The settings of what is kept for later questions: answers of equal ones, and texts of stored contexts."""

from pydantic import Field
from pydantic_settings import BaseSettings


class CacheFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    reuse: bool = Field(
        True, description="Whether a question takes the answer of an equal one of its owner that is at work, or kept."
    )
    cache_bytes: int = Field(
        0,
        ge=0,
        description="Memory of Redis in which answers are kept for equal questions that come later, in bytes; none "
        "are if 0, or without `reuse`.",
    )
    cache_ttl_s: int = Field(3600, ge=1, description="Time for which an answer is kept there, in seconds.")

    context_text_bytes: int = Field(
        32 * 1024 * 1024, ge=0, description="Bytes of stored contexts' texts a core keeps for later questions on them."
    )

    @property
    def cache(self) -> tuple[int, int] | None:
        """Bytes and seconds of the cache; None where it is off."""
        return (self.cache_bytes, self.cache_ttl_s) if self.cache_bytes else None
