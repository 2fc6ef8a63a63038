"""Who sees which deliveries. On a real Redis, without a sender."""

import redis

from corelane.domain.api_keys import Scope
from corelane.settings import Settings
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.api.test_layers import bearer, serving
from tests.tools.deliveries import schedule
from tests.tools.keys import add_keys, as_owner


def give_up(raw: redis.Redis, delivery: str) -> None:
    raw.hset(f"cl:delivery:{delivery}", "state", "dead")
    raw.zadd("cl:dead", {delivery: 1})


def schedule_one(settings: Settings, owner: str, name: str) -> str:
    return schedule(settings, "job.completed", f"job_{name}", owner, "https://a.test/", {})


def test_nobody_sees_anothers_deliveries(settings: Settings, raw: redis.Redis) -> None:
    mine, other = (schedule_one(settings, who, f"0{who}") for who in ("alice", "b0b"))
    for each in (mine, other):
        give_up(raw, each)

    with serving(add_keys(settings, "alice", "b0b")) as client:
        for headers, own in ((as_owner("alice"), mine), (as_owner("b0b"), other)):
            for each in (mine, other):
                expected = 200 if each == own else 404
                assert client.get(f"/v1/deliveries/{each}", headers=headers).status_code == expected
                again = client.post(f"/v1/deliveries/{each}/redeliver", headers=headers)
                assert again.status_code == (202 if each == own else 404)
            assert raw.hget(f"cl:delivery:{own}", "state") == "pending"
            urls = client.get(f"/v1/deliveries/{own}", headers=headers).json()["urls"]
            assert (urls["self"], urls["redeliver"]) == (f"/v1/deliveries/{own}", f"/v1/deliveries/{own}/redeliver")
        for unknown in ("/v1/deliveries/evt_0_none", "/v1/deliveries/x%0d%0a", "/v1/deliveries/evt_"):
            assert client.get(unknown, headers=as_owner("alice")).status_code == 404
            assert client.post(f"{unknown}/redeliver", headers=as_owner("alice")).status_code == 404
    public = schedule_one(settings, "public", "0public")
    give_up(raw, public)
    with serving(settings, auth="off") as client:
        dead = client.get("/v1/deliveries", params={"limit": 1}).json()
        assert ([each["id"] for each in dead["data"]], dead["has_more"]) == ([public], False)
        assert client.get("/v1/deliveries", params={"after": "x"}).status_code == 422


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
