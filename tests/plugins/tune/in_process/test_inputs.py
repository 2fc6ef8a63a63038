"""The forms of a call that transformers' pipeline took, and those that it refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from corelane.tasks.question_answering.tune.in_process.inputs import Input, Parameters, read_inputs, take_parameters

ONE, OTHER = {"question": "Who?", "context": "Ada"}, {"question": "Where?", "context": "Paris"}


@pytest.mark.parametrize(
    ("arguments", "named", "expected"),
    [
        ((), ONE, [ONE]),
        ((ONE,), {}, [ONE]),
        (([ONE, OTHER],), {}, [ONE, OTHER]),
        ((ONE, OTHER), {}, [ONE, OTHER]),
        (("Who?", "Ada"), {}, [ONE]),
        (((ONE, OTHER),), {}, [ONE, OTHER]),
        ((), {"data": [ONE]}, [ONE]),
        ((), {"X": ONE}, [ONE]),
        ((), {"question": ["Who?", "Where?"], "context": ["Ada", "Paris"]}, [ONE, OTHER]),
        ((), {"question": ["Who?", "Why?"], "context": "Ada"}, [ONE, {"question": "Why?", "context": "Ada"}]),
    ],
)
def test_forms_of_a_call(arguments: tuple[Any, ...], named: dict[str, Any], expected: list[dict[str, str]]) -> None:
    assert read_inputs(arguments, named) == [Input(**each) for each in expected]


def test_iterator_is_not_read_ahead() -> None:
    given = (each for each in [ONE])
    assert read_inputs((given,), {}) is given


def test_data_set_is_read_like_an_iterator() -> None:
    class DataSet:
        def __getitem__(self, number: int) -> dict[str, str]:
            return [ONE, OTHER][number]

    read = read_inputs((DataSet(),), {})
    assert isinstance(read, Iterator)
    assert list(read) == [ONE, OTHER]


@pytest.mark.parametrize(
    ("arguments", "named", "error"),
    [
        (({"question": "Who?"},), {}, KeyError),
        (({"question": "Who?", "context": None},), {}, ValueError),
        (({"question": "Who?", "context": ""},), {}, ValueError),
        (([ONE, {"question": "", "context": "Ada"}],), {}, ValueError),
        (([1],), {}, ValueError),
        ((1,), {}, ValueError),
        ((), {"question": "Who?"}, ValueError),
        ((), {"question": ["Who?"], "context": ["Ada", "Paris"]}, ValueError),
        ((), {"question": "Who?", "context": ["Ada"]}, ValueError),
        ((), {**ONE, "answer": "Ada"}, ValueError),
    ],
)
def test_call_that_makes_no_sense(arguments: tuple[Any, ...], named: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        read_inputs(arguments, named)


def test_parameters_of_a_call_are_taken_out_of_it() -> None:
    named = {"question": "Who?", "top_k": 3, "max_answer_len": None}
    assert take_parameters(Parameters(max_answer_len=7), named) == Parameters(top_k=3, max_answer_len=7)
    assert named == {"question": "Who?"}
    assert take_parameters(Parameters(), {"topk": 2}).top_k == 2


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"max_answer_len": 0}, {"max_seq_len": 0}, {"doc_stride": -1}])
def test_parameters_below_one_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        take_parameters(Parameters(), dict(wrong))
