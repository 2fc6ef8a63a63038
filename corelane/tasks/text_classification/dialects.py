"""The routes that classify texts as Transformers' pipeline and Text Embeddings Inference do."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from corelane.domain.jobs import Text
from corelane.domain.wire import MOST_LISTED, Entry, at_most, in_pieces
from corelane.tasks.dialects import Asked, Cuts, HfBody, HfDialect, PipelineParameters, TeiDialect, Texts, Told, listed
from corelane.tasks.text_classification.wire import ClassificationOptions, ClassifiedText, Function, Label, Long


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


class ClassificationParameters(Cuts, PipelineParameters):
    """The parameters of the text-classification pipeline."""

    function_to_apply: Function | None = Field(None, description="How logits become scores; as the model has it.")
    top_k: int | None = Field(None, ge=1, strict=True, description="Labels returned; all of them if null.")
    long: Long = Field("error", description="As in a job's options.")

    def job_options(self, **more: Any) -> ClassificationOptions:
        """Return these and more as a job's options."""
        given = {"top_k": self.top_k, "function": self.function_to_apply, "long": self.long_option()}
        return ClassificationOptions(**given | more)


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
        return Asked(body.inputs, body.parameters.job_options(), body.parameters.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the labels of each text."""
        return [result["labels"] for result in results]


#: One text, or a pair, in a list.
OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2)]
OnesOrTwos = Annotated[
    list[OneOrTwo], Field(min_length=1, max_length=MOST_LISTED), in_pieces(Entry), at_most(MOST_LISTED)
]


class TeiClassification(Cuts, HfBody):
    """The body of ``POST /predict``."""

    inputs: Text | OneOrTwo | OnesOrTwos = Field(
        description="One text, a pair `[a, b]`, or a list of lists of one text or two."
    )
    raw_scores: bool = Field(False, strict=True, description="Whether scores are logits.")
    parameters: ClassificationParameters = Field(
        default_factory=ClassificationParameters, description="As Hugging Face's client sends them."
    )

    @property
    def is_one(self) -> bool:
        """Return whether the inputs are one text, or one pair."""
        return isinstance(listed(self.inputs)[0], str)


class TeiLabels(TeiDialect):
    """Classify texts, as clients of Text Embeddings Inference send and read them."""

    path, body, returns = "/predict", TeiClassification, list[Label] | list[list[Label]]
    example: Mapping[str, Any] = MappingProxyType({"inputs": [["The room was clean."], ["It rains.", "It is dry."]]})

    def read(self, body: TeiClassification) -> Asked:
        """Return the texts."""
        inputs: Any = [listed(body.inputs)] if body.is_one else body.inputs
        more = {"long": "cut"} if body.long_option() == "cut" else {}
        more |= {"function": "none"} if body.raw_scores else {}
        items = [ClassifiedText(**dict(zip(("text", "text_pair"), each, strict=False))) for each in inputs]
        return Asked(items, body.parameters.job_options(**more), body.parameters.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the labels of one input, or of each."""
        found = [result["labels"] for result in results]
        return found[0] if body.is_one else found

    def kind(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the labels and their numbers."""
        labels = list(enumerate(facts.get("labels", ())))
        label2id = {label: number for number, label in labels}
        return {"classifier": {"id2label": {str(number): label for number, label in labels}, "label2id": label2id}}
