"""Fixtures of the console's tests, for this plugin's pages."""

from tests.plugins.console.conftest import bench, console, core, office, settings

__all__ = ["bench", "console", "core", "office", "settings"]
