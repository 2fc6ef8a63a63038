"""A rolling upgrade loses nothing: the version before and this one work on one Redis, with jobs in the lanes, in both
directions and mixed.

Each test hands in jobs of every kind, changes processes while the jobs wait and run, and then asks the new API how all
of them ended. A failure names the direction and the kind of job.

The version before rings no sender of another version, so keeper and sender are replaced together, as the notes of the
release say.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import httpx2
import orjson
import pytest
from standardwebhooks.webhooks import Webhook

from tests.integration.asked_jobs import LARGER, NDJSON, AskedBatch, AskedJob, Asker, items
from tests.integration.conftest import WEBHOOK_SECRET
from tests.integration.two_versions import TwoVersionFleet
from tests.receivers import Receiver, receiver
from tests.sse import Told, parse_blocks, read_story

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(240)]

#: A batch takes its time and holds few slices, and lines come into Redis piece by piece, so that processes change in
#: the middle of jobs. A worker that was killed is missed soon. Receivers are tried again soon and never left alone.
SETTINGS = {
    "TARGET": "null",
    "MODEL": "null",
    "NULL_BATCH_S": "0.04",
    "SLICE_ITEMS": "8",
    "CLAIM_TOKENS": "256",
    "FEED_TOKENS": "2000",
    "LEASE_S": "3",
    "HEARTBEAT_S": "0.5",
    "SWEEP_S": "0.2",
    "MAX_ATTEMPTS": "10",
    "WEBHOOK_SECRET": WEBHOOK_SECRET,
    "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "WEBHOOK_RETRIES_S": ",".join(["0.5"] * 100),
    "WEBHOOK_CIRCUIT_FAILURES": "1000",
    "LOG_FORMAT": "json",
}

#: All jobs of a test are answered well within this, in seconds.
ANSWERED_S = 90

#: A job that runs tells of its progress well within this, in seconds; streams send a sign of life every 15 s.
SILENCE_S = 10


@dataclass
class Hooks:
    """A receiver of webhooks that answers 500 until it is told to accept."""

    receiver: Receiver
    accepts: threading.Event = field(default_factory=threading.Event)
    accepted: set[int] = field(default_factory=set)

    def answer(self, number: int) -> tuple[int, dict[str, str], bytes]:
        if not self.accepts.is_set():
            return 500, {}, b"not now"
        self.accepted.add(number)
        return 204, {}, b""


@pytest.fixture(scope="module")
def hooks() -> Iterator[Hooks]:
    answers: list[Hooks] = []
    with receiver(lambda number: answers[0].answer(number)) as found:
        answers.append(Hooks(found))
        yield answers[0]


@pytest.fixture(scope="module")
def fleet(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoVersionFleet]:
    fleet = TwoVersionFleet(tmp_path_factory.mktemp("upgrade"), redis_url, SETTINGS)
    fleet.redis.flushall()
    yield fleet
    fleet.close()


def catch_at_work(fleet: TwoVersionFleet, worker: str, asker: Asker) -> tuple[AskedJob, Told]:
    """Freeze a worker that has claimed a part of a job of lines; return the job and an event that it was told by."""
    deadline = time.monotonic() + ANSWERED_S
    while time.monotonic() < deadline:
        job = asker.lines(f"a job of lines, begun by the {worker} that is killed", 300)
        progress = next_progress(asker.api, job)
        while not asker.api.get(f"/v1/jobs/{job.id}").json()["finished_at"] and time.monotonic() < deadline:
            fleet.check_all_run()
            if progress is not None and fleet.freeze_at_work(worker):
                if not asker.api.get(f"/v1/jobs/{job.id}").json()["finished_at"]:
                    return job, progress
                fleet.thaw(worker)
    pytest.fail(f"{worker} was never found at work on {asker.jobs[-1]}\n{fleet.last_words()}", pytrace=False)


def next_progress(api: httpx2.Client, job: AskedJob) -> Told | None:
    """Wait for an event that tells of a job's progress; return None if the job ends, or stands still, without one."""
    with (
        suppress(httpx2.ReadTimeout),
        api.stream("GET", f"/v1/jobs/{job.id}/events", timeout=SILENCE_S) as response,
    ):
        return next((event for event in parse_blocks(response.iter_bytes()) if event.type == "job.progress"), None)
    return None


def expect_all_answered(route: str, fleet: TwoVersionFleet, askers: list[Asker], hooks: Hooks) -> None:
    """Fail with all that was lost, refused or told twice, as the new API has it."""
    deadline = time.monotonic() + ANSWERED_S
    problems = [problem for asker in askers for problem in asker.problems]
    with fleet.http("new") as api:
        for job in [job for asker in askers for job in asker.jobs]:
            problems += [f"{job}: {problem}" for problem in problems_of_job(fleet, api, job, deadline)]
            problems += [f"{job}: {problem}" for problem in problems_of_repeat(api, "new", job)]
            problems += [f"{job}: {problem}" for problem in problems_of_webhooks(fleet, api, job, hooks, deadline)]
        for batch in [batch for asker in askers for batch in asker.batches]:
            problems += [f"{batch}: {problem}" for problem in problems_of_batch(fleet, api, batch, deadline)]
        for label in {asker.label for asker in askers}:
            page = api.get("/v1/jobs", params={"label": label, "limit": 100}).json()
            expected = {job.id for asker in askers for job in asker.jobs if label in job.labels}
            if sorted(expected) != sorted(job["id"] for job in page["data"]):
                problems.append(f"by label {label} {len(page['data'])} jobs are found, {len(expected)} were handed in")
    fleet.check_all_run()
    if problems:
        pytest.fail("\n".join([*(f"{route}: {each}" for each in problems), fleet.last_words()]), pytrace=False)


