"""The inputs of the pipeline: questions and contexts in the forms that transformers' pipeline accepted. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

#: The keys of an input.
KEYS = ("question", "context")

#: Names under which inputs may be given as one list.
LISTS = ("X", "data")


@dataclass(frozen=True, slots=True)
class Parameters:
    """How questions are read and answered; names and defaults are those of transformers.

    None stands for a default that depends on the model: ``max_seq_len`` is the longest row that it was compiled for,
    ``doc_stride`` is 128, at most half of a row, and questions are not cut.
    """

    top_k: int = 1
    doc_stride: int | None = None
    max_answer_len: int = 15
    max_seq_len: int | None = None
    max_question_len: int | None = None
    handle_impossible_answer: bool = False
    align_to_words: bool = True

    def __post_init__(self) -> None:
        for name in ("top_k", "max_answer_len", "max_seq_len", "max_question_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} parameter should be >= 1 (got {value})")
        if self.doc_stride is not None and self.doc_stride < 0:
            raise ValueError(f"doc_stride parameter should be >= 0 (got {self.doc_stride})")


#: The names of the parameters.
PARAMETERS = frozenset(field.name for field in fields(Parameters))


@dataclass(frozen=True, slots=True)
class Input:
    """A question and the context to look for its answer in."""

    question: str
    context: str


def take_parameters(usual: Parameters, arguments: dict[str, Any]) -> Parameters:
    """Remove the parameters from the arguments of a call and return them. A value of None means the usual one."""
    if "topk" in arguments:
        arguments.setdefault("top_k", arguments["topk"])
        del arguments["topk"]
    named = {name: arguments.pop(name) for name in PARAMETERS & arguments.keys()}
    return replace(usual, **{name: value for name, value in named.items() if value is not None})


def read_inputs(arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Input] | Iterator[Any]:
    """Return the examples of a call, or its iterator unchanged; raises ValueError or KeyError with the reason."""
    given = _find_inputs(arguments, named)
    if isinstance(given, Iterator):
        return given
    if isinstance(given, Mapping | Input):
        return [read_input(given)]
    if hasattr(given, "__getitem__") and not isinstance(given, Iterable):
        # A data set of torch.
        each: Iterator[Any] = iter(given)
        return each
    if isinstance(given, Iterable) and not isinstance(given, str):
        return [read_input(each) for each in given]
    raise ValueError(f"{given!r} is neither a question with its context nor a list of them")


def _find_inputs(arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    if unknown := named.keys() - {*KEYS, *LISTS}:
        raise ValueError(f"Unknown arguments {sorted(unknown)}")
    if arguments:
        if len(arguments) == 2 and all(isinstance(each, str) for each in arguments):
            return [Input(*arguments)]
        return arguments[0] if len(arguments) == 1 else list(arguments)
    for name in LISTS:
        if name in named:
            return named[name]
    if not set(KEYS) <= named.keys():
        raise ValueError("Give a question and a context, or a list of {question:..., context:...}")
    return _pair_up(named["question"], named["context"])


def _pair_up(questions: Any, contexts: Any) -> list[dict[str, Any]]:
    """Return the examples of questions and contexts, each one text or a list; many questions may share a context."""
    if isinstance(questions, list) and isinstance(contexts, str):
        contexts = [contexts] * len(questions)
    if isinstance(questions, list) and isinstance(contexts, list):
        if len(questions) != len(contexts):
            raise ValueError("Questions and contexts don't have the same lengths")
        return [{"question": one, "context": other} for one, other in zip(questions, contexts, strict=True)]
    if isinstance(questions, list) or isinstance(contexts, list):
        raise ValueError("Arguments can't be understood")
    return [{"question": questions, "context": contexts}]


def read_input(given: Any) -> Input:
    """Return one example; raises KeyError if a key is missing, ValueError if a text is None or empty."""
    if isinstance(given, Input):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(f"{given!r} is no dictionary with the keys question and context")
    for key in KEYS:
        if key not in given:
            raise KeyError("You need to provide a dictionary with keys {question:..., context:...}")
        if given[key] is None:
            raise ValueError(f"`{key}` cannot be None")
        if not isinstance(given[key], str):
            raise ValueError(f"`{key}` has to be a text, not {type(given[key]).__name__}")
        if not given[key]:
            raise ValueError(f"`{key}` cannot be empty")
    return Input(given["question"], given["context"])
