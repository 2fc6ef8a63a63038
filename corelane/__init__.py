"""Corelane: queue-driven, asynchronous batch inference for extractive question answering.

This package holds what the API, the workers and the compiler share, and the plugins. Imports point down only:
``CONTRIBUTING.md`` has the map, ``pyproject.toml`` the contracts.

Plugins add names to it: ``from corelane import pipeline``. Their modules are imported when a name is asked for, and so
is the class that handlers subclass: ``from corelane import Handler``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corelane.tasks.handler.interface import Handler as Handler

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return what a plugin exports under this name."""
    from corelane.plugin import all_plugins

    if name == "Handler":
        return import_module("corelane.tasks.handler.interface").Handler
    # Python itself looks up names with underscores, and looks up a module's name before it imports the module.
    for plugin in () if name.startswith("_") else all_plugins():
        if (module := plugin.exports().get(name)) is not None:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