def problems_of_job(fleet: TwoVersionFleet, api: httpx2.Client, job: AskedJob, deadline: float) -> Iterator[str]:
    """Yield what is wrong with a job: its end, its results or its events."""
    path, total = f"/v1/jobs/{job.id}", len(job.item_ids)
    while not (found := api.get(path, headers={"Prefer": "wait=1"}).json()).get("finished_at"):
        fleet.check_all_run()
        if "counts" not in found:
            yield f"cannot be read: {found}"
            return
        if time.monotonic() > deadline:
            yield f"lost: still {found['status']} with {found['counts']['succeeded']} of {total} items answered"
            return
    if (found["status"], found["counts"][job.status]) != (job.status, total):
        yield f"ended {found['status']} with counts {found['counts']}, not with all {total} items {job.status}"
    if (found["name"], tuple(found["labels"]), found["metadata"]) != (job.name, job.labels, {"kind": job.kind}):
        yield f"has another name, labels or metadata: {found['name']}, {found['labels']}, {found['metadata']}"
    results = [orjson.loads(line) for line in api.get(f"{path}/results", headers={"Accept": NDJSON}).text.splitlines()]
    expected = [(index, item_id, job.status) for index, item_id in enumerate(job.item_ids)]
    if [(each["index"], each["id"], each["status"]) for each in results] != expected:
        yield f"has other results than one for each of its {total} items, in order"
    events = read_story(api, f"{path}/events")
    if [each.type for each in events].count("job.completed") != 1 or events[-1].data["id"] != job.id:
        yield f"its events are not told to one end: {[each.type for each in events]}"
    places = [tuple(map(int, each.id.split("-"))) for each in events]
    if places != sorted(set(places)):
        yield f"the ids of its events do not grow: {[each.id for each in events]}"
    if job.name and api.get(f"/v1/jobs/{job.name}").json().get("id") != job.id:
        yield f"is not found by its name {job.name}"


def problems_of_repeat(api: httpx2.Client, version: str, job: AskedJob) -> Iterator[str]:
    """Yield what is wrong if the same request, sent again to the API of a version, is not the same job."""
    sent = job.request
    if not (job.name or "Idempotency-Key" in sent.headers):
        return
    headers = {name: value for name, value in sent.headers.items() if name in ("content-type", "idempotency-key")}
    again = api.request(sent.method, sent.url.path, content=sent.content, headers=headers)
    if again.json().get("id") != job.id or again.headers.get("Idempotent-Replayed") != "true":
        yield f"the same request, sent again to the {version} API, is another job: {again.status_code} {again.text}"


def problems_of_webhooks(
    fleet: TwoVersionFleet, api: httpx2.Client, job: AskedJob, hooks: Hooks, deadline: float
) -> Iterator[str]:
    """Yield what is wrong with a job's webhooks: each is accepted once, signed, and logged as delivered."""
    expected = dict.fromkeys(job.events, "delivered")

    def states() -> dict[str, str]:
        return {each["event"]: each["state"] for each in api.get(f"/v1/jobs/{job.id}/deliveries").json()["data"]}

    while (found := states()) != expected:
        fleet.check_all_run()
        if time.monotonic() > deadline:
            yield f"its webhooks are {found}, not {expected}"
            break
        time.sleep(0.02)
    for event in job.events:
        delivery = f"evt_{job.id.removeprefix('job_')}_{event.removeprefix('job.')}"
        posts = {n: post for n, post in enumerate(hooks.receiver.posts) if post.headers["webhook-id"] == delivery}
        accepted = posts.keys() & hooks.accepted
        if len(accepted) != 1:
            yield f"{event} was posted {len(posts)} times and accepted {len(accepted)} times, not once"
        if len({post.body for post in posts.values()}) > 1:
            yield f"{event} was posted in different bytes"
        for number in accepted:
            told = Webhook(WEBHOOK_SECRET).verify(posts[number].body, posts[number].headers)
            if (told["type"], told["data"]["id"]) != (event, job.id):
                yield f"{event} tells of {told['type']} of {told['data']['id']}"


