"""Fixtures of the API's and the store's tests, for this plugin's; and where a test's objects lie."""

from pathlib import Path

import pytest

from tests.api.conftest import api, app_settings, service
from tests.corelane.conftest import bench
from tests.s3 import S3Server

__all__ = ["api", "app_settings", "bench", "bucket", "service"]


@pytest.fixture
def bucket(s3: str, s3_server: S3Server) -> Path:
    """Return the folder of a bucket of the test's own."""
    return s3_server.folder / s3.removeprefix("s3://")
