"""Corelane: queue-driven, asynchronous batch inference for extractive question answering.

This package holds what the API, the workers and the compiler share. Floors, from the ground up: errors,
settings, log, metrics; then jobs, lanes, artifacts; then store, broker, webhooks, client; then engine; the roof
is cli. Imports point down only.

Plugins add names to it: ``from corelane import pipeline``. Their modules are imported when a name is asked for.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return what a plugin exports by this name."""
    from corelane.plugin import installed

    # Python itself asks for names with underscores, and before it imports a module of the package for that module.
    for plugin in () if name.startswith("_") else installed():
        if (module := plugin.exports().get(name)) is not None:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
