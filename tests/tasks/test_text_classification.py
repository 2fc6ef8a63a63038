"""Text classification gives what Transformers' pipeline gives."""

import random
from pathlib import Path
from typing import Any

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.engine.task import Query
from corelane.tasks.text_classification.wire import ClassificationOptions
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.tiny import FAMILIES, answer, compiled, save_tiny
from tests.tasks.trained import TOPICS, draw_texts, sentence, train

LOADER = "AutoModelForSequenceClassification"

TEXTS = ("1889", "The room was clean and the staff were kind.", *(text[:60] for text in MULTI_SCRIPT))

LABELS = {0: "bad", 1: "good", 2: "neither"}


def pipeline(folder: Path) -> Any:
    import transformers

    return transformers.pipeline("text-classification", str(folder), top_k=None)


@pytest.mark.parametrize("kind", FAMILIES)
def test_labels_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    folder = save_tiny(kind, LOADER, tmp_path / kind, num_labels=3, id2label=LABELS)
    official = pipeline(folder)
    queries = [Query(None, text, ClassificationOptions()) for text in TEXTS]
    queries += [Query("A second text.", text, ClassificationOptions()) for text in TEXTS[:2]]
    asked = [{"text": query.text} | ({"text_pair": query.beside} if query.beside else {}) for query in queries]
    assert_equal(compiled(folder, tmp_path), queries, [official(each) for each in asked])


def test_trained_network_tells_topics_as_the_pipeline_does(tmp_path: Path) -> None:
    chosen = random.Random(99)
    folder = train(tmp_path / "trained", draw_texts, num_labels=3, id2label=dict(enumerate(TOPICS)))
    queries = [Query(None, sentence(topic, chosen), ClassificationOptions()) for topic in TOPICS for _ in range(3)]
    expected = pipeline(folder)([query.text for query in queries])
    assert [each[0]["label"] for each in expected] == [topic for topic in TOPICS for _ in range(3)]
    assert_equal(compiled(folder, tmp_path / "fp32"), queries, expected)
    assert_equal(compiled(folder, tmp_path / "bf16", "bf16"), queries, expected, near=0.1)


def assert_equal(
    artifact: Artifact, queries: list[Query], expected: list[list[dict[str, Any]]], near: float = 1e-4
) -> None:
    """Compare the results of a model with those of the pipeline."""
    for result, those in zip(answer(artifact, queries), expected, strict=True):
        assert result["labels"][0]["label"] == those[0]["label"]
        assert [each["label"] for each in result["labels"]] == [each["label"] for each in those] or near > 1e-4
        scores = {each["label"]: each["score"] for each in those}
        assert {each["label"]: each["score"] for each in result["labels"]} == pytest.approx(scores, abs=near)
