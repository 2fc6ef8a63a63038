"""Dry runs over HTTP: what a job would be and take, checked as a real one, with nothing kept."""

from typing import Any

import orjson
import pytest

from corelane.domain.forecast import Speed
from corelane.domain.prices import NOTHING, Price
from corelane.settings import Settings
from corelane.store.fleet import Announcer
from corelane.store.rates import RateStore
from tests.api.conftest import Service
from tests.api.test_jobs import JSON, LINES, ONE, code_of, lines
from tests.corelane.store_bench import VERSION, age, announce

#: Keys that processes write by themselves, once a second or so.
BESIDE = ("cl:process", "cl:metrics", "cl:release", "cl:marks")


def kept(service: Service) -> set[str]:
    return {key for key in service.bench.raw.scan_iter("cl:*") if not key.startswith(BESIDE)}


def forecast(service: Service, **body: Any) -> dict[str, Any]:
    response = service.http.post("/v1/jobs", json=ONE | body | {"dry_run": True})
    assert response.status_code == 200, response.text
    return response.json()


def teach(service: Service, *costs: tuple[str, list[int]]) -> None:
    """Have a core report what items cost it: class, then items, estimated tokens, tokens, windows, core µs."""
    told = [(VERSION, its_class, sums) for its_class, sums in costs]
    Announcer(service.bench.settings, "a/0").beat({"state": "idle"}, [VERSION], [], costs=told)


def test_nothing_of_a_dry_run_is_kept(service: Service) -> None:
    before = kept(service)
    found = forecast(service, metadata={"a": "b"})
    assert (found["object"], found["model"], found["items"], found["windows"]) == ("job.forecast", VERSION, 1, 1)
    assert found["tokens"] == 64
    assert (found["core_s"], found["refusal"], found["late"]) == (None, None, False)
    assert "no item of this model was measured yet" in found["note"]
    put = service.http.put("/v1/jobs/mine", json=ONE | {"dry_run": True})
    assert (put.status_code, put.json()["object"]) == (200, "job.forecast")
    sent = service.http.post("/v1/jobs", content=lines(40, {"dry_run": True}), headers=LINES)
    assert (sent.status_code, sent.json()["items"], sent.json()["tokens"]) == (200, 40, 40 * 64)
    assert kept(service) == before
    assert not list(service.bench.settings.files_root.glob("*"))
    assert service.http.get("/v1/jobs").json()["data"] == []


def test_dry_run_uses_no_idempotency_key(service: Service) -> None:
    key = {"Idempotency-Key": "k"}
    for body, kind in ((orjson.dumps(ONE | {"dry_run": True}), JSON), (lines(2, {"dry_run": True}), LINES)):
        assert service.http.post("/v1/jobs", content=body, headers=kind | key).json()["object"] == "job.forecast"
    made = service.http.post("/v1/jobs", json=ONE, headers=key)
    assert made.status_code == 202
    assert "Idempotent-Replayed" not in made.headers


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"question": ""}, "invalid_input"),
        ({"model": "none"}, "unknown_model"),
        ({"options": {"min_precision": 0.9}}, "not_calibrated"),
        ({"keep_s": 10**9}, "invalid_input"),
        ({"webhook": {"url": "https://example.com/hook"}}, "webhook_refused"),
        ({"refuse_if_late": True}, "invalid_input"),
    ],
)
def test_dry_run_has_the_errors_of_a_real_one(service: Service, body: dict, code: str) -> None:
    refused = service.http.post("/v1/jobs", json=ONE | body | {"dry_run": True})
    real = service.http.post("/v1/jobs", json=ONE | body)
    assert code_of(refused, 422) == code_of(real, 422) == code
    assert refused.json()["detail"] == real.json()["detail"]
    assert code != "not_calibrated" or "operator calibrate it" in real.json()["detail"]
    assert code_of(service.http.post("/v1/jobs", content=b'{"dry_run": true}\n{"question": 1}', headers=LINES), 422)


