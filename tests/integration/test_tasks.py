"""Models of all tasks on the same cores: jobs of them mixed, while cores are killed, are answered once and in order."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from openai import OpenAI
from openai.types import Batch

from compile.model.loading import quiet_transformers
from compile.model.timing import one_thread
from corelane.domain.jobs import DEFAULT_TASK, Job
from corelane.tasks.registry import task_named
from tests.conftest import copy_artifact
from tests.integration.test_handlers import ENVIRONMENT
from tests.tasks.test_feature_extraction import official
from tests.tasks.tiny import TASKS, alike, compiled, save_task
from tests.tools.artifacts import keep_tiny_artifact
from tests.tools.fleet import Fleet, start_fleet
from tests.tools.others_clients import TEXTS, check_cohere, check_hugging_face, check_openai, check_tei
from tests.tools.snippets import ROOT
from tests.tools.waiting import eventually

#: A handler, and its items.
HANDLER = ("shop.models:Sentiment", lambda number: {"text": f"so {('kind', 'rude', 'dull')[number % 3]} {number}"})

#: Items of each job, and how many of them equal an earlier one.
ITEMS, REPEATED = 400, 0.2

#: Cores that are killed while the jobs run.
KILLS = 3


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a fleet that holds a model of each task."""
    data = tmp_path_factory.mktemp("tasks")
    copy_artifact(keep_tiny_artifact("torchscript"), data)
    with quiet_transformers(), one_thread():
        for task in TASKS:
            compiled(save_task(task, data / "models" / task), data, buckets="8x64", name=task, task=task)
    argv = [sys.executable, "-m", "corelane", "models", "package", HANDLER[0], "--name", "handler", "--data", str(data)]
    subprocess.run(argv, env={**os.environ, **ENVIRONMENT}, check=True, timeout=100)
    fleet = start_fleet(
        tmp_path_factory.mktemp("mixed"),
        Path(data / "artifacts"),
        "--no-flower",
        CORELANE_MODEL="tiny-qa",
        CORELANE_MODELS=",".join([*TASKS, "handler"]),
        **ENVIRONMENT,
    )
    with fleet.client() as client:
        eventually(lambda: {*TASKS, "handler"} <= {model["name"] for model in client.models()})
    yield fleet
    fleet.end()


def items_of(task: str, seed: int) -> list[dict[str, Any]]:
    """Return the items of a job; a fifth of them equal an earlier one."""
    rng = random.Random(seed)
    numbers = list(range(round(ITEMS * (1 - REPEATED))))
    numbers += rng.choices(numbers, k=ITEMS - len(numbers))
    rng.shuffle(numbers)
    makes: dict[str, Callable[[int], dict[str, Any]]] = {name: make for name, (_, _, make) in TASKS.items()}
    makes |= {"handler": HANDLER[1], DEFAULT_TASK: lambda number: {"question": "who", "context": f"Ada {number}"}}
    make = makes[task]
    return [{"id": f"{task}/{seed}/{place}", **make(number)} for place, number in enumerate(numbers)]


def strike(fleet: Fleet, rng: random.Random) -> None:
    """Kill a core's process that is up."""
    while not (up := [core for core in fleet.states().values() if core["pid"]]):
        time.sleep(0.1)
    os.kill(rng.choice(up)["pid"], signal.SIGKILL)


