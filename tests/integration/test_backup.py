"""A service that is backed up under load, destroyed and restored has all that it had accepted before."""

import json
import shutil
import subprocess
import threading
from pathlib import Path

import httpx2
from standardwebhooks.webhooks import Webhook
from typer.testing import CliRunner

from corelane.cli.app import make_cli
from tests.integration.asked_jobs import Asker, items
from tests.tools.fleet import Fleet, start_fleet
from tests.tools.receivers import receiver
from tests.tools.snippets import ROOT
from tests.tools.waiting import eventually

SETTINGS = {"CORELANE_TARGET": "null", "CORELANE_AUTH": "required", "CORELANE_WEBHOOK_SECRET": ""}

#: Work waits while the backup is made.
SLOW = SETTINGS | {"CORELANE_NULL_BATCH_S": "0.5", "CORELANE_CLAIM_TOKENS": "2000", "CORELANE_FEED_TOKENS": "2000"}


def corelane(*arguments: object) -> str:
    done = CliRunner().invoke(make_cli(), [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def script(name: str, *arguments: Path) -> None:
    subprocess.run([ROOT / "deploy" / name, *arguments], check=True, timeout=60)


def called(fleet: Fleet, key: str) -> httpx2.Client:
    return httpx2.Client(base_url=fleet.url, timeout=30, headers={"Authorization": f"Bearer {key}"})


def submit_until(is_over: threading.Event, asker: Asker) -> None:
    while not is_over.is_set():
        asker.webhook("a job of the load", "job.completed")
        asker.lines("lines of the load", 50)


def test_service_restored_from_a_backup_under_load_goes_on_with_all_it_had_accepted(tmp_path: Path) -> None:
    data, archive, is_over = tmp_path / "data", tmp_path / "backup.tar", threading.Event()
    data.mkdir()
    with receiver() as hooks:
        first = start_fleet(data, tmp_path, "--cores", "1", "--no-flower", **SLOW)
        key = json.loads(corelane("keys", "create", "--name", "ann", "--data", data, "--json"))["key"]
        with called(first, key) as api:
            asker = Asker(api, "first", hooks.url)
            final = asker.job("a final job", items(3))
            eventually(lambda: api.get(f"/v1/jobs/{final.id}").json()["status"] == "succeeded")
            own = api.post("/v1/webhook-secrets", json={}).json()["secret"]
            results = api.get(f"/v1/jobs/{final.id}/results").content
            asker.each_kind()
            batch = asker.batch(40)
            before = list(asker.jobs)
            load = threading.Thread(target=submit_until, args=(is_over, Asker(api, "load", hooks.url)))
            load.start()
            script("backup.sh", data, archive)
            is_over.set()
            load.join()
        first.process.kill()
        first.process.wait()
        first.api.close()
        secret = (data / "webhook-secret").read_text().strip()
        shutil.rmtree(data, ignore_errors=True)
        script("restore.sh", archive, restored := tmp_path / "restored")
        posted = len(hooks.posts)
        second = start_fleet(restored, tmp_path, "--cores", "1", "--no-flower", **SETTINGS)
        try:
            with called(second, key) as api:
                assert api.get(f"/v1/jobs/{final.id}/results").content == results
                for job in before:
                    eventually(lambda job=job: api.get(f"/v1/jobs/{job.id}").json()["finished_at"] is not None)  # type: ignore[misc]
                    assert api.get(f"/v1/jobs/{job.id}").json()["counts"]["succeeded"] == job.items, job
                    if "idempotency-key" in job.request.headers:
                        assert again(api, job.request) == job.id
                eventually(lambda: api.get(f"/v1/batches/{batch}").json()["status"] == "completed")
                waiting = [each["id"] for each in api.get("/v1/jobs", params={"status": "queued"}).json()["data"]]
                for each in waiting:  # of the load, accepted before the snapshot
                    eventually(lambda each=each: api.get(f"/v1/jobs/{each}").json()["status"] == "succeeded")  # type: ignore[misc]
                eventually(lambda: len(hooks.posts) > posted)
                for post in hooks.posts[posted:]:
                    for each in (own, secret):
                        Webhook(each).verify(post.body, post.headers)
            with called(second, key[:-4] + "AAAA") as stranger:
                assert stranger.get("/v1/jobs").status_code == 401
        finally:
            second.end()
    assert "made a" not in second.log.read_text()


def again(api: httpx2.Client, request: httpx2.Request) -> str:
    """Send a request again, and return the job that is answered with."""
    headers = {name: request.headers[name] for name in ("content-type", "idempotency-key")}
    return str(api.post(request.url.path, content=request.content, headers=headers).json()["id"])
