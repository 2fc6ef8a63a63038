"""Fixtures of the API's tests, for the routes of plugins."""

from tests.api.conftest import api, app_settings, service

__all__ = ["api", "app_settings", "service"]