@pytest.mark.timeout(240)
def test_jobs_of_all_tasks_are_answered_once_and_in_order_whatever_dies(mixed: Fleet) -> None:
    tasks = [DEFAULT_TASK, *TASKS, "handler"]
    jobs: dict[str, tuple[list[dict[str, Any]], Job]] = {}
    with mixed.client() as client:

        def send(task: str) -> None:
            items = items_of(task, 1)
            jobs[task] = items, client.submit(items, model="tiny-qa" if task == DEFAULT_TASK else task)

        threads = [threading.Thread(target=send, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        rng = random.Random(7)
        for _ in range(KILLS):
            strike(mixed, rng)
            time.sleep(1.0)
        for thread in threads:
            thread.join()
        for task, (items, job) in jobs.items():
            final = client.wait(job.id, timeout_s=120)
            assert (final.status, final.task, final.counts.succeeded) == ("succeeded", task, ITEMS), final
            results = list(client.iter_results(job.id))
            assert [result.id for result in results] == [item["id"] for item in items]
            assert {type(result) for result in results} == {task_named(task).result}
            outputs: dict[str, Any] = {}
            for item, result in zip(items, results, strict=True):
                asked = str({name: value for name, value in item.items() if name != "id"})
                found = result.model_dump(include=set(task_named(task).nothing))
                assert alike(outputs.setdefault(asked, found), found), f"{asked}: {outputs[asked]} and {found}"


@pytest.mark.timeout(240)
def test_stock_clients_read_what_models_give(mixed: Fleet) -> None:
    check_openai(mixed.url, "feature-extraction", dimensions=8)
    check_hugging_face(mixed.url, {task: task for task in TASKS})
    check_cohere(mixed.url, "text-ranking")


@pytest.mark.timeout(240)
def test_clients_of_text_embeddings_inference_get_the_vectors_of_sentence_transformers(
    mixed: Fleet, tmp_path: Path
) -> None:
    vectors = check_tei(mixed.url, {task: task for task in TASKS})
    expected = official(save_task("feature-extraction", tmp_path / "same")).encode(TEXTS, normalize_embeddings=True)
    assert vectors == pytest.approx(expected, abs=1e-4)
    with httpx2.Client(base_url=f"{mixed.url}/tei/feature-extraction") as http:
        tokens = http.post("/tokenize", json={"inputs": "Ada wrote it."}).json()
        texts = http.post("/decode", json={"ids": [[each["id"] for each in tokens[0]]] * 2})
        assert texts.json() == ["ada wrote it."] * 2
        unknown = http.post("/decode", json={"ids": [[1], [10**12]]})
        assert (unknown.status_code, unknown.json()["error_type"]) == (422, "Validation")
        assert "input 1: the text is not a list of token ids" in unknown.json()["error"]


def test_langchain_finds_passages_by_the_example(mixed: Fleet) -> None:
    argv = [sys.executable, str(ROOT / "examples/langchain_tei.py"), f"{mixed.url}/tei/feature-extraction", "Ada"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=100)
    scores = re.findall(r"^(\d\.\d\d) \w+ \d+: ['\"]", done.stdout, re.MULTILINE)
    assert (len(scores), scores) == (3, sorted(scores, reverse=True)), done.stdout


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_inline", [False, True], ids=["by file", "inline"])
def test_stock_client_embeds_3000_texts_in_a_batch_while_keeper_and_api_are_killed(
    mixed: Fleet, *, is_inline: bool
) -> None:
    lines = [
        {"custom_id": str(n), "method": "POST", "url": "/v1/embeddings"}
        | {"body": {"model": "feature-extraction", "input": f"The number is {n}."}}
        for n in range(3000)
    ]
    before = mixed.ends()
    with OpenAI(base_url=f"{mixed.url}/v1", api_key="somebody", max_retries=20) as client:
        given: Any = {"requests": lines}
        if not is_inline:
            file = client.files.create(file=("texts.jsonl", b"\n".join(map(orjson.dumps, lines))), purpose="batch")
            given = {"input_file_id": file.id}
        batch = client.post("/batches", cast_to=Batch, body=given | {"endpoint": "/v1/embeddings"})
        mixed.signal("keeper")
        eventually(lambda: 0 < client.batches.retrieve(batch.id).request_counts.completed < len(lines))
        for part in ("keeper", "api"):
            mixed.signal(part)
        done = eventually(lambda: found if (found := client.batches.retrieve(batch.id)).completed_at else None, 120)
        assert done is not None
        assert (done.status, done.request_counts.completed, done.error_file_id) == ("completed", 3000, None)
        output = [orjson.loads(line) for line in client.files.content(done.output_file_id).read().splitlines()]
    assert [line["custom_id"] for line in output] == [str(n) for n in range(3000)]
    assert len({str(line["response"]["body"]["data"][0]["embedding"]) for line in output}) > 2900
    ends = mixed.ends() - before
    assert (ends["keeper SIGKILL"], ends["api SIGKILL"]) == (2, 1)
