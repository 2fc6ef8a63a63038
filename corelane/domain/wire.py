"""What the models of requests share. Pure."""

from pydantic import BaseModel, ConfigDict, FailFast


class FirstFault(FailFast):
    """Have a list of a union say its first fault alone, as `fail_fast` does for other lists."""

    __hash__ = object.__hash__


class Wire(BaseModel):
    """A request part: unknown fields are refused, so that a typing mistake is not silently ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
