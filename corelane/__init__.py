"""Corelane: queue-driven, asynchronous batch inference for extractive question answering.

This package holds what the API, the workers and the compiler share, and the plugins. Imports point down only:
``CONTRIBUTING.md`` has the map, ``pyproject.toml`` the contracts.

``pipeline`` answers questions in this process; it is imported when it is asked for, with torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return ``pipeline``."""
    if name == "pipeline":
        return import_module("corelane.in_process.pipeline").pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