def test_precision_above_every_score_of_the_model_is_refused_with_the_highest(service: Service) -> None:
    announce(service.bench.settings, "a/0", VERSION, ["default"], {"calibrated": True, "highest_precision": 0.876})
    for precision, status in ((0.876, 202), (0.88, 422)):
        asked = ONE | {"options": {"min_precision": precision}}
        answered = service.http.post("/v1/jobs", json=asked)
        assert answered.status_code == status
    assert code_of(answered, 422) == code_of(service.http.post("/v1/jobs", json=asked | {"dry_run": True}), 422)
    assert code_of(answered, 422) == "precision_out_of_reach"
    assert "ask for 0.876 at most" in answered.json()["detail"]
    # A worker from before the highest precision was told.
    announce(service.bench.settings, "a/0", VERSION, ["default"], {"calibrated": True})
    assert service.http.post("/v1/jobs", json=asked).status_code == 202


def test_what_items_cost_lately_is_the_forecast(service: Service) -> None:
    teach(service, ("one:plain:0", [1000, 64_000, 20_000, 1000, 30_000_000]))
    teach(service, ("many:plain:0", [1000, 64_000, 20_000, 1000, 10_000_000]))
    alone = forecast(service)
    assert alone["core_s"] == pytest.approx(0.03, rel=0.02)
    assert alone["tokens"] == 20
    assert alone["note"] == "from 2,000 recent items of this model, with enough of every size in this job"
    many = forecast(service, question=None, context=None, items=[ONE] * 320)
    assert many["core_s"] == pytest.approx(3.2, rel=0.02)
    long = forecast(service, context="the river was wide and red at dusk " * 500)
    assert long["windows"] > 10
    assert long["core_s"] > 10 * alone["core_s"] / 3
    assert "sizes that few of them had" in long["note"]


def test_slower_machines_show_at_once_in_work_that_none_did_lately(service: Service) -> None:
    usual = [1000, 64_000, 20_000, 1000, 10_000_000]
    teach(service, ("one:plain:0", usual))
    before = forecast(service)["core_s"]
    for _ in range(30):
        teach(service, ("many:plain:0", usual))
    teach(service, ("many:plain:0", [200, 12_800, 4000, 200, 4_000_000]))
    assert 1.6 * before < forecast(service)["core_s"] < 2 * before


CHEAP, DEAR = Price(3.6, "USD", "inf2.xlarge", "2026-09-24"), Price(7.2, "USD", "inf2.xlarge", "2026-09-24")
EURO = Price(1.8, "EUR", "inf2.xlarge")


def work_at(
    service: Service, core: str, price: Price | None, *costs: tuple[str, list[int]], version: str = VERSION
) -> None:
    """Have a core of a price beat, after work if any."""
    told = [(version, its_class, sums) for its_class, sums in costs]
    worked = ("p", NOTHING if price is None else price.encode(), 0)
    Announcer(service.bench.settings, core).beat({"state": "idle"}, [version], [], worked=worked, costs=told)


def test_cost_is_at_the_prices_of_the_cores_that_hold_the_model(service: Service) -> None:
    assert forecast(service)["cost"] is None
    for core, price in (("a/0", CHEAP), ("b/0", DEAR)):
        work_at(service, core, price, ("one:plain:0", [1000, 64_000, 20_000, 1000, 3_000_000]))
    found = forecast(service, question=None, context=None, items=[ONE] * 100)
    cost = found["cost"]
    assert (cost["currency"], cost["instance"], cost["as_of"]) == ("USD", "inf2.xlarge", "2026-09-24")
    assert cost["per_core_hour"] == pytest.approx(5.4)
    assert cost["amount"] == pytest.approx(found["core_s"] * cost["per_core_hour"] / 3600, rel=1e-6)
    content = b"".join(batch_line(f"a{n}") for n in range(100))
    assert forecast_batch(service, content)["cost"]["amount"] == pytest.approx(cost["amount"], rel=0.01)


