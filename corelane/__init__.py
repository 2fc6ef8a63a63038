"""Corelane: queue-driven, asynchronous batch inference for extractive question answering.

This package holds what the API, the workers and the compiler share, and the plugins. Imports point down only:
``CONTRIBUTING.md`` has the map, ``pyproject.toml`` the contracts.

Plugins add names to it: ``from corelane import pipeline``. Their modules are imported when a name is asked for.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return what a plugin exports under this name."""
    from corelane.plugin import installed

    # Python itself looks up names with underscores, and looks up a module's name before it imports the module.
    for plugin in () if name.startswith("_") else installed():
        if (module := plugin.exports().get(name)) is not None:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
