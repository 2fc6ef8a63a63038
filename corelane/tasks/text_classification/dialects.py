"""The routes that classify texts as Transformers' pipeline does."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from corelane.tasks.dialects import MODEL, Asked, Dialect, Foreign, PipelineParameters, Texts, Told, listed
from corelane.tasks.text_classification.wire import ClassificationOptions, ClassifiedText, Function, Label


class ClassificationParameters(PipelineParameters):
    """The parameters of the text-classification pipeline."""

    function_to_apply: Function | None = Field(None, description="How logits become scores; as the model has it.")
    top_k: int | None = Field(None, ge=1, strict=True, description="Labels returned; all of them if null.")
    long: Literal["error", "mean", "max"] = Field("error", description="As in a job's options.")


class HfClassification(Foreign):
    """The body of ``POST /v1/hf/text-classification``."""

    inputs: Texts = Field(description="One text, or a list of them. Pairs are taken by `POST /v1/jobs`.")
    parameters: ClassificationParameters = Field(default_factory=ClassificationParameters)
    model: str | None = MODEL


class HfLabels(Dialect):
    """Classify texts, as `InferenceClient.text_classification` sends and reads them: a list of labels for each text."""

    path, body, returns = "/v1/hf/text-classification", HfClassification, list[list[Label]]
    example: Mapping[str, Any] = MappingProxyType({"inputs": "The room was clean.", "parameters": {"top_k": 2}})

    def read(self, body: HfClassification) -> Asked:
        """Return the texts."""
        given = body.parameters
        options = ClassificationOptions(top_k=given.top_k, function=given.function_to_apply, long=given.long)
        return Asked([ClassifiedText(text=text) for text in listed(body.inputs)], options, given.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the labels of each text."""
        return [result["labels"] for result in results]
