"""Text classification gives what Transformers' pipeline gives."""

import random
from pathlib import Path
from typing import Any

import pytest

from corelane.engine.task import Query
from corelane.tasks.text_classification.wire import ClassificationOptions
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.tiny import FAMILIES, ONE_TOKEN, answer, compiled, save_tiny
from tests.tasks.trained import TOPICS, draw_texts, sentence, train

LOADER = "AutoModelForSequenceClassification"

TEXTS = ("1889", "The room was clean and the staff were kind.", *(text[:60] for text in MULTI_SCRIPT))

LABELS = {0: "bad", 1: "good", 2: "neither"}


def pipeline(folder: Path) -> Any:
    import transformers

    return transformers.pipeline("text-classification", str(folder), top_k=None)


@pytest.mark.parametrize("kind", [*FAMILIES, *ONE_TOKEN, "longformer"])
def test_labels_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    folder = save_tiny(kind, LOADER, tmp_path / kind, num_labels=3, id2label=LABELS)
    official = pipeline(folder)
    queries = [Query(None, text, ClassificationOptions()) for text in TEXTS]
    queries += [Query("A second text.", text, ClassificationOptions()) for text in TEXTS[:2]]
    pairs = [{"text_pair": query.beside} if query.beside else {} for query in queries]
    expected = [official({"text": query.text, **pair}) for query, pair in zip(queries, pairs, strict=True)]
    assert_equal(folder, tmp_path, queries, expected)


def test_trained_network_tells_topics_as_the_pipeline_does(tmp_path: Path) -> None:
    chosen = random.Random(99)
    folder = train(tmp_path / "trained", draw_texts, num_labels=3, id2label=dict(enumerate(TOPICS)))
    queries = [Query(None, sentence(topic, chosen), ClassificationOptions()) for topic in TOPICS for _ in range(3)]
    expected = pipeline(folder)([query.text for query in queries])
    assert [each[0]["label"] for each in expected] == [topic for topic in TOPICS for _ in range(3)]
    assert_equal(folder, tmp_path, queries, expected)


def assert_equal(folder: Path, data: Path, queries: list[Query], expected: list[list[dict[str, Any]]]) -> None:
    """Compile a model and compare its results with those of the pipeline; in bf16, labels that all but tie may turn."""
    for dtype, near in (("fp32", 1e-4), ("bf16", 0.1)):
        for result, those in zip(answer(compiled(folder, data / dtype, dtype), queries), expected, strict=True):
            scores = {each["label"]: each["score"] for each in those}
            assert scores[result["labels"][0]["label"]] > those[0]["score"] - near
            assert [each["label"] for each in result["labels"]] == list(scores) or dtype == "bf16"
            assert {each["label"]: each["score"] for each in result["labels"]} == pytest.approx(scores, abs=near)


def test_text_is_cut_as_the_pipeline_cuts_it(tmp_path: Path) -> None:
    folder = save_tiny("bert", LOADER, tmp_path / "tiny", num_labels=3, id2label=LABELS)
    official, long = pipeline(folder), " ".join(MULTI_SCRIPT)
    artifact = compiled(folder, tmp_path / "data")
    count = len(official.tokenizer(long)["input_ids"])
    [cut] = answer(artifact, [Query(None, long, ClassificationOptions(long="cut"))])
    [expected] = official([long], truncation=True, max_length=96)
    assert {each["label"]: each["score"] for each in cut["labels"]} == pytest.approx(
        {each["label"]: each["score"] for each in expected}, abs=1e-4
    )
    assert (cut["cut"], cut["windows"]) == (count - 96, 1)
    [refused] = answer(artifact, [Query(long, long, ClassificationOptions(long="cut"))])
    assert "shorten what stands beside it" in refused["error"]["detail"]
