"""The settings of the autoscaler and of work that is thrown away."""

from pydantic_settings import BaseSettings


class ScalingFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""
