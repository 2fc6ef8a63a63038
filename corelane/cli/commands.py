"""Turn functions into commands: arguments become options, and errors become exit codes.

A parameter marked with ``Made`` is made from options that several commands share, such as the client of a service.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import typer

from corelane.cli.errors import exit_on_error

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Made:
    """Marks a parameter whose value ``make`` returns. The annotated parameters of ``make`` become options."""

    make: Callable[..., Any]


class CommandGroup(typer.Typer):
    """A Typer whose commands have the options of their ``Made`` parameters, and turn failures into exit codes."""

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Function], Function]:
        """Return a decorator that registers a function as a command; the function itself is unchanged."""
        register = super().command(*args, **kwargs)

        def add(run: Function) -> Function:
            register(with_options(run))
            return run

        return add


def with_options(run: Callable[..., Any]) -> Callable[..., None]:
    """Return the function with the options of each ``Made`` parameter in place of that parameter.

    A value that is a context manager is entered, and left when the command ends. A failure becomes an exit code.
    """
    parameters = inspect.signature(run).parameters
    makers = {name: mark.make for name, each in parameters.items() for mark in _marks(each) if isinstance(mark, Made)}
    options = {
        name: [each for each in inspect.signature(make).parameters.values() if _marks(each)]
        for name, make in makers.items()
    }

    def call(**given: Any) -> None:
        with exit_on_error(), ExitStack() as stack:
            for name, make in makers.items():
                value = make(**{option.name: given.pop(option.name) for option in options[name]})
                given[name] = stack.enter_context(value) if isinstance(value, AbstractContextManager) else value
            run(**given)

    own = [each for each in parameters.values() if each.name not in makers]
    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in sum(options.values(), own)]
    call.__name__, call.__doc__ = run.__name__, run.__doc__
    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return call


def _marks(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return getattr(parameter.annotation, "__metadata__", ())
