"""A Redis whose memory is full: no new jobs, and all that was accepted is finished."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.domain.dispatch import PUBLIC, Core
from corelane.domain.ids import new_job_id
from corelane.engine.runner import Runner, open_backend
from corelane.errors import StoreFull
from corelane.settings import Settings
from corelane.store.health_issues import find_issues
from corelane.store.jobs.submission import Submission
from corelane.tasks.forms import forms
from corelane.tasks.registry import TASKS
from tests.corelane.store_bench import Bench, announce, submit_as_admitted
from tests.tasks.tiny import compiled, save_tiny
from tests.tools.servers import RedisNode
from tests.tools.simulated_core import SimulatedCore
from tests.tools.waiting import eventually
from workers.core.drain import drain

TASK = TASKS["feature-extraction"]

#: Items of a job.
ITEMS = 100


@pytest.fixture
def embedder(tmp_path: Path) -> Artifact:
    """Compile a tiny network whose vectors have 768 numbers."""
    folder = save_tiny("bert", "AutoModel", tmp_path / "network", hidden_size=768, intermediate_size=32)
    return compiled(folder, tmp_path / "data", buckets="16x16", task=TASK.name)


@pytest.fixture
def small_store(settings: Settings, tmp_path: Path, bell: str) -> Iterator[Bench]:
    """Yield a store whose Redis may use 40 MB."""
    node = RedisNode(tmp_path / "redis", "--maxmemory", "40mb")
    node.start()
    with node.client() as raw:
        yield Bench(settings.model_copy(update={"redis_url": node.url}), raw, bell)
    node.shut_down()


@pytest.fixture
def working(small_store: Bench, embedder: Artifact) -> Iterator[str]:
    """Have a core work; yield its version."""
    runner = Runner.open(open_backend(embedder.manifest.target), embedder)
    core = SimulatedCore(small_store.settings, Core("test", 0), small_store.bell, {runner.version: runner})
    core.begin_life()
    has_ended = threading.Event()

    def work() -> None:
        while not has_ended.is_set():
            drain(core, has_ended.is_set)
            has_ended.wait(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    yield runner.version
    has_ended.set()
    thread.join()
    core.close()


def submit_texts(bench: Bench, version: str) -> str:
    """Submit a job of embeddings; return its id."""
    head = forms(TASK).head(model=version)
    items = [TASK.item.model_validate({"id": f"i{n}", "text": f"the number {n}"}) for n in range(ITEMS)]
    submission = Submission(head, PUBLIC, items, None, new_job_id())

    async def submit(link: Any) -> Any:
        return await submit_as_admitted(link, bench.settings, bench.bell, submission)

    return bench.with_link(submit).id


@pytest.mark.timeout(180)
def test_embeddings_that_fill_redis_are_all_answered_once(small_store: Bench, working: str) -> None:
    jobs = [submit_texts(small_store, working)]
    eventually(lambda: small_store.get(jobs[0]).succeeded == ITEMS)

    def fill() -> None:
        while True:
            jobs.append(submit_texts(small_store, working))

    with pytest.raises(StoreFull, match=r"memory of 42 MB is full.*delete final jobs") as refusal:
        fill()
    assert refusal.value.retry_after_s > 1
    [issue] = [each for each in small_store.with_link(find_issues) if each.part == "redis"]
    assert "new jobs are refused, accepted ones are finished" in issue.text
    eventually(lambda: all(small_store.get(job).succeeded == ITEMS for job in jobs), 120)
    assert small_store.raw.hget("cl:metrics", "corelane_attempts_total|1") == str(ITEMS * len(jobs))
    memory = small_store.raw.info("memory")
    assert 0.8 * memory["maxmemory"] < memory["used_memory"] < memory["maxmemory"]


@pytest.mark.timeout(180)
def test_jobs_that_wait_while_redis_is_over_its_limit_are_answered(
    small_store: Bench, embedder: Artifact, request: pytest.FixtureRequest
) -> None:
    version = f"{embedder.manifest.name}@{embedder.manifest.version}"
    announce(small_store.settings, "other/0", version, [])
    jobs = [submit_texts(small_store, version) for _ in range(5)]
    small_store.raw.config_set("maxmemory", int(small_store.raw.info("memory")["used_memory"] / 1.06))
    assert request.getfixturevalue("working") == version
    eventually(lambda: all(small_store.get(job).succeeded == ITEMS for job in jobs), 60)