def test_price_that_is_set_or_changed_later_is_that_of_the_next_forecast(service: Service) -> None:
    work_at(service, "a/0", None, ("one:plain:0", [100_000, 6_400_000, 2_000_000, 100_000, 3_600_000_000]))
    without = forecast(service)
    assert (without["core_s"], without["cost"]) == (pytest.approx(0.036, rel=0.02), None)
    for price in (CHEAP, DEAR, EURO):
        work_at(service, "a/0", price)
        cost = forecast(service)["cost"]
        assert (cost["currency"], cost["per_core_hour"]) == (price.currency, price.per_core_hour)
        assert cost["amount"] == pytest.approx(0.036 * price.per_core_hour / 3600, rel=0.02)
    work_at(service, "a/0", None)
    assert forecast(service)["cost"] is None


@pytest.mark.parametrize(("other", "reason"), [(EURO, "several currencies"), (None, "have no price")])
def test_cost_that_cannot_be_known_says_why(service: Service, other: Price | None, reason: str) -> None:
    work_at(service, "a/0", CHEAP, ("one:plain:0", [1000, 64_000, 20_000, 1000, 3_000_000]))
    assert "no cost" not in forecast(service)["note"]
    work_at(service, "b/0", other)
    told = forecast(service)
    assert told["cost"] is None
    assert reason in told["note"]


def test_batch_of_models_at_several_currencies_has_a_cost_for_each_and_none_in_all(service: Service) -> None:
    announce(service.bench.settings, "b/0", "other@1", ["other"])
    for core, price, version in (("a/0", CHEAP, VERSION), ("b/0", EURO, "other@1")):
        work_at(service, core, price, ("one:plain:0", [1000, 64_000, 20_000, 1000, 3_000_000]), version=version)
    told = forecast_batch(service, batch_line("a") + batch_line("b", model="other"))
    assert [job["cost"]["currency"] for job in told["jobs"]] == ["USD", "EUR"]
    assert told["cost"] is None
    assert "no cost in all" in told["note"]


def test_price_where_no_core_lives_is_that_of_the_last_work(service: Service) -> None:
    work_at(service, "a/0", CHEAP, ("one:plain:0", [1000, 64_000, 20_000, 1000, 3_000_000]))
    age(service.bench.raw, 3600)
    assert service.bench.with_link(lambda link: RateStore(link).read(VERSION)).prices == {CHEAP: 1}


def test_before_any_work_core_seconds_are_those_of_passes(service: Service) -> None:
    announce(service.bench.settings, "a/0", VERSION, summary={"row_us": [[64, 10_000, 5000], [384, 40_000, 30_000]]})
    work_at(service, "a/0", CHEAP)
    alone, many = forecast(service), forecast(service, question=None, context=None, items=[ONE] * 320)
    # Each item takes 32 tokens' worth in addition to its row.
    assert alone["core_s"] == pytest.approx(0.0125, rel=0.01)
    assert many["core_s"] == pytest.approx(320 * 0.0075, rel=0.01)
    assert alone["cost"]["amount"] == pytest.approx(alone["core_s"] * 3.6 / 3600)
    assert "no item of this model was measured yet" in alone["note"]


def test_older_costs_fade_with_work(service: Service) -> None:
    teach(service, ("one:plain:0", [1000, 64_000, 20_000, 1000, 30_000_000]))
    for _ in range(20):
        teach(service, ("one:plain:0", [1000, 64_000, 20_000, 1000, 90_000_000]))
    assert forecast(service)["core_s"] == pytest.approx(0.09, rel=0.02)


def test_finish_is_the_promise_that_a_job_gets(service: Service) -> None:
    service.bench.core("a/0", Speed(640))
    service.http.post("/v1/jobs", json={"items": [ONE] * 20})
    told = forecast(service, question=None, context=None, items=[ONE] * 30)
    promise = service.http.post("/v1/jobs", json={"items": [ONE] * 30}).json()["promise"]
    assert (told["position"], told["tokens_ahead"]) == (promise["position"], promise["tokens_ahead"]) == (1, 1280)
    assert told["earliest_at"] < told["finish_at"] < told["latest_at"]
    assert told["finish_at"] <= promise["finish_at"]


