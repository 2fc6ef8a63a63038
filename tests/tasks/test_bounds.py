"""What an item may cost is bounded: what is charged for it, what is looked at, and how much of it is read at a time."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corelane.artifacts.manifest import TokenizerSpec
from corelane.domain.dispatch import LEAST_TOKENS, WINDOW_TOKENS
from corelane.domain.job_requests import count_rows
from corelane.domain.wire import MOST_ROWS
from corelane.engine.runner import engine_of
from corelane.engine.task import Query, RunnerLimits
from corelane.engine.text.chunks import CHUNK_CHARS
from corelane.errors import InvalidInput, TooLarge
from corelane.settings import Settings
from corelane.submitting.submitter import Estimator
from corelane.tasks.forms import forms
from corelane.tasks.registry import TASKS, task_named
from corelane.tasks.text_classification.wire import ClassifiedText
from corelane.tasks.zero_shot_classification.wire import LabelledText, ZeroShotOptions
from tests.families.tokenizers import make_tokenizer
from tests.tasks.tiny import WHOLE_WORDS

ZERO_SHOT = "zero-shot-classification"

LIMITS = RunnerLimits(max_windows=20_000)


class Counted:
    """A tokenizer that notes how many characters each call reads."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.read: list[int] = []

    def encode(self, text: str, **options: Any) -> Any:
        self.read.append(len(text))
        return self._tokenizer.encode(text, **options)

    def encode_batch(self, texts: Sequence[str], **options: Any) -> Any:
        self.read.append(sum(map(len, texts)))
        return self._tokenizer.encode_batch(texts, **options)


def engine(task: str, limits: RunnerLimits = LIMITS) -> tuple[Any, Counted]:
    """Return the engine of a task with the tokenizer of a tiny BERT, as for a model of the default windows."""
    fast = make_tokenizer("BertTokenizer")
    counted = Counted(fast.backend_tokenizer)
    spec = TokenizerSpec(cls_id=fast.cls_token_id, sep_id=fast.sep_token_id, pad_id=fast.pad_token_id)
    made: Any = engine_of(task)(counted, spec, WINDOW_TOKENS, limits)
    counted.read.clear()
    return made, counted


