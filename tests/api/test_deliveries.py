"""Who sees which deliveries. On a real Redis, without a sender."""

import redis

from corelane.domain.api_keys import Scope, unchecked_owner
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.api.test_layers import bearer, serving
from tests.deliveries_for_tests import schedule


def give_up(raw: redis.Redis, delivery: str) -> None:
    raw.hset(f"cl:delivery:{delivery}", "state", "dead")
    raw.zadd("cl:dead", {delivery: 1})


def schedule_one(settings: Settings, owner: str, name: str) -> str:
    return schedule(settings, "job.completed", f"job_{name}", owner, "https://a.test/", {})


def test_without_checked_keys_nobody_sees_anothers_deliveries(settings: Settings, raw: redis.Redis) -> None:
    mine, other = (schedule_one(settings, unchecked_owner(key), f"0{key}") for key in ("alice", "b0b"))
    public = schedule_one(settings, "public", "0public")
    for each in (mine, other, public):
        give_up(raw, each)

    with serving(settings, auth="off") as client:
        for headers, own in ((bearer("alice"), mine), (bearer("b0b"), other), ({}, public)):
            for each in (mine, other, public):
                expected = 200 if each == own else 404
                assert client.get(f"/v1/deliveries/{each}", headers=headers).status_code == expected
                again = client.post(f"/v1/deliveries/{each}/redeliver", headers=headers)
                assert again.status_code == (202 if each == own else 404)
            assert raw.hget(f"cl:delivery:{own}", "state") == "pending"
            urls = client.get(f"/v1/deliveries/{own}", headers=headers).json()["urls"]
            assert (urls["self"], urls["redeliver"]) == (f"/v1/deliveries/{own}", f"/v1/deliveries/{own}/redeliver")
            give_up(raw, own)
            dead = client.get("/v1/deliveries", params={"limit": 1}, headers=headers).json()
            assert ([each["id"] for each in dead["data"]], dead["has_more"]) == ([own], False)
            assert client.get("/v1/deliveries", params={"after": "x"}, headers=headers).status_code == 422
        for unknown in ("/v1/deliveries/evt_0_none", "/v1/deliveries/x%0d%0a", "/v1/deliveries/evt_"):
            assert client.get(unknown).status_code == 404
            assert client.post(f"{unknown}/redeliver").status_code == 404


def test_admin_sees_every_keys_deliveries_where_keys_are_checked(settings: Settings, raw: redis.Redis) -> None:
    store = ApiKeyStore(Link(settings.redis_url))
    _, admin = store.create("ops", [Scope.ADMIN, Scope.READ, Scope.SUBMIT])
    _, only_admin = store.create("dead letters", [Scope.ADMIN])
    key, own = store.create("ann", [Scope.READ, Scope.SUBMIT])
    mine, other = schedule_one(settings, key.owner, "0mine"), schedule_one(settings, "b0b", "0other")
    for each in (mine, other):
        give_up(raw, each)

    with serving(settings, auth="required") as client:
        for secret in (admin, only_admin):
            dead = client.get("/v1/deliveries", headers=bearer(secret)).json()["data"]
            assert {each["id"] for each in dead} == {mine, other}
        assert client.get("/v1/deliveries", headers=bearer(own)).status_code == 403
        assert client.get(f"/v1/deliveries/{other}", headers=bearer(own)).status_code == 404
        assert client.get(f"/v1/deliveries/{mine}", headers=bearer(own)).status_code == 200
        assert client.post(f"/v1/deliveries/{other}/redeliver", headers=bearer(admin)).status_code == 202
