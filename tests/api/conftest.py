"""The API as an app, on a real Redis, without a server or workers."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.settings import Settings


@pytest.fixture
def app_settings(settings: Settings) -> Settings:
    """Settings of the app under test."""
    return settings


@pytest.fixture
def api(app_settings: Settings) -> Iterator[TestClient]:
    """A client of the app."""
    with TestClient(create_app(app_settings), raise_server_exceptions=False) as client:
        yield client
