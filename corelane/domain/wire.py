"""What the models of requests share. Pure."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """A request part: unknown fields are refused, so that a typing mistake is not silently ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
