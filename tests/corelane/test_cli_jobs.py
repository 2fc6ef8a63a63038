"""``corelane jobs`` against a service of real sockets."""

from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from corelane.cli.jobs import jobs
from corelane.client import Client
from tests.corelane.stand_in import ITEM, StandIn, many


@pytest.fixture
def sync_client(service: StandIn) -> Client:
    return Client(service.url)


def run(service: StandIn, *arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(jobs, [*map(str, arguments), "--url", service.url])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_jobs_are_listed_with_filters_for_readers_and_programs(service: StandIn, sync_client: Client) -> None:
    ids = [sync_client.submit([ITEM]).id for _ in range(130)]
    code, shown = run(service, "list", "--limit", 120, "--json")
    assert code == 0
    assert [orjson.loads(line)["id"] for line in shown.splitlines()] == ids[::-1][:120]
    code, shown = run(service, "list", "--status", "running", "--model", "words", "--code", "worker_lost")
    assert (code, ids[-1] in shown) == (0, True)
    assert "limit=20&status=running&model=words&code=worker_lost" in service.requests[-1]


def test_a_job_is_shown_and_canceled_retried_deleted(service: StandIn, sync_client: Client) -> None:
    job = sync_client.submit([ITEM]).id
    code, shown = run(service, "show", job)
    assert (code, shown.splitlines()[0].split()) == (0, ["job", job])
    assert orjson.loads(run(service, "show", job, "--json")[1])["id"] == job
    assert run(service, "cancel", job)[0] == run(service, "retry", job)[0] == run(service, "delete", job)[0] == 0
    assert service.requests[-3:] == [
        f"POST /v1/jobs/{job}/cancel",
        f"POST /v1/jobs/{job}/retry",
        f"DELETE /v1/jobs/{job}",
    ]


def test_a_watch_ends_with_its_job_and_says_whether_all_was_answered(service: StandIn, sync_client: Client) -> None:
    service.polls_until_final = 3
    job = sync_client.submit([ITEM]).id
    assert run(service, "watch", job)[0] == 0
    assert service.jobs[job]["polls"] == 0
    service.failed = 1
    code, shown = run(service, "watch", job, "--json")
    assert (code, orjson.loads(shown)["status"]) == (2, "succeeded")


def test_results_are_lines(service: StandIn, sync_client: Client) -> None:
    job = sync_client.submit(many(700)).id
    code, shown = run(service, "results", job)
    results: list[dict[str, Any]] = [orjson.loads(line) for line in shown.splitlines()]
    assert (code, [result["index"] for result in results]) == (0, list(range(700)))


def test_an_unknown_job_is_one_sentence(service: StandIn) -> None:
    assert run(service, "show", "job_no") == (1, "")
