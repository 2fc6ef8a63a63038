"""Hold a compiled model against transformers or sentence-transformers, on texts as hostile as callers send them."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile.build import build
from corelane.artifacts.manifest import Artifact
from corelane.engine.buckets import Bucket
from corelane.engine.runner import open_backend
from corelane.engine.task import Query
from corelane.engine.text.tokenizer import open_tokenizer
from corelane.errors import ModelRefused
from corelane.settings import Settings
from corelane.tasks.feature_extraction.wire import EmbeddingOptions
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, QuestionQuery
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.text_classification.wire import ClassificationOptions
from corelane.tasks.text_ranking.task import CHAT_NAME
from corelane.tasks.text_ranking.wire import RankingOptions
from corelane.tasks.token_classification.wire import EntityOptions
from corelane.tasks.zero_shot_classification.wire import ZeroShotOptions
from tests.families.official import Official, best_span
from tests.families.popular.folders import save_popular
from tests.families.popular.rows import ENTITIES, JUDGING, LABELS, QUESTIONS, RANKING, VECTORS, Popular
from tests.families.test_architectures import has_types, tidy
from tests.families.texts import HOSTILE
from tests.tasks.tiny import answer

#: The most that a number may differ from the reference's.
NEAR = 2e-4

STRATEGIES = ("none", "simple", "first", "average", "max")

JUDGED_BY = ("delivery", "price", "東京", "a 👍🏿 day", "</s> [SEP]")

QUESTION = "When was the tower built?"

#: Tokens that the longest text leaves to what is read beside it.
BESIDE, BESIDE_CHAT = 40, 240


def hold(row: Popular, folder: Path) -> float:
    """Compile a row's model as by default, and return the largest difference from its reference.

    Raises AssertionError where labels, places or the longest row differ, ModelRefused if the model is refused.
    """
    model, settings = save_popular(row, folder / "hub"), Settings(data_dir=folder / "data")
    artifact = build(str(model), settings=settings, dtype="fp32", task=row.task if row.option else None)
    assert artifact.manifest.task == row.task
    return HOLD[row.task](artifact, model)


def check(row: Popular, folder: Path) -> None:
    """Hold a row against its reference, or see it refused with the reason."""
    if row.refused:
        with pytest.raises(ModelRefused, match=row.refused):
            hold(row, folder)
    else:
        assert hold(row, folder) <= NEAR


def texts_for(artifact: Artifact, beside: int = 0) -> list[str]:
    """Return the hostile texts that a row holds with so many tokens beside them, and one that fills the row."""
    tokenizer, single = open_tokenizer(artifact), artifact.manifest.tokenizer.single_layout()
    most = artifact.manifest.max_length - beside - len(single.before) - len(single.after)

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    filling = ["the", "tower", "was", "built", "in", "zürich", "and", "is", "gone"] * most
    while (over := tokens(" ".join(filling)) - most) > 0:
        filling = filling[: -max(1, over // 9)]
    return [text for text in (*HOSTILE, " ".join(filling)) if tokens(text) <= most]


def hold_vectors(artifact: Artifact, folder: Path) -> float:
    """Compare vectors without a prompt and with each of the model's."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"torch_dtype": torch.float32}).float()
    most = artifact.manifest.max_length
    assert most >= min(model.max_seq_length or 0, 8192), (most, model.max_seq_length)
    worst, texts = 0.0, texts_for(artifact)
    for name in (None, *(name for name, prompt in model.prompts.items() if prompt)):
        some = texts if name is None else texts[:-1:3]
        found = results(artifact, [Query(None, text, EmbeddingOptions(prompt_name=name)) for text in some])
        expected = model.encode(some, prompt_name=name, batch_size=1)
        worst = max(worst, furthest([each["embedding"] for each in found], expected))
    return worst


def hold_labels(artifact: Artifact, folder: Path) -> float:
    """Compare the scores of all labels."""
    pipeline, worst = pipeline_of(LABELS, folder), 0.0
    texts = texts_for(artifact)
    found = results(artifact, [Query(None, text, ClassificationOptions()) for text in texts])
    for text, result in zip(texts, found, strict=True):
        worst = max(
            worst, furthest(scores_of(result), {each["label"]: each["score"] for each in pipeline(text, top_k=None)})
        )
    return worst


def hold_judgements(artifact: Artifact, folder: Path) -> float:
    """Compare the scores of labels, one or several of them true."""
    pipeline, worst = pipeline_of(JUDGING, folder), 0.0
    texts = [text for text in texts_for(artifact, BESIDE) if text.strip()]
    options = [ZeroShotOptions(multi_label=at % 2 == 1) for at in range(len(texts))]
    found = results(artifact, [Query(JUDGED_BY, *each) for each in zip(texts, options, strict=True)])
    for text, its, result in zip(texts, options, found, strict=True):
        said = pipeline(text, list(JUDGED_BY), multi_label=its.multi_label)
        worst = max(worst, furthest(scores_of(result), dict(zip(said["labels"], said["scores"], strict=True))))
    return worst


