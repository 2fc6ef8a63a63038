"""Fixtures of the store's and the console's tests."""

from tests.corelane.conftest import bench
from tests.plugins.console.conftest import office

__all__ = ["bench", "office"]
