"""The settings of the autoscaler: how many cores there may be, and how many the work asks for."""

from pydantic import Field
from pydantic_settings import BaseSettings


class ScalingFields(BaseSettings):
    """Part of ``corelane.settings.Settings``."""

    min_cores: int | None = Field(
        None,
        ge=0,
        description="Least cores: what `serve` keeps of its host, and `corelane_desired_cores` never falls below; one "
        "if unset. With 0 the service is ready without any core, and the first question starts one.",
    )
    max_cores: int | None = Field(
        None,
        ge=1,
        description="Most cores `serve` starts on its host by load; all of `cores` if only `min_cores` is set. If "
        "neither is set, it starts all of them and stops none.",
    )
    scale_backlog_s: float = Field(
        30,
        gt=0,
        description="Time in which the cores should be able to do all open work, in seconds; more are wanted while "
        "they would need longer.",
    )
    scale_in_s: float = Field(
        300,
        ge=0,
        description="Time for which fewer cores must suffice before any is stopped, in seconds; longer than a model "
        "takes to load.",
    )
