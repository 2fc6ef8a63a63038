"""A durable queue in front of text models: POST one item or a million, get every result once.

This package holds what the API, the workers and the compiler share, and the plugins. Imports point down only:
``CONTRIBUTING.md`` has the map, ``pyproject.toml`` the contracts.

The base class of handlers is imported only by ``from corelane import Handler``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corelane.tasks.handler.interface import Handler as Handler

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return the class ``Handler``."""
    if name == "Handler":
        return import_module("corelane.tasks.handler.interface").Handler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
