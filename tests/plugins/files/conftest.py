"""Fixtures of the API's and the store's tests, for this plugin's; and where a test's objects lie."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.settings import Settings
from tests.api.conftest import api, app_settings, guarded, service
from tests.corelane.conftest import bench
from tests.tools.keys import add_keys
from tests.tools.s3 import S3Server

__all__ = ["api", "app_settings", "bench", "bucket", "guarded", "service"]


@pytest.fixture
def api_of_two(settings: Settings) -> Iterator[TestClient]:
    """Yield a client of an app that checks keys, which Alice and Bob have."""
    with TestClient(create_app(add_keys(settings, "alice", "bob")), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def bucket(s3: str, s3_server: S3Server) -> Path:
    """Return the folder of a bucket of the test's own."""
    return s3_server.folder / s3.removeprefix("s3://")
