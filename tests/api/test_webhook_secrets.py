"""Secrets of owners that sign their webhooks, over HTTP and by the client's methods and commands. On a real Redis."""

import asyncio
from typing import Any

import orjson
import pytest
import redis
from structlog.testing import capture_logs
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.client import AsyncClient, Client
from corelane.domain.webhook_secrets import MOST_SECRETS
from corelane.errors import ServiceError
from corelane.settings import Settings
from corelane.store import keys
from tests.api.conftest import Service
from tests.api.office import ANN, BOB, ONE, ONLY_ADMIN, OPS, READER, SENDER, Office

CONSOLE = True

HOME = "/v1/webhook-secrets"

HOOK = {"webhook": {"url": "https://93.184.216.34/hook"}}


def make(office: Office, who: str, path: str = HOME, **params: Any) -> dict[str, Any]:
    made = office.call(who, "POST", path, json=params.pop("body", {}), params=params)
    assert made.status_code == 201, made.text
    return dict(made.json())


def listed(office: Office, who: str, **params: Any) -> list[tuple[str, bool]]:
    """Return the ids of what signs now, and whether each ends."""
    found = office.call(who, "GET", HOME, params=params)
    assert found.status_code == 200, found.text
    return [(each["id"], each["ends_at"] is not None) for each in found.json()["data"]]


def values(raw: redis.Redis, owner: str) -> list[str]:
    """Return the values that are stored."""
    return [each["value"] for each in orjson.loads(raw.hget(keys.SECRETS, owner) or "[]") if "value" in each]


def test_value_is_shown_once_and_nowhere_else(office: Office, raw: redis.Redis) -> None:
    with capture_logs() as lines:
        made = make(office, ANN)
        newer = make(office, ANN, f"{HOME}/rotate")
        shown = office.call(ANN, "GET", HOME).text + office.call(OPS, "GET", "/metrics").text
        shown += office.call(OPS, "GET", "/console/webhooks").text
        office.call(ANN, "DELETE", f"{HOME}/{made['id']}")
    assert made["secret"].startswith("whsec_")
    assert made["secret"] != newer["secret"]
    for each in (made, newer):
        assert each["id"] in shown
        assert each["secret"][6:] not in shown + str(lines) + str(office.acts.calls)
    assert [each for each in raw.scan_iter() if each.startswith("cl:secrets")] == [keys.SECRETS]
    assert values(raw, ANN) == [newer["secret"]]


def test_owner_manages_its_own_and_an_admin_everyones(office: Office) -> None:
    anns, bobs = make(office, ANN), make(office, OPS, owner=BOB)
    assert (listed(office, ANN), listed(office, BOB)) == ([(anns["id"], False)], [(bobs["id"], False)])
    assert listed(office, OPS, owner=ANN) == listed(office, ANN)
    for who, method, path, params in (
        (READER, "POST", HOME, {}),
        (SENDER, "GET", HOME, {}),
        (ONLY_ADMIN, "POST", HOME, {"owner": ANN}),
        (BOB, "POST", f"{HOME}/rotate", {"owner": ANN}),
        (BOB, "GET", HOME, {"owner": ANN}),
        (BOB, "DELETE", f"{HOME}/{anns['id']}", {"owner": ANN}),
    ):
        refused = office.call(who, method, path, params=params, **({"json": {}} if method == "POST" else {}))
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), (who, method)
    assert office.call(BOB, "DELETE", f"{HOME}/{anns['id']}").status_code == 404
    assert office.call(OPS, "DELETE", f"{HOME}/{anns['id']}", params={"owner": ANN}).status_code == 204
    assert (listed(office, ANN), listed(office, BOB)) == ([], [(bobs["id"], False)])
    assert [(*done, detail.split(";")[0]) for *done, detail in office.audited()] == [
        (ANN, "webhook_secret.create", anns["id"], "owner ann"),
        (OPS, "webhook_secret.create", bobs["id"], "owner bob"),
        (OPS, "webhook_secret.remove", anns["id"], "owner ann"),
    ]


def test_rotation_ends_what_was_before_and_the_newest_never_ends(office: Office, raw: redis.Redis) -> None:
    first = make(office, ANN)
    second = make(office, ANN, f"{HOME}/rotate", body={"overlap_s": 3600})
    assert listed(office, ANN) == [(second["id"], False), (first["id"], True)]
    kept = orjson.loads(raw.hget(keys.SECRETS, ANN) or "")
    kept[1]["ends_ms"] = 1
    raw.hset(keys.SECRETS, ANN, orjson.dumps(kept))
    assert listed(office, ANN) == [(second["id"], False)]
    assert values(raw, ANN) == [second["secret"]]
    third = make(office, ANN, f"{HOME}/rotate", body={"overlap_s": 0})
    assert listed(office, ANN) == [(third["id"], False)]


