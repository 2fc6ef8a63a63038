"""Fixtures of the API's tests, for the routes of plugins, and of the commands' tests."""

from tests.api.conftest import api, app_settings, service, settings
from tests.corelane.conftest import make_httpserver

__all__ = ["api", "app_settings", "make_httpserver", "service", "settings"]
