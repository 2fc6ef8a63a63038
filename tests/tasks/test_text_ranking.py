"""Text ranking gives what a cross-encoder of sentence-transformers gives, in the order of its logits."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile.model.source import find_source
from corelane.artifacts.manifest import Artifact
from corelane.engine.runner import Runner, open_backend
from corelane.engine.task import Query, Window
from corelane.engine.text.engine import ReadRow, TokenizedText
from corelane.errors import ModelRefused
from corelane.tasks.text_ranking.engine import RankingEngine
from corelane.tasks.text_ranking.wire import RankingOptions
from tests.families.texts import MULTI_SCRIPT
from tests.tasks.tiny import FAMILIES, WHOLE_WORDS, answer, compiled, in_pieces, save_tiny
from tests.tasks.trained import TOPICS, draw_pairs, sentence, train

LOADER = "AutoModelForSequenceClassification"

QUERY = "How tall is the tower?"

TEXTS = ("1889", "The tower is 330 metres tall.", *(text[:60] for text in MULTI_SCRIPT))


def asked(query: str, texts: Sequence[str], **options: Any) -> Query:
    return Query(query, json.dumps(texts), RankingOptions(**options))


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def official_scores(folder: Path, query: str, texts: Sequence[str], *, raw: bool = False) -> list[float]:
    """Return the scores of a cross-encoder of sentence-transformers, or its logits."""
    import torch
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(str(folder), device="cpu")
    activation = torch.nn.Identity() if raw else None
    return [float(score) for score in encoder.predict([(query, text) for text in texts], activation_fn=activation)]


def ranker(folder: Path, kind: str = "bert", **config: Any) -> Path:
    return save_tiny(kind, LOADER, folder / kind, num_labels=1, **config)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("ranker")
    return compiled(ranker(folder), folder / "data")


@pytest.mark.parametrize("kind", [*FAMILIES, "qwen3"])
def test_ranking_is_that_of_a_cross_encoder(kind: str, tmp_path: Path) -> None:
    folder = ranker(tmp_path, kind)
    expected = official_scores(folder, QUERY, TEXTS, raw=True)
    order = sorted(range(len(TEXTS)), key=lambda at: -expected[at])
    for dtype, near in (("fp32", 1e-4), ("bf16", 0.1)):
        [result] = answer(compiled(folder, tmp_path / dtype, dtype), [asked(QUERY, TEXTS)])
        for place, at in zip(result["ranking"], order, strict=True):
            assert expected[place["index"]] == pytest.approx(expected[at], abs=near)
            assert place["score"] == pytest.approx(sigmoid(expected[place["index"]]), abs=near)


def test_trained_network_ranks_the_texts_about_its_query_first(tmp_path: Path) -> None:
    ask, chosen = "Something about {}", random.Random(99)
    folder = train(tmp_path / "trained", lambda drawn: draw_pairs(drawn, ask, 1, topic_first=True), num_labels=1)
    texts = [sentence(topic, chosen) for topic in TOPICS for _ in range(3)]
    queries = [asked(ask.replace("{}", topic), texts) for topic in TOPICS]
    expected = [official_scores(folder, query.beside, texts, raw=True) for query in queries]
    for dtype, near in (("fp32", 1e-4), ("bf16", 0.1)):
        results = answer(compiled(folder, tmp_path / dtype, dtype), queries)
        for number, (result, logits) in enumerate(zip(results, expected, strict=True)):
            assert {place["index"] // 3 for place in result["ranking"][:3]} == {number}
            for place in result["ranking"]:
                assert place["score"] == pytest.approx(sigmoid(logits[place["index"]]), abs=near)


@pytest.mark.parametrize(
    ("config", "makes"),
    [
        ({}, sigmoid),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, float),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, float),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, sigmoid),
    ],
)
def test_scores_are_made_as_the_model_says_unless_asked_otherwise(config: Any, makes: Any, tmp_path: Path) -> None:
    folder = ranker(tmp_path, **config)
    logits = official_scores(folder, QUERY, TEXTS, raw=True)
    assert official_scores(folder, QUERY, TEXTS) == pytest.approx(list(map(makes, logits)), abs=1e-5)
    queries = [asked(QUERY, TEXTS, function=how) for how in (None, "none", "sigmoid")]
    results = answer(compiled(folder, tmp_path / "data"), queries)
    for result, how in zip(results, (makes, float, sigmoid), strict=True):
        for place in result["ranking"]:
            assert place["score"] == pytest.approx(how(logits[place["index"]]), abs=1e-4)
    assert len({tuple(place["index"] for place in result["ranking"]) for result in results}) == 1


@pytest.mark.parametrize("function", ["Identity", "Sigmoid"])
@pytest.mark.parametrize("before", [{}, {"sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}}], ids=str)
def test_scores_are_made_as_todays_library_saves_it(before: Any, function: str, tmp_path: Path) -> None:
    """Since 6.x the function stands in a file of its own, which is part of the version."""
    import torch
    from sentence_transformers import CrossEncoder

    plain, folder = ranker(tmp_path, larger=8.0, **before), tmp_path / "saved"
    CrossEncoder(str(plain), device="cpu", activation_fn=getattr(torch.nn, function)()).save_pretrained(str(folder))
    assert find_source(str(folder)).task == "text-ranking"
    expected = official_scores(folder, QUERY, TEXTS)
    [result] = answer(compiled(folder, tmp_path / "data"), [asked(QUERY, TEXTS)])
    assert {each["index"]: each["score"] for each in result["ranking"]} == pytest.approx(
        dict(enumerate(expected)), abs=2e-4
    )
    version = find_source(str(folder)).version
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(settings.read_text().replace(function, "Tanh"))
    assert find_source(str(folder)).version != version
    with pytest.raises(ModelRefused, match=r"Tanh, which is not known"):
        compiled(folder, tmp_path / "data")


def test_best_few_texts_are_returned_with_their_text(bert: Artifact) -> None:
    whole, few, none = answer(
        bert, [asked(QUERY, TEXTS), asked(QUERY, TEXTS, top_n=3, return_texts=True), asked("\u200b", ["\u200b"])]
    )
    assert [{**place, "text": TEXTS[place["index"]]} for place in whole["ranking"][:3]] == few["ranking"]
    assert [place["index"] for place in none["ranking"]] == [0]


@pytest.mark.parametrize("times", [7, 1500], ids=["at once", "in steps"])
def test_texts_that_read_alike_are_read_once_and_stand_in_their_order(times: int, bert: Artifact) -> None:
    texts = ["Ada wrote it.", "The river was red.", "ada wrote it.", "Ada  wrote it.", "The river was red."] * times
    runner = Runner.open(open_backend("cpu"), bert)
    [result] = runner.results_of([asked(QUERY, texts)])
    assert (runner.work.windows, result["windows"]) == (2, len(texts))
    of_ada = [at for at, text in enumerate(texts) if "river" not in text]
    for score in {place["score"] for place in result["ranking"]}:
        found = [place["index"] for place in result["ranking"] if place["score"] == score]
        assert found in (of_ada, [at for at in range(len(texts)) if at not in of_ada])


def test_long_text_counts_by_its_best_window(bert: Artifact) -> None:
    words = " ".join(random.Random(1).choices(WHOLE_WORDS, k=400))
    runner = Runner.open(open_backend("cpu"), bert)
    pieces = in_pieces(runner._task, asked(QUERY, ["short", words]), part=1)
    assert len(pieces) > 5
    long, by_hand = runner.results_of([asked(QUERY, ["short", words]), asked(QUERY, ["short", *pieces])])
    best = max(place["score"] for place in by_hand["ranking"] if place["index"] > 0)
    assert next(place["score"] for place in long["ranking"] if place["index"] == 1) == pytest.approx(best, abs=1e-4)
    assert long["windows"] == 1 + len(pieces)


def test_query_that_leaves_no_room_fails_its_item_alone(bert: Artifact) -> None:
    long = "How tall is the tower? " * 40
    refused, neighbour = answer(bert, [asked(long, ["It is 330 metres tall."]), asked(QUERY, ["1889"])])
    assert refused["error"]["code"] == "text_too_long"
    assert "stands beside it" in refused["error"]["detail"]
    assert (refused["ranking"], neighbour["status"]) == ([], "succeeded")


def test_many_texts_are_ranked_alike_one_by_one_and_in_steps(bert: Artifact) -> None:
    random.seed(3)
    texts = [f"{random.choice(TEXTS)} {number}" for number in range(300)]
    texts[7] = "The tower is red. " * 1500
    runner = Runner.open(open_backend("cpu"), bert)
    query = asked(QUERY, texts)
    assert len(query.text) > 40_000
    singly = runner.results_of([asked(QUERY, [text]) for text in texts])
    expected = {at: result["ranking"][0]["score"] for at, result in enumerate(singly)}
    [together] = runner.results_of([query])
    scores = [place["score"] for place in together["ranking"]]
    assert scores == sorted(scores, reverse=True)
    assert {place["index"]: place["score"] for place in together["ranking"]} == pytest.approx(expected, abs=1e-5)


def test_texts_are_read_while_others_are_tokenized(bert: Artifact) -> None:
    runner = Runner.open(open_backend("cpu"), bert)
    runner.admit([("long", asked(QUERY, ["The river was red."] * 4000)), ("short", asked(QUERY, ["1889", "1890"]))])
    answered: list[Any] = []
    while not answered:
        answered += runner.start().finish()
    assert [key for key, _ in answered] == ["short"]
    assert runner.waiting_tokens(10**6) > 0
    runner.drop(["long"])
    assert runner.waiting_tokens(10**6) == 0


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"num_labels": 2}, "gives 2 logits"),
        ({"num_labels": 1, "sentence_transformers": {"activation_fn": "shop.Tanh"}}, "shop.Tanh, which is not known"),
    ],
)
def test_model_that_cannot_rank_is_refused_with_the_reason(config: Any, reason: str, tmp_path: Path) -> None:
    folder = save_tiny("bert", LOADER, tmp_path / "bert", **config)
    with pytest.raises(ModelRefused, match=reason):
        compiled(folder, tmp_path / "data", task="text-ranking")


def test_sigmoid_that_saturates_changes_no_order() -> None:
    item = TokenizedText(asked(QUERY, ["a", "b", "c"]), (), [])
    rows = [
        ReadRow(Window(0, 1, 9, part), (np.array([logit], dtype=np.float32),))
        for part, logit in enumerate((80.0, 900.0, -900.0))
    ]
    result = RankingEngine.compose(RankingEngine.__new__(RankingEngine), item, rows)
    assert result["ranking"] == [{"index": 1, "score": 1.0}, {"index": 0, "score": 1.0}, {"index": 2, "score": 0.0}]
