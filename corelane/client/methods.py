"""What both clients do to make a method of an endpoint or of an exchange: its arguments and docstring stay the same."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def as_method(method: Method, source: Callable[..., Any]) -> Method:
    """Return the method with the name, docstring and arguments of its source; ``self`` is added where it has none."""
    signature = inspect.signature(source)
    arguments = list(signature.parameters.values())
    if not arguments or arguments[0].name != "self":
        arguments.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    method.__name__, method.__doc__ = source.__name__, source.__doc__
    method.__signature__ = signature.replace(parameters=arguments, return_annotation=signature.empty)  # type: ignore[attr-defined]
    return method