def problems_of_batch(fleet: TwoVersionFleet, api: httpx2.Client, batch: AskedBatch, deadline: float) -> Iterator[str]:
    """Yield what is wrong with a batch: its end or its output file."""
    total = len(batch.custom_ids)
    while (found := api.get(f"/v1/batches/{batch.id}").json()).get("status") != "completed":
        fleet.check_all_run()
        if time.monotonic() > deadline or found.get("status") not in ("validating", "in_progress", "finalizing"):
            yield f"lost: not completed but {found}"
            return
        time.sleep(0.05)
    if found["request_counts"] != {"total": total, "completed": total, "failed": 0}:
        yield f"its counts are {found['request_counts']}, not {total} completed lines"
    output = api.get(f"/v1/files/{found['output_file_id']}/content").text.splitlines()
    if [orjson.loads(line)["custom_id"] for line in output] != batch.custom_ids:
        yield f"its output of {len(output)} lines has other lines than one for each of {total}, in order"


def test_jobs_of_the_old_version_are_answered_by_the_new_one(fleet: TwoVersionFleet, hooks: Hooks) -> None:
    """The old worker is killed while it holds claims, everything else that is old is stopped, and the new version
    goes on alone.
    """
    fleet.run("old api", "old keeper", "old deliveries", "old worker 0")
    with fleet.http("old") as api:
        asker = Asker(api, "old", hooks.receiver.url)
        asker.webhook("a job that ended before the upgrade, with a webhook that was not accepted", "job.completed")
        fleet.wait_for("the old sender has posted a webhook", lambda: bool(hooks.receiver.posts))
        begun = asker.batch("a batch begun by the old keeper", 100)
        fleet.wait_for(
            "the old keeper has begun a batch",
            lambda: api.get(f"/v1/batches/{begun.id}").json()["status"] == "in_progress",
        )
        followed, heard = catch_at_work(fleet, "old worker 0", asker)
        asker.each_kind()
        [larger] = [job for job in asker.jobs if job.kind == LARGER]
        assert fleet.redis.exists(f"cl:refs:{{{larger.id}}}"), "the larger job is too small to wait as one"
        canceled = asker.job("a job that is canceled at the old API and retried at the new one", items(5))
        assert api.post(f"/v1/jobs/{canceled.id}/cancel").json()["status"] == "canceled"
        asker.jobs[-1] = replace(canceled, status="canceled")
        fleet.stop("old keeper")
        asker.batch("a batch that no old keeper has seen", 20)
        assert api.get(f"/v1/jobs/{followed.id}").json()["finished_at"] is None
    assert fleet.claims("old worker 0")
    fleet.kill("old worker 0")
    fleet.run("new api", "new keeper", "new deliveries", "new worker 0")
    hooks.accepts.set()
    with fleet.http("new") as api:
        later = Asker(api, "new", hooks.receiver.url)
        later.retry(canceled)
        expect_all_answered("old API → new worker", fleet, [asker, later], hooks)
        story, rest = (read_story(api, f"/v1/jobs/{followed.id}/events", last) for last in ("", heard.id))
        assert heard in story, "old API → new API: an event that was told is not told again"
        assert story[story.index(heard) + 1 :] == rest, (
            "old API → new API: a stream of events does not go on where it broke off"
        )


def test_jobs_of_the_new_version_are_answered_by_an_old_worker(fleet: TwoVersionFleet, hooks: Hooks) -> None:
    """API, keeper and sender are new; the only worker is old."""
    hooks.accepts.set()
    fleet.run("new api", "new keeper", "new deliveries", "old worker 1")
    with fleet.http("new") as api:
        asker = Asker(api, "new", hooks.receiver.url)
        asker.each_kind()
        asker.batch("a batch of the new keeper", 40)
        asker.answer()
    expect_all_answered("new API → old worker", fleet, [asker], hooks)


def test_both_versions_share_the_lanes_until_the_old_one_ends(fleet: TwoVersionFleet, hooks: Hooks) -> None:
    """Both APIs take jobs in and both workers answer them. Then the old worker is killed, the new keeper returns what
    it had claimed, and the old API is stopped.
    """
    hooks.accepts.set()
    upgraded = ("new api", "new keeper", "new deliveries", "new worker 0")
    fleet.run("old api", "old worker 1", *upgraded)
    route = "old and new API → old and new worker"
    with fleet.http("old") as old, fleet.http("new") as new:
        askers = [
            Asker(api, version, hooks.receiver.url) for version, api in (("old", old), ("new", new), ("old", old))
        ]
        for asker in askers[:2]:
            asker.each_kind()
            asker.batch("a batch of the new keeper", 20)
        catch_at_work(fleet, "old worker 1", askers[0])
        claims = fleet.claims("old worker 1")
        fleet.kill("old worker 1")
        askers[2].each_kind()
        askers[2].answer()
        for job in askers[1].jobs:
            if (seen := old.get(f"/v1/jobs/{job.id}")).status_code != 200:
                askers[1].problems.append(f"{job}: the old API cannot read it: {seen.text}")
            askers[1].problems += [f"{job}: {problem}" for problem in problems_of_repeat(old, "old", job)]
    fleet.run(*upgraded)
    expect_all_answered(route, fleet, askers, hooks)
    assert not set(claims) & set(fleet.claims("old worker 1")), f"{route}: the killed worker's claims are not returned"
