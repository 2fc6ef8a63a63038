"""The routes that classify texts as Transformers' pipeline does."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from corelane.domain.wire import MOST_LISTED, at_most, in_pieces
from corelane.tasks.dialects import Asked, HfBody, HfDialect, TextParameters, Texts, Told, listed
from corelane.tasks.text_classification.wire import ClassificationOptions, ClassifiedText, Function, Label


def as_items(value: Any) -> Any:
    """Return inputs as items: a pair is an object, or a list in a list, as Text Embeddings Inference takes it."""
    return [
        {"text": each}
        if isinstance(each, str)
        else dict(zip(("text", "text_pair"), each, strict=False))
        if isinstance(each, list) and len(each) in (1, 2)
        else each
        for each in listed(value)
    ]


#: A pair may be two texts in a list, if it is one of several inputs.
Pair = Annotated[list[str], Field(min_length=1, max_length=2)]
Several = Annotated[list[ClassifiedText | Pair], Field(min_length=1, max_length=MOST_LISTED)]

Inputs = Annotated[
    list[ClassifiedText],
    Field(min_length=1, max_length=MOST_LISTED),
    in_pieces(ClassifiedText),
    BeforeValidator(as_items, json_schema_input_type=Texts | ClassifiedText | Several),
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
        return Asked(body.inputs, options, given.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the labels of each text."""
        return [result["labels"] for result in results]
