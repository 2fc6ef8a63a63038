"""The client's methods and the commands for many jobs, against a real API."""

import asyncio
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from corelane.client import AsyncClient, Client
from corelane.domain.jobs import JobStatus
from corelane.plugins.console import bulk
from tests.api.conftest import Service
from tests.corelane.store_bench import answered, claimed

ITEM = {"question": "Who wrote it?", "context": "Ada wrote it."}


def run(service: Service, *arguments: str) -> tuple[int, str]:
    """Return the exit code of a command and all it printed."""
    done = CliRunner().invoke(make_cli(), [*arguments, "--url", service.url])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def fail_all(service: Service) -> None:
    core = service.bench.core("a/0")
    while service.bench.waiting():
        claim = claimed(core)
        core.commit(claim.lease, answered(claim, "failed"))


def test_client_and_commands_retry_and_cancel_many_jobs(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP_JOBS", 2)
    with Client(service.url) as client:
        jobs = [client.submit([ITEM]).id for _ in range(5)]
        fail_all(service)
        code, printed = run(service, "jobs", "retry", "--status", "failed", "--dry-run")
        assert (code, printed) == (0, "5 of 5 jobs would be retried.\n")
        done = client.bulk("retry", status=JobStatus.FAILED)
        assert (done.matched, done.done, [job.id for job in done.jobs]) == (5, 5, jobs[::-1])
        code, printed = run(service, "jobs", "retry", "--model", "tiny")
        assert (code, printed.splitlines()[0]) == (0, "0 of 10 jobs were retried.")
        assert "5 not (already_retried): they were retried before." in printed
        code, printed = run(service, "jobs", "cancel", "--status", "queued", "--json")
        assert (code, orjson.loads(printed)["done"]) == (0, 5)
        assert {job.status for job in client.iter_jobs()} == {JobStatus.FAILED, JobStatus.CANCELED}


def test_commands_refuse_to_guess_which_jobs_are_meant(service: Service) -> None:
    assert run(service, "jobs", "cancel")[0] != 0
    assert run(service, "jobs", "retry", "--owner", "public")[0] != 0
    assert run(service, "jobs", "retry", "job_0", "--status", "failed")[0] != 0


def test_client_and_command_list_failed_items(service: Service) -> None:
    with Client(service.url) as client:
        jobs = [client.submit([ITEM, ITEM | {"id": "second"}], name=name).id for name in "xy"]
        fail_all(service)
        items = list(client.iter_failed_items(limit=3))
        assert [(item.job, item.index) for item in items] == [(jobs[1], 0), (jobs[1], 1), (jobs[0], 0)]
        assert [item.job for item in client.iter_failed_items(name="x")] == [jobs[0]] * 2
        assert list(client.iter_failed_items(code="none")) == []
    code, printed = run(service, "jobs", "failed-items", "--find", "y", "--json")
    assert (code, [orjson.loads(line)["job"] for line in printed.splitlines()]) == (0, [jobs[1]] * 2)
    assert jobs[1] in run(service, "jobs", "failed-items")[1]

    async def ask() -> tuple[int, Any]:
        async with AsyncClient(service.url) as client:
            found = [item.job async for item in client.iter_failed_items()]
            return len(found), await client.bulk("retry", dry_run=True, failed_items=True)

    count, dry = asyncio.run(ask())
    assert (count, dry.done, dry.dry_run) == (4, 2, True)