def words(count: int) -> str:
    """Return a text of about so many tokens and four characters a token, as texts of most languages have."""
    drawn = random.Random(count).choices(WHOLE_WORDS, k=max(1, 2 * count // 3))
    return " ".join(f"{word}," if at % 2 else word for at, word in enumerate(drawn))


def query_of(task: str, fields: dict[str, Any], options: Any) -> Query:
    beside, text, _ = task_named(task).parts(task_named(task).item(**fields))
    return Query(beside, text or "", options)


SHORT, LONG = st.integers(1, 80), st.integers(1, 3000)

LABELS = st.lists(st.integers(1, 30).map(words), min_size=1, max_size=100, unique=True)

#: By task: the fields of an item, and options.
DRAWN: dict[str, tuple[st.SearchStrategy[dict[str, Any]], st.SearchStrategy[dict[str, Any]]]] = {
    "question-answering": (
        st.fixed_dictionaries({"question": SHORT.map(words), "context": LONG.map(words)}),
        st.fixed_dictionaries(
            {
                "doc_stride": st.sampled_from([0, 128, 400]),
                "max_seq_len": st.sampled_from([None, 32, 128, 384]),
                "max_question_len": st.sampled_from([None, 1, 8]),
            }
        ),
    ),
    "text-classification": (
        st.fixed_dictionaries({"text": LONG.map(words), "text_pair": st.none() | st.integers(1, 250).map(words)}),
        st.just({"long": "mean"}),
    ),
    "token-classification": (st.fixed_dictionaries({"text": LONG.map(words)}), st.just({})),
    "feature-extraction": (st.fixed_dictionaries({"text": LONG.map(words)}), st.just({"long": "mean"})),
    "text-ranking": (
        st.fixed_dictionaries(
            {"query": SHORT.map(words), "texts": st.lists(st.integers(1, 600).map(words), min_size=1, max_size=60)}
        ),
        st.just({}),
    ),
    ZERO_SHOT: (
        st.fixed_dictionaries({"text": LONG.map(words)}, optional={"labels": LABELS}),
        st.fixed_dictionaries(
            {
                "labels": LABELS,
                "long": st.just("mean"),
                "hypothesis_template": st.integers(1, 100).map(lambda count: words(count) + " {}."),
            }
        ),
    ),
}


def test_item_of_too_many_windows_is_refused() -> None:
    reader, _ = engine("token-classification", RunnerLimits(max_windows=3))
    options = task_named("token-classification").options()
    [item] = reader.tokenize_all([query_of("token-classification", {"text": words(5000)}, options)])
    assert item["error"]["code"] == "too_many_windows"


def test_each_task_of_texts_is_drawn() -> None:
    assert DRAWN.keys() == TASKS.keys() - {"handler"}


@pytest.mark.parametrize("task", DRAWN)
def test_charge_is_within_a_factor_of_two_of_the_tokens_that_run(task: str) -> None:
    reader, counted = engine(task)

    @given(*DRAWN[task])
    def check(fields: dict[str, Any], given_options: dict[str, Any]) -> None:
        options = task_named(task).options(**given_options)
        counted.read.clear()
        [item] = reader.tokenize_all([query_of(task, fields, options)])
        assert max(counted.read, default=0) < 2.2 * CHUNK_CHARS
        if isinstance(item, dict):
            assert item["error"]["code"] in ("question_too_long", "too_many_windows")
            return
        run = max(LEAST_TOKENS, sum(window.length for window in item.windows))
        charged = Estimator({}, options).tokens(task_named(task).item(**fields))
        assert run / 2 <= charged <= 2 * run, (charged, run)

    check()


@pytest.mark.parametrize("task", ["text-classification", ZERO_SHOT, "text-ranking", "question-answering"])
def test_what_stands_beside_a_text_is_charged_whole(task: str) -> None:
    long = words(200_000)
    drawn: dict[str, dict[str, Any]] = {
        "text-classification": {"text": "short", "text_pair": long},
        ZERO_SHOT: {"text": long, "labels": [f"label {at}" for at in range(100)]},
        "text-ranking": {"query": long, "texts": ["short"] * 10},
        "question-answering": {"question": long, "context": "short"},
    }
    charged = Estimator({}, task_named(task).options()).tokens(task_named(task).item(**drawn[task]))
    assert charged > 200_000 * {"text-ranking": 10, ZERO_SHOT: 100}.get(task, 1)


def test_pair_whose_second_text_fits_no_window_is_refused() -> None:
    task = TASKS["text-classification"]
    with pytest.raises(TooLarge, match="the second text is longer than 10,000 characters: shorten it"):
        task.check(Settings(), "", ClassifiedText(text="a", text_pair="a" * 10_001))


def steps_of(reader: Any) -> int:
    steps = 0
    while reader.unread_tokens(10**9):
        reader.read_on()
        steps += 1
    return steps


def test_labels_are_tokenized_in_steps_and_no_other_item_waits_for_them() -> None:
    reader, counted = engine(ZERO_SHOT)
    labels = [f"{at} " + words(250)[:950] for at in range(100)]
    large = query_of(ZERO_SHOT, {"text": words(20_000), "labels": labels}, ZeroShotOptions(long="mean"))
    small = query_of(ZERO_SHOT, {"text": "the tower", "labels": ["a", "b"]}, ZeroShotOptions())
    assert [key for key, _ in reader.tokenize([("large", large), ("small", small)])] == ["small"]
    assert reader.unread_tokens(10**9) > 20_000
    assert steps_of(reader) > 8
    assert max(counted.read) < 2 * CHUNK_CHARS
    counted.read.clear()
    reader.tokenize([("large", large)])
    reader.read_on()
    reader.forget(["large"])
    assert (reader.read_on(), reader.unread_tokens(10**9), len(counted.read)) == ([], 0, 1)


def test_item_read_in_steps_is_that_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _ = engine(ZERO_SHOT)
    query = query_of(ZERO_SHOT, {"text": words(40), "labels": [words(at) for at in range(1, 60)]}, ZeroShotOptions())
    [whole] = reader.tokenize_all([query])
    monkeypatch.setattr("corelane.engine.text.engine.CHUNK_CHARS", 100)
    [stepwise] = reader.tokenize_all([query])
    assert stepwise.windows == whole.windows
    assert [part.beside.tolist() for part in stepwise.parts] == [part.beside.tolist() for part in whole.parts]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hypothesis_template": "It is {} or {}."}, "the place of the label, exactly once"),
        ({"hypothesis_template": "It is {0}."}, "the place of the label, exactly once"),
        ({"hypothesis_template": "a" * 600 + "{}", "labels": ["b" * 400]}, "602 characters and the longest label 400"),
        ({"labels": ["one", "two", "one"]}, "the label 'one' is there twice"),
    ],
)
def test_labels_and_template_are_bounded_together(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ZeroShotOptions(**options)
    if "labels" in options and "hypothesis_template" in options:
        with pytest.raises(InvalidInput, match=f"item 3: .*{said}"):
            TASKS[ZERO_SHOT].check_options(
                ZeroShotOptions(hypothesis_template=options["hypothesis_template"]),
                "item 3: ",
                LabelledText(text="a", labels=options["labels"]),
            )


class Untouched(list[Any]):
    """A list whose entries nobody may look at."""

    def __iter__(self) -> Any:
        raise AssertionError


@pytest.mark.parametrize(("task", "field"), [("text-ranking", "texts"), (ZERO_SHOT, "labels")])
def test_rows_of_a_job_are_counted_before_any_is_looked_at(task: str, field: str) -> None:
    items = [{field: Untouched([1] * 10_000)}] * 11
    with pytest.raises(TooLarge, match=f"more than 100,000 `{field}` together"):
        forms(task_named(task)).request.model_validate({"items": items})
    assert count_rows(items * 1000, field) == MOST_ROWS + 10_000
    assert count_rows([LabelledText(text="a")] * 3, field, 100) == 300
