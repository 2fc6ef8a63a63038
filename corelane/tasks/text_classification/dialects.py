"""The routes that classify texts as Transformers' pipeline does."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from corelane.domain.jobs import Text
from corelane.domain.wire import MOST_LISTED, at_most, in_pieces
from corelane.tasks.dialects import Asked, Foreign, HfBody, HfDialect, TextParameters, Told, listed
from corelane.tasks.text_classification.wire import ClassificationOptions, ClassifiedText, Function, Label


class HfPair(Foreign):
    """A text, and perhaps a second one, as Transformers' pipeline takes them."""

    text: Text
    text_pair: Text | None = None


def as_pairs(value: Any) -> Any:
    """Return inputs whose pairs are objects: Text Embeddings Inference takes lists of one or two texts as well."""
    if not isinstance(value, list):
        return value
    return [
        dict(zip(("text", "text_pair"), each, strict=False)) if isinstance(each, list) and len(each) in (1, 2) else each
        for each in value
    ]


def form_of(value: Any) -> str:
    """Return which form of inputs a value has, or is to have, so that its errors are those of that form."""
    return "HfPair" if isinstance(value, dict) else "list[]" if isinstance(value, list) else "str"


def form_of_one(value: Any) -> str:
    """Return the same for one input of a list."""
    return "HfPair" if isinstance(value, dict) else "str"


OneInput = Annotated[Annotated[Text, Tag("str")] | Annotated[HfPair, Tag("HfPair")], Discriminator(form_of_one)]
Inputs = Annotated[
    Annotated[Text, Tag("str")]
    | Annotated[HfPair, Tag("HfPair")]
    | Annotated[list[OneInput], Field(min_length=1, max_length=MOST_LISTED), in_pieces(HfPair), Tag("list[]")],
    Discriminator(form_of),
    BeforeValidator(as_pairs),
    at_most(MOST_LISTED),
]


class ClassificationParameters(TextParameters):
    """The parameters of the text-classification pipeline."""

    function_to_apply: Function | None = Field(None, description="How logits become scores; as the model has it.")
    top_k: int | None = Field(None, ge=1, strict=True, description="Labels returned; all of them if null.")
    long: Literal["error", "mean", "max"] = Field("error", description="As in a job's options.")


class HfClassification(HfBody):
    """The body of ``POST /v1/hf/text-classification``."""

    inputs: Inputs = Field(description="One text, a pair, or a list of them; within a list a pair may be one.")
    parameters: ClassificationParameters = Field(default_factory=ClassificationParameters)


class HfLabels(HfDialect):
    """Classify texts, as `InferenceClient.text_classification` sends and reads them: a list of labels for each text."""

    path, body, returns = "/v1/hf/text-classification", HfClassification, list[list[Label]]
    example: Mapping[str, Any] = MappingProxyType({"inputs": "The room was clean.", "parameters": {"top_k": 2}})

    def read(self, body: HfClassification) -> Asked:
        """Return the texts."""
        given = body.parameters
        options = ClassificationOptions(top_k=given.top_k, function=given.function_to_apply, long=given.long)
        items = [
            ClassifiedText(text=each)
            if isinstance(each, str)
            else ClassifiedText(text=each.text, text_pair=each.text_pair)
            for each in listed(body.inputs)
        ]
        return Asked(items, options, given.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the labels of each text."""
        return [result["labels"] for result in results]
