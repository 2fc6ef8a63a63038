"""One worker process per core: its own queue, its own CPU, named in Flower; killed, it loses nothing."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import redis

from corelane.broker.app import make_celery
from corelane.metrics.liveness import HealthProbe, judge, read_liveness
from corelane.settings import Settings
from corelane.tasks.question_answering.wire import Question
from tests.tools.fleet import FLOWER, Fleet, parent_of
from tests.tools.waiting import eventually

#: Items of a job whose core is taken away: some seconds of work for two cores.
RUN_ITEMS = 240


def test_each_worker_is_pinned_to_a_cpu_of_its_own(fleet: Fleet) -> None:
    fleet.wait_whole()
    seen = []
    for core in fleet.states().values():
        status = Path(f"/proc/{core['pid']}/status").read_text()
        [allowed] = [line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list")]
        assert allowed == str(core["cpus"][0])
        seen.append(allowed)
    assert len(set(seen)) == fleet.cores


def answer(fleet: Fleet, question: HealthProbe) -> str | None:
    return judge(question, read_liveness(fleet.data / "health"), time.monotonic())


def test_each_part_gives_signs_of_life(fleet: Fleet) -> None:
    parts = {"keeper@testhost", "deliveries@testhost", *fleet.states()}
    eventually(lambda: {sign.part for sign in read_liveness(fleet.data / "health")} == parts)
    eventually(lambda: {answer(fleet, question) for question in HealthProbe} == {None})


def test_what_is_paused_waits_on_real_cores_and_goes_on_whole(fleet: Fleet) -> None:
    fleet.wait_whole()
    items = [Question(question="Who wrote it?", context=f"Ada wrote it in {year}.") for year in range(1800, 1840)]
    core = min(fleet.states())
    with fleet.client() as client, ThreadPoolExecutor() as threads:
        version = client.submit(items[:1], wait_s=60).model
        for kind, name in (("owner", "public"), ("model", version)):
            client.pause(kind, name)
            try:
                held = client.submit(items)
                if kind == "model":
                    os.kill(fleet.states()[core]["pid"], signal.SIGKILL)
                    eventually(lambda: fleet.states()[core]["restarts"] > 0)
                    fleet.wait_whole()
                waiting = client.get(held.id, wait_s=1)
                assert (waiting.status, waiting.counts.done) == ("queued", 0)
                assert " is paused by public since " in str(waiting.waiting_for)
                asked = threads.submit(client.get, held.id, wait_s=60)
            finally:
                client.resume(kind, name)
            assert asked.result().counts.succeeded == len(items)


def test_each_worker_reads_a_queue_of_its_own(fleet: Fleet) -> None:
    assert {name: core["queue"] for name, core in fleet.states().items()} == {
        f"testhost/{index}": f"core.testhost.{index}" for index in range(fleet.cores)
    }


def test_flower_shows_every_worker_and_lets_nobody_in_without_password(fleet: Fleet) -> None:
    nodes = {core["node"] for core in fleet.states().values()}
    with httpx2.Client(base_url=fleet.flower_url, timeout=60) as flower:
        eventually(lambda: nodes <= shown_by(flower))
        assert flower.get("/api/workers").status_code == 401
        shutdown = flower.post(f"/api/worker/shutdown/{sorted(nodes)[0]}", auth=FLOWER)
    assert shutdown.status_code in (403, 405)


def shown_by(flower: httpx2.Client) -> set[str]:
    """Return the workers that Flower shows; none before it has started, which is after the first answer."""
    with suppress(httpx2.TransportError):
        return set(flower.get("/api/workers?refresh=1", auth=FLOWER).json())
    return set()


def test_models_show_the_default_and_who_holds_it(fleet: Fleet) -> None:
    [model] = fleet.api.get("/v1/models").json()["data"]
    assert model["id"].startswith("qa-minilm@")
    assert set(model["aliases"]) == {"default", "qa-minilm"}
    assert sorted(model["cores"]) == sorted(fleet.states())


def test_overview_tells_how_cores_and_models_do(fleet: Fleet) -> None:
    fleet.wait_whole()
    with fleet.client() as client:
        job = client.submit(
            [Question(question="What is the number?", context=f"The number is {n}.") for n in range(50)]
        )
        client.wait(job.id)

        def is_told() -> bool:
            found = client.overview()
            return found.last_minute.items >= 50 and found.models[0].compute_mean_s is not None

        eventually(is_told)
        found = client.overview()
        [model] = found.models
        assert model.compute_p95_s is not None
        assert model.compute_mean_s is not None
        assert 0 < model.compute_mean_s <= 2 * model.compute_p95_s
        assert model.core_share is not None
        assert 0 < model.core_share <= 1
        assert model.padding is not None
        assert [core.name for core in found.cores] == sorted(fleet.states())
        assert all(core.memory_bytes and core.versions for core in found.cores)
        assert found.waiting.text == "nothing waits"


def test_worker_killed_half_way_is_relaunched_and_loses_and_repeats_nothing(fleet: Fleet) -> None:
    items = [
        Question(
            id=f"k{n}", question="What is the number?", context=f"The number is {n}. " + "All else is noise. " * 20
        )
        for n in range(RUN_ITEMS)
    ]
    fleet.wait_whole()
    with fleet.client() as client:
        job = client.submit(items)
        eventually(lambda: client.get(job.id).counts.succeeded > 50)
        child = fleet.states()["testhost/0"]["pid"]
        os.kill(parent_of(child), signal.SIGKILL)
        killed_at = datetime.now(UTC)
        results = list(client.iter_results(job.id))
        final = client.get(job.id)
    assert (final.status, final.counts.succeeded) == ("succeeded", RUN_ITEMS)
    assert [result.id for result in results] == [f"k{n}" for n in range(RUN_ITEMS)]
    assert final.finished_at is not None
    assert datetime.fromisoformat(final.finished_at) > killed_at
    eventually(lambda: fleet.states()["testhost/0"]["pid"] not in (None, child))
    fleet.wait_whole()
    assert b"it is launched again in" in fleet.log.read_bytes()


def test_core_killed_within_a_document_changes_nothing(fleet: Fleet) -> None:
    filler = "The committee met again in the spring and talked for hours about roads, bridges and the price of bread. "
    document = filler * 250 + "The number is forty-two. " + filler * 250
    fleet.wait_whole()
    with fleet.client() as client:
        job = client.submit([Question(id="d", question="What is the number?", context=document)])
        holders: list[str] = []

        def is_claimed() -> bool:
            with redis.Redis.from_url(fleet.redis_url()) as raw:
                holders[:] = [core.decode() for core in raw.hgetall("cl:held")]
            return bool(holders) or client.get(job.id).status.is_final

        eventually(is_claimed)
        [victim] = holders
        child, restarts = fleet.states()[victim]["pid"], fleet.states()[victim]["restarts"]
        os.kill(child, signal.SIGKILL)
        [result] = client.iter_results(job.id)
        assert (result.id, result.status) == ("d", "succeeded")
        assert result.answer is not None
        assert result.answer.text == "forty-two"
        assert document[result.answer.start : result.answer.end] == "forty-two"
        assert client.get(job.id).counts.succeeded == 1
    eventually(lambda: fleet.states()[victim]["pid"] not in (None, child))
    fleet.wait_whole()
    assert fleet.states()[victim]["restarts"] == restarts + 1


def test_remote_shutdown_under_load_hands_everything_over_and_costs_no_attempt(fleet: Fleet) -> None:
    fleet.wait_whole()
    child = fleet.states()["testhost/0"]["pid"]
    celery = make_celery(Settings(redis_url=fleet.redis_url()))
    items = [
        Question(
            id=f"s{n}", question="What is the number?", context=f"The number is {n}. " + "All else is noise. " * 20
        )
        for n in range(RUN_ITEMS)
    ]
    with fleet.client() as client:
        job = client.submit(items)
        eventually(lambda: client.get(job.id).counts.succeeded > 30)
        celery.control.shutdown(destination=["core0@testhost"])
        eventually(lambda: not Path(f"/proc/{child}").exists())
        results = list(client.iter_results(job.id))
    assert [result.id for result in results] == [item.id for item in items]
    fleet.wait_whole()


def test_question_does_not_wait_for_documents_on_every_core(fleet: Fleet) -> None:
    filler = "The committee met again in the spring and talked for hours about roads, bridges and the price of bread. "
    fleet.wait_whole()
    with fleet.client() as client:
        documents = [
            client.submit([Question(question="Who spoke?", context=filler * 1000)]) for _ in range(fleet.cores)
        ]
        eventually(lambda: all(core["state"] == "busy" for core in fleet.states().values()))
        for n in range(5):
            assert client.ask("What is the number?", f"The number is {n}.").answer is not None
        assert all(client.get(job.id).status == "running" for job in documents)
        for job in documents:
            assert client.wait(job.id).status == "succeeded"
