"""Zero-shot classification gives what Transformers' pipeline gives, and reads long texts in windows."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import redis
from fastapi.testclient import TestClient

from api.app import create_app
from corelane.artifacts.manifest import Artifact
from corelane.engine.runner import Runner, open_backend
from corelane.engine.task import Query
from corelane.errors import InvalidInput, ModelRefused
from corelane.settings import Settings
from corelane.store import keys
from corelane.tasks.registry import task_named
from corelane.tasks.zero_shot_classification.wire import LabelledText, ZeroShotOptions
from tests.corelane.store_bench import VERSION, Bench
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.tiny import FAMILIES, WHOLE_WORDS, answer, compiled, in_pieces, save_tiny
from tests.tasks.trained import TOPICS, draw_pairs, sentence, train

LOADER = "AutoModelForSequenceClassification"

TASK = "zero-shot-classification"

LABELS = ("delivery", "price", "東京", "a 👍🏿 day")

JUDGEMENTS = {0: "CONTRADICTION", 1: "neutral", 2: "Entailment"}

TEXTS = ("1889", "The parcel never came.", *(text[:50] for text in MULTI_SCRIPT))

TEMPLATE = "It is about {}, one says."


def judge(folder: Path, kind: str = "bert", judgements: dict[int, str] = JUDGEMENTS) -> Path:
    names: dict[str, Any] = {"id2label": judgements, "label2id": {name: at for at, name in judgements.items()}}
    return save_tiny(kind, LOADER, folder / kind, num_labels=len(judgements), **names)


def official(folder: Path, queries: Sequence[Query]) -> list[dict[str, float]]:
    import transformers

    pipeline, options = transformers.pipeline(TASK, str(folder)), ("hypothesis_template", "multi_label")
    found = [
        pipeline(query.text, list(query.beside), **{name: getattr(query.options, name) for name in options})
        for query in queries
    ]
    return [dict(zip(each["labels"], each["scores"], strict=True)) for each in found]


def assert_alike(results: Sequence[dict[str, Any]], expected: Sequence[dict[str, float]], near: float) -> None:
    """Compare labels, their order unless two are nearly tied, and scores."""
    for result, those in zip(results, expected, strict=True):
        found = {each["label"]: each["score"] for each in result["labels"]}
        assert found == pytest.approx(those, abs=near)
        in_order = [those[each["label"]] for each in result["labels"]]
        assert all(later <= one + near for one, later in pairwise(in_order))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("judge")
    return compiled(judge(folder), folder / "data", task=TASK)


@pytest.mark.parametrize("kind", [*FAMILIES, "bart", "t5"])
def test_labels_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    folder = judge(tmp_path, kind)
    queries = [
        Query(labels, text, ZeroShotOptions(multi_label=several, hypothesis_template=template))
        for text in TEXTS
        for labels, several, template in (
            (LABELS, False, "This example is {}."),
            (LABELS, True, TEMPLATE),
            (LABELS[:1], False, "{}"),
        )
    ]
    expected = official(folder, queries)
    for dtype, near in (("fp32", 1e-4), ("bf16", 0.1)):
        assert_alike(answer(compiled(folder, tmp_path / dtype, dtype, task=TASK), queries), expected, near)


@pytest.mark.parametrize(
    "judgements",
    [
        {0: "entailment", 1: "not_entailment"},
        {0: "not_entailment", 1: "entailment"},
        {0: "entailment", 1: "neutral", 2: "contradiction"},
        {0: "contradiction", 1: "entailment", 2: "neutral"},
    ],
)
def test_judgements_stand_where_the_model_names_them(judgements: dict[int, str], tmp_path: Path) -> None:
    folder = judge(tmp_path, "bert", judgements)
    queries = [Query(LABELS, text, ZeroShotOptions(multi_label=several)) for text in TEXTS for several in (True, False)]
    results = answer(compiled(folder, tmp_path / "data", task=TASK), queries)
    assert_alike(results, official(folder, queries), 1e-4)


def test_trained_network_finds_what_texts_are_about(tmp_path: Path) -> None:
    says, chosen = "This example is {}.", random.Random(99)
    folder = train(
        tmp_path / "trained",
        lambda drawn: draw_pairs(drawn, says, 2, topic_first=False),
        num_labels=3,
        id2label=JUDGEMENTS,
        label2id={name: at for at, name in JUDGEMENTS.items()},
    )
    queries = [Query(tuple(TOPICS), sentence(topic, chosen), ZeroShotOptions()) for topic in TOPICS for _ in range(3)]
    expected = official(folder, queries)
    for dtype, near in (("fp32", 1e-4), ("bf16", 0.1)):
        results = answer(compiled(folder, tmp_path / dtype, dtype, task=TASK), queries)
        assert [each["labels"][0]["label"] for each in results] == [topic for topic in TOPICS for _ in range(3)]
        assert_alike(results, expected, near)


def test_labels_are_those_of_the_item_or_of_its_job(bert: Artifact) -> None:
    options = ZeroShotOptions(labels=LABELS[:2])
    own, of_job, neither = answer(
        bert, [Query(["x", "y"], "1889", options), Query(None, "1889", options), Query(None, "1889", ZeroShotOptions())]
    )
    assert {each["label"] for each in own["labels"]} == {"x", "y"}
    assert {each["label"] for each in of_job["labels"]} == set(LABELS[:2])
    assert neither["error"]["code"] == "invalid_input"
    assert "no labels" in neither["error"]["detail"]
    task = task_named(TASK)
    task.check_options(options, "item 3: ", LabelledText(text="1889"))
    with pytest.raises(InvalidInput, match="item 3: there are no labels"):
        task.check_options(ZeroShotOptions(), "item 3: ", LabelledText(text="1889"))


@pytest.mark.parametrize("lines", [False, True])
def test_item_without_labels_is_refused_at_submission(
    lines: bool, settings: Settings, raw: redis.Redis, bell: str
) -> None:
    bench = Bench(settings.model_copy(update={"console": False}), raw, bell)
    bench.core("a/0")
    raw.hset(keys.MODELS, VERSION, orjson.dumps({"name": TASK, "task": TASK}))
    head, items = {"model": VERSION}, [{"text": "1889", "labels": ["x"]}, {"text": "1889"}]
    with TestClient(create_app(bench.settings)) as api:
        if lines:
            body = b"\n".join(map(orjson.dumps, [head, *items]))
            refused = api.post("/v1/jobs", content=body, headers={"Content-Type": "application/x-ndjson"})
        else:
            refused = api.post("/v1/jobs", json=head | {"items": items})
    assert (refused.status_code, "there are no labels to choose from" in refused.json()["detail"]) == (422, True)


def test_labels_that_read_alike_are_judged_once_and_stand_in_their_order(bert: Artifact) -> None:
    labels = ["price", "delivery", "Price", "PRICE", "Delivery"]
    runner = Runner.open(open_backend("cpu"), bert)
    [result] = runner.results_of([Query(labels, "1889", ZeroShotOptions())])
    assert (runner.work.windows, result["windows"]) == (2, len(labels))
    found = [each["label"] for each in result["labels"]]
    assert [label for label in found if label.lower() == "price"] == ["price", "Price", "PRICE"]
    assert [label for label in found if label.lower() == "delivery"] == ["delivery", "Delivery"]


@pytest.mark.parametrize("several", [False, True])
def test_long_text_is_judged_window_by_window(several: bool, bert: Artifact) -> None:
    text = " ".join(random.Random(1).choices(WHOLE_WORDS, k=400))
    runner = Runner.open(open_backend("cpu"), bert)

    def asked(text: str, long: Any) -> Query:
        return Query(LABELS, text, ZeroShotOptions(multi_label=several, long=long))

    refused, neighbour = runner.results_of([asked(text, "error"), asked("1889", "error")])
    assert (refused["error"]["code"], neighbour["status"]) == ("text_too_long", "succeeded")
    assert "the option `long`" in refused["error"]["detail"]
    pieces = in_pieces(runner._task, asked(text, "mean"))
    assert len(pieces) > 5
    by_hand = [result["labels"] for result in runner.results_of([asked(piece, "error") for piece in pieces])]
    for long, combine in (("mean", np.mean), ("max", np.max)):
        [result] = runner.results_of([asked(text, long)])
        assert result["windows"] == len(LABELS) * len(pieces)
        scores = {
            label: float(combine([each["score"] for labels in by_hand for each in labels if each["label"] == label]))
            for label in LABELS
        }
        assert_alike([result], [scores], 1e-4)


@pytest.mark.parametrize(
    ("judgements", "named"),
    [
        ({0: "LABEL_0", 1: "LABEL_1"}, "LABEL_0, LABEL_1"),
        ({0: "entailment"}, "entailment"),
        ({0: "bad", 1: "good"}, "bad"),
    ],
)
def test_model_without_entailment_is_refused_with_its_labels(
    judgements: dict[int, str], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelRefused, match=f"no label for entailment beside another, and its labels are {named}"):
        compiled(judge(tmp_path, "bert", judgements), tmp_path / "data", task=TASK)