def test_what_would_be_refused_now_says_so_and_when_to_come(service: Service) -> None:
    service.bench.core("a/0", Speed(64))
    late = forecast(service, question=None, context=None, items=[ONE] * 300, expires_in_s=30, refuse_if_late=True)
    assert late["late"] is True
    assert late["refusal"]["code"] == "deadline_infeasible"
    assert late["refusal"]["earliest_feasible_s"] >= 300
    allowed = forecast(service, question=None, context=None, items=[ONE] * 300, expires_in_s=30)
    assert (allowed["late"], allowed["refusal"]) == (True, None)


class TestWithFewTokens:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_outstanding_tokens": 6400})

    def test_too_much_waiting_work_is_told_with_its_retry_after(self, service: Service) -> None:
        service.bench.core("a/0", Speed(64))
        for _ in range(2):
            service.http.post("/v1/jobs", json={"items": [ONE] * 40})
        told = forecast(service, question=None, context=None, items=[ONE] * 40)["refusal"]
        real = service.http.post("/v1/jobs", json={"items": [ONE] * 40})
        assert code_of(real, 429) == told["code"] == "overloaded"
        assert int(real.headers["Retry-After"]) == told["retry_after_s"]
        sent = service.http.post("/v1/jobs", content=lines(40, {"dry_run": True}), headers=LINES).json()
        assert sent["refusal"] is None


# Batches


def batch_line(custom_id: str, **body: Any) -> bytes:
    asked = {"custom_id": custom_id, "method": "POST", "url": "/v1/answers", "body": ONE | body}
    return orjson.dumps(asked) + b"\n"


def forecast_batch(service: Service, content: bytes, **changes: Any) -> dict[str, Any]:
    sent = service.http.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})
    asked = {"input_file_id": sent.json()["id"], "endpoint": "/v1/answers", "completion_window": "24h", "dry_run": True}
    before = kept(service)
    response = service.http.post("/v1/batches", json=asked | changes, headers={"Idempotency-Key": "k"})
    assert response.status_code == 200, response.text
    assert kept(service) == before
    assert not list(service.bench.settings.files_root.glob("batch_*"))
    return response.json()


def test_lines_of_a_batch_are_checked_and_measured(service: Service) -> None:
    teach(service, ("many:plain:0", [1000, 64_000, 20_000, 1000, 10_000_000]))
    good = [batch_line(f"a{n}") for n in range(300)]
    other = [batch_line(f"b{n}", options={"top_k": 2}) for n in range(100)]
    bad = [b"not JSON\n", batch_line("a1"), batch_line("c", model="none")]
    found = forecast_batch(service, b"".join([*good, *other, *bad]))
    assert (found["object"], found["lines"], found["bad_lines"], found["items"]) == ("batch.forecast", 403, 3, 400)
    assert {error["code"] for error in found["errors"]} == {"invalid_input", "duplicate_custom_id", "unknown_model"}
    assert [job["items"] for job in found["jobs"]] == [300, 100]
    assert found["core_s"] == pytest.approx(4.0, rel=0.02)
    assert found["core_s"] == pytest.approx(sum(job["core_s"] for job in found["jobs"]))
    assert (found["windows"], found["refusal"], found["late"]) == (400, None, False)


def test_batch_that_would_fail_as_a_whole_says_so(service: Service) -> None:
    bad = forecast_batch(service, b"x\ny\n")
    assert (bad["refusal"]["code"], bad["bad_lines"], bad["core_s"]) == ("invalid_input", 2, None)
    assert forecast_batch(service, b"\n")["refusal"]["code"] == "empty_file"
    service.bench.core("a/0", Speed(64))
    late = forecast_batch(service, b"".join(batch_line(f"a{n}") for n in range(50)), completion_window="5s")
    assert (late["late"], late["refusal"]) == (True, None)
