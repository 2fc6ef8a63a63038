"""Usage over HTTP: one's own, everybody's for an admin, as JSON and as CSV, by the client and the command."""

import csv
import io
from typing import Any

import orjson
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.client import Client
from corelane.store.dispatch import ExchangeRequest
from tests.api.conftest import Service
from tests.api.office import ANN, BOB, ONLY_ADMIN, OPS, READER, Office
from tests.corelane.store_bench import VERSION, Bench, answered, claimed

CONSOLE = True

ITEM = {"question": "Who wrote it?", "context": "Ada wrote it."}


def run(service: Service, *arguments: str) -> tuple[int, str]:
    """Return the exit code of a command and all it printed."""
    done = CliRunner().invoke(make_cli(), [*arguments, "--url", service.url])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def work_on(bench: Bench, core_s: float) -> None:
    """Answer what waits, all in one commit; each job takes these seconds of a core."""
    core = bench.core("a/0")
    claim = claimed(core)
    spent = {job: [300, int(1_000_000 * core_s)] for job in claim.jobs}
    core.exchange(ExchangeRequest(commits={claim.lease: answered(claim)}, spent=spent))


def usage(office: Office, who: str, **params: Any) -> Any:
    response = office.call(who, "GET", "/v1/usage", params=params)
    assert response.status_code == 200, response.text
    return response.json()


def test_everybody_sees_their_own_and_an_admin_all(office: Office) -> None:
    job = office.submit(ANN)
    office.submit(BOB)
    work_on(office.bench, 10)
    shown = office.call(ANN, "GET", f"/v1/jobs/{job}").json()["usage"]
    assert shown == {"items": 1, "tokens": 300, "core_s": 10}
    own = usage(office, ANN, group_by=["key", "model"])
    assert [(row["key"], row["model"], row["core_s"]) for row in own["data"]] == [(ANN, VERSION, 10)]
    assert usage(office, READER)["data"] == []
    everybody = usage(office, OPS, group_by=["key"], owner="*")
    assert [(row["key"], row["core_s"]) for row in everybody["data"]] == [(ANN, 10), (BOB, 10)]
    assert everybody["total"]["core_s"] == 20
    assert office.call(ANN, "GET", "/v1/usage", params={"owner": "*"}).status_code == 403
    assert office.call(ONLY_ADMIN, "GET", "/v1/usage").status_code == 403


def test_days_are_chosen_and_wrong_ones_refused(office: Office) -> None:
    office.submit(ANN)
    work_on(office.bench, 10)
    today = usage(office, ANN)["to"]
    assert usage(office, ANN, **{"from": today, "to": today, "group_by": "day"})["data"][0]["day"] == today
    assert usage(office, ANN, **{"from": "2020-01-01", "to": "2020-01-31"})["data"] == []
    for wrong in ({"from": "2026-11-02", "to": "2026-11-01"}, {"from": "2000-01-01"}, {"group_by": "hour"}):
        assert office.call(ANN, "GET", "/v1/usage", params=wrong).status_code == 422


def test_rows_come_as_csv(office: Office) -> None:
    office.submit(ANN)
    work_on(office.bench, 10)
    response = office.call(ANN, "GET", "/v1/usage", params={"format": "csv", "group_by": "key"})
    assert response.headers["content-type"].startswith("text/csv")
    [row] = csv.DictReader(io.StringIO(response.text))
    assert (row["key"], row["items"], row["tokens"], row["core_s"], row["day"]) == (ANN, "1", "300", "10.0", "")


def test_sums_outlive_the_job_and_client_and_command_show_them(service: Service) -> None:
    with Client(service.url) as client:
        jobs = [client.submit([ITEM]).id for _ in range(2)]
        work_on(service.bench, 10)
        code, printed = run(service, "jobs", "show", jobs[0])
        assert code == 0
        assert "1 item, 300 tokens, 10.000 core seconds" in printed
        for job in jobs:
            client.delete(job)
        found = client.usage(group_by="model")
        assert [(row.model, row.items, row.core_s) for row in found.data] == [(VERSION, 2, 20)]
    code, printed = run(service, "usage", "--by", "key", "--by", "day")
    assert code == 0
    assert "600" in printed
    assert "20.00 s" in printed
    code, printed = run(service, "usage", "--json")
    report = orjson.loads(printed)
    assert (report["from"][:7], report["group_by"]) == (report["to"][:7], ["day"])
