"""A durable queue in front of text models: POST one item or a million, get every result once.

This package holds what the API, the workers and the compiler share, and the plugins. Imports point down only:
``CONTRIBUTING.md`` has the map, ``pyproject.toml`` the contracts.

What handlers are made of is imported only by ``from corelane import FileUrl, Handler``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corelane.tasks.handler.files import FileUrl as FileUrl
    from corelane.tasks.handler.interface import Handler as Handler

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return the class ``Handler`` or ``FileUrl``."""
    if (module := {"Handler": "interface", "FileUrl": "files"}.get(name)) is not None:
        return getattr(import_module(f"corelane.tasks.handler.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
