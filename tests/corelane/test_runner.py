"""The engine over a backend that computes nothing: offsets, isolation, options."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact
from corelane.engine.runner import Runner, open_backend
from corelane.engine.task import RunnerLimits
from corelane.engine.text import chunks
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from tests.tools.fakes import POISON_ID, FixedBackend

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]) | st.sampled_from("tower river 東京 é👩‍🚀e\u0301 ﬁ½İß"),
    min_size=1,
    max_size=400,
)


@pytest.fixture(scope="module")
def runner(tiny_artifact: Artifact) -> Iterator[Runner]:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    yield runner
    runner.close()


@given(context=TEXTS, question=TEXTS, top_k=st.integers(1, 5), stride=st.integers(0, 60))
def test_every_answer_is_a_slice_of_the_callers_own_string(
    runner: Runner, context: str, question: str, top_k: int, stride: int
) -> None:
    options = AnswerOptions(top_k=top_k, doc_stride=stride, no_answer=False, max_answer_tokens=8)
    [result] = runner.results_of([Query(question, context, options)])
    if result["error"] is not None:
        assert result["error"]["code"] == "question_too_long"
        return
    assert result["windows"] >= 1
    assert len(result["answers"]) <= top_k
    for answer in result["answers"]:
        assert context[answer["start"] : answer["end"]] == answer["text"] != ""
    ends = sorted((answer["start"], answer["end"]) for answer in result["answers"])
    assert all(before[1] <= after[0] for before, after in pairwise(ends))
    if result["answers"]:
        assert result["answer"] == result["answers"][0]


def test_long_context_is_read_to_its_last_word(runner: Runner) -> None:
    context = "the river was red . " * 400 + "ada wrote the program"
    [result] = runner.results_of(
        [Query("who", context, AnswerOptions(no_answer=False, doc_stride=8, max_answer_tokens=1))]
    )
    assert result["windows"] > 20
    assert result["answer"]["end"] <= len(context)
    everywhere = runner.results_of([Query("who", context + " zz", AnswerOptions(no_answer=False, max_answer_tokens=1))])
    assert everywhere[0]["answer"]["text"] in ("z", "zz")


def test_accents_and_joiners_after_the_last_token_belong_to_the_answer(runner: Runner) -> None:
    context = "the cafe\u0301 was blue"
    [result] = runner.results_of([Query("what", context, AnswerOptions(no_answer=False, top_k=5, max_answer_tokens=2))])
    assert all(not answer["text"].endswith("cafe") for answer in result["answers"])


def test_failed_row_fails_its_own_item_alone(runner: Runner, tiny_artifact: Artifact) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_artifact.file(TOKENIZER_NAME)))
    assert tokenizer.get_vocab_size() < POISON_ID
    backend = FixedBackend()

    class Poisoned(FixedBackend):
        def run(self, model, batch):  # type: ignore[no-untyped-def]
            if (batch.input_ids == tokenizer.token_to_id("berlin")).any():
                batch.input_ids[0, 0] = POISON_ID
            return backend.run(model, batch)

    poisoned = Runner.open(Poisoned(), tiny_artifact)
    results = poisoned.results_of(
        [Query("where", "the tower"), Query("where", "in berlin"), Query("where", "the river")]
    )
    assert [result["status"] for result in results] == ["succeeded", "failed", "succeeded"]
    assert results[1]["error"]["code"] == "run_failed"


def test_item_with_a_question_too_long_fails_and_its_neighbour_does_not(runner: Runner) -> None:
    results = runner.results_of([Query("who " * 100, "ada"), Query("who", "ada")])
    assert [result["status"] for result in results] == ["failed", "succeeded"]
    assert results[0]["error"]["code"] == "question_too_long"


def test_item_that_failed_at_once_is_not_answered_once_it_is_dropped(runner: Runner) -> None:
    runner.admit([("long", Query("who " * 100, "ada wrote"))])
    runner.drop(["long"])
    assert runner.start().finish() == []


def test_threshold_decides_between_answer_and_null(runner: Runner) -> None:
    query = Query("who", "ada wrote", AnswerOptions(no_answer_threshold=-1000.0))
    assert runner.results_of([query])[0]["answer"] is None
    query = Query("who", "ada wrote", AnswerOptions(no_answer_threshold=1000.0))
    assert runner.results_of([query])[0]["answer"] is not None


def test_context_without_tokens_has_no_answer(runner: Runner) -> None:
    [result] = runner.results_of([Query("who", "\u200b\u0007", AnswerOptions(no_answer=False))])
    assert (result["status"], result["answer"], result["no_answer_score"]) == ("succeeded", None, 1.0)


def test_queries_do_not_change_each_others_answers(runner: Runner) -> None:
    queries = [Query("who", "ada wrote the first program " * n, AnswerOptions(no_answer=False)) for n in range(1, 12)]
    alone = [runner.results_of([query])[0] for query in queries]
    assert runner.results_of(queries) == alone


def test_rows_are_cut_to_the_longest_where_lengths_are_flexible(tiny_artifact: Artifact) -> None:
    exact = tiny_artifact.model_copy(
        update={"manifest": tiny_artifact.manifest.model_copy(update={"flexible_lengths": False})}
    )
    query, results, padding = (
        Query("Who wrote the first program?", "Ada Lovelace wrote the first program."),
        [],
        [],
    )
    for artifact in (exact, tiny_artifact):
        runner = Runner.open(open_backend("cpu"), artifact)
        results.append(runner.results_of([query]))
        padding.append(runner.work.padding)
        runner.close()
    assert padding[0] == padding[1] + 16
    [[before], [after]] = results
    assert before["answers"][0]["text"] == after["answers"][0]["text"]


def test_rows_of_a_batch_keep_to_the_time_they_may_take(tiny_artifact: Artifact) -> None:
    sizes = []

    class Slow(FixedBackend):
        def run(self, model, batch):  # type: ignore[no-untyped-def]
            sizes.append(batch.rows)
            return super().run(model, batch)

    hasty = Runner.open(Slow(), tiny_artifact, RunnerLimits(latency_target_s=1e-9))
    queries = [Query("who", "ada wrote", AnswerOptions(no_answer=False))] * 6
    hasty.warm_up()
    del sizes[:]
    answers = hasty.results_of(queries)
    assert sizes == [1] * 6
    patient = Runner.open(Slow(), tiny_artifact, RunnerLimits(latency_target_s=1e9))
    patient.warm_up()
    del sizes[:]
    assert patient.results_of(queries) == answers
    assert sizes == [4, 2]


def test_question_is_answered_while_a_document_is_still_being_tokenised(
    tiny_artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 200)
    document = Query("who", "the river was red . " * 200 + "ada wrote", AnswerOptions(no_answer=False))
    runner = Runner.open(FixedBackend(), tiny_artifact, RunnerLimits(cache_tokens=10_000))
    runner.admit([("document", document), ("question", Query("who", "ada"))])
    assert runner.waiting_tokens(500) > 500
    assert [key for key, _ in runner.start().finish()] == ["question"]
    whole = Runner.open(FixedBackend(), tiny_artifact)
    monkeypatch.undo()
    answered: list[Any] = []
    while not answered:
        answered = runner.start().finish()
    assert answered == [("document", whole.results_of([document])[0])]
    assert runner.results_of([document]) == [answered[0][1]]
    assert (runner.work.texts_read, runner.work.texts_hit) == (2, 1)


def test_document_that_nobody_wants_any_more_is_not_read(
    tiny_artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 200)
    runner = Runner.open(FixedBackend(), tiny_artifact)
    for forget in (lambda: runner.drop(["document"]), runner.reset):
        runner.admit([("document", Query("who", "the river was red . " * 200))])
        runner.start().finish()
        forget()
        assert runner.waiting_tokens(10**9) == 0
        assert runner.start().finish() == []
