"""A console and the store behind it; what tests of its pages share."""

import re
from collections.abc import Iterator
from html import unescape

import orjson
import pytest
import redis
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.settings import Settings
from corelane.store import keys
from tests.api.office import Office, open_office
from tests.corelane.conftest import bench
from tests.corelane.store_bench import VERSION, Bench, LoneCore

__all__ = ["bench", "console", "core", "office"]

OWN = {"Sec-Fetch-Site": "same-origin"}

#: What the core's model says of itself.
SUMMARY = {
    "name": "tiny",
    "target": "cpu",
    "dtype": "fp32",
    "buckets": ["4x32"],
    "max_length": 64,
    "no_answer_threshold": 0.0,
    "created_at": "2026-11-20T08:00:00.000Z",
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"console": True})


@pytest.fixture
def core(bench: Bench) -> LoneCore:
    core = bench.core("a/0")
    bench.raw.hset(keys.MODELS, VERSION, orjson.dumps(SUMMARY))
    return core


@pytest.fixture
def console(settings: Settings, core: LoneCore) -> Iterator[TestClient]:
    """Yield a client of a console that needs no keys."""
    with TestClient(create_app(settings), headers=OWN, follow_redirects=False) as client:
        yield client


@pytest.fixture
def office(settings: Settings, raw: redis.Redis, bell: str) -> Iterator[Office]:
    with open_office(settings, raw, bell) as office:
        yield office


def text_of(page: str) -> str:
    """Return a page's text, white space in one piece."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