def hold_entities(artifact: Artifact, folder: Path) -> float:
    """Compare entities by each strategy; their labels and places must be the same."""
    pipeline, worst = pipeline_of(ENTITIES, folder), 0.0
    asked = [(text, how) for text in texts_for(artifact) for how in STRATEGIES]
    found = results(artifact, [Query(None, text, EntityOptions(aggregation=how)) for text, how in asked])
    other: list[Any] = []
    for (text, how), result in zip(asked, found, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = pipeline(text, aggregation_strategy=how)
        ours = {(each["label"], each["start"], each["end"]): each["score"] for each in result["entities"]}
        theirs = {
            (each.get("entity_group", each.get("entity")), each["start"], each["end"]): float(each["score"])
            for each in expected
        }
        if list(ours) != list(theirs):
            other.append((how, text[:60], list(ours)[:4], list(theirs)[:4]))
        else:
            worst = max(worst, furthest(ours, theirs))
    assert not other, f"{len(other)} of {len(asked)}: {other[:3]}"
    return worst


def hold_ranks(artifact: Artifact, folder: Path) -> float:
    """Compare the scores of texts for a query, as the model's own function makes them."""
    import torch
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(str(folder), device="cpu", model_kwargs={"torch_dtype": torch.float32})
    beside = BESIDE if CHAT_NAME not in artifact.manifest.files else BESIDE_CHAT
    texts, worst = texts_for(artifact, beside), 0.0
    for query in (QUESTION, "</s> [SEP] 東京 👍🏿"):
        [result] = results(artifact, [Query(query, json.dumps(texts), RankingOptions())])
        ours = {each["index"]: each["score"] for each in result["ranking"]}
        theirs = encoder.predict([(query, text) for text in texts], batch_size=1)
        worst = max(worst, furthest(ours, {at: float(score) for at, score in enumerate(theirs)}))
    return worst


def hold_answers(artifact: Artifact, folder: Path) -> float:
    """Compare the logits of each window, and the places of the answers."""
    official, most = Official(folder, with_types=has_types(artifact)), artifact.manifest.max_length
    task = QuestionAnsweringTask(open_tokenizer(artifact), artifact.manifest.tokenizer, most)
    backend = open_backend("cpu")
    model, options, worst = backend.load(artifact), AnswerOptions(no_answer=False), 0.0
    queries = [QuestionQuery(QUESTION, text, options) for text in texts_for(artifact, BESIDE) if text.strip()]
    for query, result in zip(queries, results(artifact, queries), strict=True):
        windows = official.read(QUESTION, query.text, most, options.doc_stride)
        (item,) = task.tokenize_all([query])
        for window, expected in zip(item.windows, windows, strict=True):
            got = backend.run(model, task.fill(Bucket(length=most, rows=1), [(item, window)], 1))
            for ours, theirs in zip(got, (expected.start, expected.end), strict=True):
                worst = max(worst, furthest(ours[0, : window.length], theirs))
        if any(places for window in windows for places in window.places):
            span = tidy(query.text, *best_span(query.text, windows, options.max_answer_tokens))
            assert (result["answer"]["start"], result["answer"]["end"]) == span, query.text[:60]
        else:
            assert result["answer"] is None, query.text
    return worst


def results(artifact: Artifact, queries: Sequence[Query]) -> list[dict[str, Any]]:
    """Return the results of items, none of which may fail."""
    found = answer(artifact, queries)
    for query, result in zip(queries, found, strict=True):
        assert result["error"] is None, (query.text[:60], result["error"])
    return found


def scores_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of a result by label."""
    return {each["label"]: each["score"] for each in result["labels"]}


def furthest(ours: Any, theirs: Any) -> float:
    """Return the largest difference of two lists, or of two tables with the same keys."""
    if isinstance(ours, Mapping):
        assert ours.keys() == theirs.keys()
        ours, theirs = list(ours.values()), [theirs[key] for key in ours]
    assert np.shape(ours) == np.shape(theirs)
    return float(np.max(np.abs(np.asarray(ours) - np.asarray(theirs)), initial=0.0))


def pipeline_of(task: str, folder: Path) -> Any:
    """Return transformers' own pipeline in fp32."""
    import torch
    import transformers

    return transformers.pipeline(task, str(folder), dtype=torch.float32, device="cpu")


HOLD: Mapping[str, Callable[[Artifact, Path], float]] = {
    VECTORS: hold_vectors,
    LABELS: hold_labels,
    JUDGING: hold_judgements,
    ENTITIES: hold_entities,
    RANKING: hold_ranks,
    QUESTIONS: hold_answers,
}
