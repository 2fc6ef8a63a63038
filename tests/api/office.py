"""An API that checks keys, and people with keys of several scopes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import redis
from fastapi.testclient import TestClient
from structlog.testing import CapturingLogger

from api.app import create_app
from corelane.domain.api_keys import Scope
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.corelane.store_bench import Bench, answered, claimed

ONE = {"question": "Who wrote it?", "context": "Ada wrote it."}

ANN, BOB, READER, SENDER, OPS, ONLY_ADMIN = "ann", "bob", "reader", "sender", "ops", "only_admin"

SCOPES = {
    ANN: [Scope.SUBMIT, Scope.READ],
    BOB: [Scope.SUBMIT, Scope.READ],
    READER: [Scope.READ],
    SENDER: [Scope.SUBMIT],
    OPS: [Scope.SUBMIT, Scope.READ, Scope.ADMIN],
    ONLY_ADMIN: [Scope.ADMIN],
}


@dataclass
class Office:
    """An API that checks keys, its store, the key of each person, and the lines of its audit."""

    api: TestClient
    bench: Bench
    secrets: dict[str, str]
    acts: CapturingLogger

    def call(self, who: str, method: str, path: str, **sent: Any) -> Any:
        """Return a response to somebody's request."""
        return self.api.request(method, path, headers={"Authorization": f"Bearer {self.secrets[who]}"}, **sent)

    def submit(self, who: str, **parts: Any) -> str:
        """Submit a job, and return its id."""
        return self.call(who, "POST", "/v1/jobs", json=ONE | parts).json()["id"]

    def found(self, who: str, **params: Any) -> list[str]:
        """Return the ids of a page of jobs."""
        response = self.call(who, "GET", "/v1/jobs", params=params)
        assert response.status_code == 200, response.text
        return [job["id"] for job in response.json()["data"]]

    def audited(self) -> list[tuple[str, str, str, str]]:
        """Return who did what so far, as the log says."""
        lines = [call.kwargs for call in self.acts.calls]
        return [(line["key"], line["action"], line["subject"], line["detail"]) for line in lines]

    def fail_all(self) -> None:
        """Have every item that waits fail."""
        core = self.bench.core("a/0")
        while self.bench.waiting():
            claim = claimed(core)
            core.commit(claim.lease, answered(claim, "failed"))


@contextmanager
def open_office(settings: Settings, raw: redis.Redis, bell: str) -> Iterator[Office]:
    """Yield an office with one core."""
    changes = {"auth": "required", "submit_rate": "10000/second"}
    config = Settings(**settings.model_dump(exclude_unset=True) | changes)
    store = ApiKeyStore(Link(settings.redis_url))
    secrets = {who: store.create(who, scopes, owner=who)[1] for who, scopes in SCOPES.items()}
    bench = Bench(config, raw, bell)
    bench.core("a/0")
    with (
        TestClient(create_app(config), raise_server_exceptions=False) as client,
        patch("api.deps.log", CapturingLogger()) as acts,
    ):
        yield Office(client, bench, secrets, acts)
