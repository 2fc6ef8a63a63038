"""Fixtures of the API's and the store's tests, for this plugin's."""

from tests.api.conftest import api, app_settings, service
from tests.corelane.conftest import bench

__all__ = ["api", "app_settings", "bench", "service"]