def test_what_would_leave_receivers_behind_is_refused_in_words(office: Office) -> None:
    def refused(method: str, path: str, code: str, **sent: Any) -> str:
        answer = office.call(ANN, method, path, **sent)
        assert answer.json()["code"] == code, answer.text
        return str(answer.json()["detail"])

    assert "create one" in refused("POST", f"{HOME}/rotate", "not_found", json={})
    first = make(office, ANN)
    assert "rotate it" in refused("POST", HOME, "secret_in_use", json={})
    second = make(office, ANN, f"{HOME}/rotate")
    assert "the newest" in refused("DELETE", f"{HOME}/{second['id']}", "secret_in_use")
    for _ in range(MOST_SECRETS - 2):
        make(office, ANN, f"{HOME}/rotate")
    assert f"{MOST_SECRETS} secrets" in refused("POST", f"{HOME}/rotate", "secret_in_use", json={})
    assert office.call(ANN, "DELETE", f"{HOME}/{first['id']}").status_code == 204
    assert "has ended" in refused("DELETE", f"{HOME}/{first['id']}", "not_found")
    bodies: list[Any] = [{"overlap_s": -1}, {"overlap_s": 10**9}, {"overlap": 1}, [], "x"]
    for body in bodies:
        refused("POST", f"{HOME}/rotate", "invalid_input", json=body)
    # A page of another origin may send neither JSON nor DELETE: without a body nothing is made.
    assert office.call(ANN, "POST", f"{HOME}/rotate").status_code == 422
    assert office.call(OPS, "GET", HOME, params={"owner": "*"}).status_code == 422


def test_job_with_a_webhook_needs_a_secret_of_its_owner_or_of_the_service(office: Office) -> None:
    refused = office.call(ANN, "POST", "/v1/jobs", json=ONE | HOOK)
    assert (refused.status_code, refused.json()["code"]) == (422, "webhook_refused")
    assert "POST /v1/webhook-secrets" in refused.json()["detail"]
    make(office, ANN)
    assert office.call(ANN, "POST", "/v1/jobs", json=ONE | HOOK).status_code == 202
    assert office.call(BOB, "POST", "/v1/jobs", json=ONE | HOOK).status_code == 422


class TestWithASecretOfTheService:
    """Where the service has a secret too, it signs for owners who have none, and beside the first one of an owner."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return Settings(**settings.model_dump(exclude_unset=True) | {"webhook_secret": "whsec_" + "YWJj" * 8})

    def test_it_is_listed_as_what_signs_and_ends_after_the_first_of_the_owners_own(self, office: Office) -> None:
        assert listed(office, ANN) == [("service", False)]
        assert office.call(ANN, "DELETE", f"{HOME}/service").status_code == 404
        made = make(office, ANN)
        assert listed(office, ANN) == [(made["id"], False), ("service", True)]
        assert office.call(ANN, "DELETE", f"{HOME}/service").status_code == 204
        assert listed(office, ANN) == [(made["id"], False)]
        assert office.call(ANN, "DELETE", f"{HOME}/{made['id']}").status_code == 204
        assert listed(office, ANN) == [("service", False)]


def test_client_and_commands_make_list_rotate_and_remove(service: Service) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(make_cli(), ["webhooks", "secrets", *arguments, "--url", service.url])

    made = run("create")
    assert (made.exit_code, made.stdout.startswith("whsec_"), made.stdout.count("\n")) == (0, True, 1), made.output
    assert "not shown again" in made.stderr
    again = run("create")
    assert (again.exit_code, "rotate it" in again.stderr, again.stdout) == (1, True, "")
    rotated = orjson.loads(run("rotate", "--overlap-s", "60", "--json").stdout)
    with Client(service.url) as client:
        newest, older = client.webhook_secrets()
        assert (newest["id"], "secret" in newest) == (rotated["id"], False)
        table = run("list").stdout.split()
        assert {newest["id"], older["id"], "never"} <= set(table)
        assert made.stdout.strip() not in run("list", "--json").stdout
        assert run("remove", older["id"]).exit_code == 0
        with pytest.raises(ServiceError, match="no webhook secret"):
            client.remove_webhook_secret(older["id"])

    async def rotate() -> list[str]:
        async with AsyncClient(service.url) as client:
            await client.create_webhook_secret(0, rotate=True)
            return [each["id"] for each in await client.webhook_secrets()]

    assert len(asyncio.run(rotate())) == 1
