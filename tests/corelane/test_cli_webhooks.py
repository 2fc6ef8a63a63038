"""``corelane webhooks listen``: a program that receives over real sockets."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx2
import orjson
import pytest
from standardwebhooks.webhooks import Webhook

SECRET = "whsec_" + "YWJj" * 8
EVENT = {"type": "job.completed", "data": {"id": "job_1", "status": "succeeded", "counts": {"total": 3, "failed": 0}}}
BODY = orjson.dumps(EVENT)


@pytest.fixture
def listening(request: pytest.FixtureRequest) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    given = [*request.param, "--port", "0", "--secret", SECRET]
    command = [sys.executable, "-m", "corelane", "webhooks", "listen", *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[2].decode().rstrip(";"), process
        process.kill()


def post(url: str, delivery: str, secret: str = SECRET) -> int:
    at = datetime.now(UTC)
    signature = Webhook(secret).sign(delivery, at, BODY.decode())
    headers = {
        "webhook-id": delivery,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }
    return httpx2.post(url, content=BODY, headers=headers, timeout=60).status_code


@pytest.mark.parametrize("listening", [["--count", "2"]], indirect=True)
def test_events_are_verified_shown_and_counted_once(listening: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    url, process = listening
    statuses = [post(url, "evt_1"), post(url, "evt_1"), post(url, "evt_x", "whsec_" + "ZGVm" * 8)]
    statuses.append(httpx2.post(url, content=b"", headers={"Content-Length": "0"}, timeout=60).status_code)
    assert [*statuses, post(url, "evt_2")] == [204, 204, 401, 401, 204]
    shown, _ = process.communicate(timeout=60)
    first, again, *refused, last = shown.decode().splitlines()
    assert first == "job.completed · job_1 · succeeded · 3 total · evt_1"
    assert (again, last) == (f"{first} · again", first.replace("evt_1", "evt_2"))
    assert [line.startswith("refused: this is not a webhook of the service") for line in refused] == [True, True]
    assert process.returncode == 0


@pytest.mark.parametrize("listening", [["--count", "1", "--json"]], indirect=True)
def test_events_as_lines_of_json(listening: tuple[str, "subprocess.Popen[bytes]"]) -> None:
    url, process = listening
    assert post(url, "evt_1") == 204
    shown, _ = process.communicate(timeout=60)
    assert orjson.loads(shown) == {"webhook_id": "evt_1", "again": False} | EVENT


def test_without_a_secret_one_is_offered() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "corelane", "webhooks", "listen"], capture_output=True, check=False, timeout=60, cwd="/"
    )
    assert done.returncode == 1
    assert b"CORELANE_WEBHOOK_SECRET=whsec_" in done.stderr
