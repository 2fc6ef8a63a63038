"""The routes that choose among the caller's own labels, as Transformers' pipeline does."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from corelane.tasks.dialects import Asked, HfBody, HfDialect, TextParameters, Texts, Told, as_given, listed
from corelane.tasks.text_classification.wire import Label
from corelane.tasks.zero_shot_classification.wire import LabelledText, Labels, Template, ZeroShotOptions


def split(value: Any) -> Any:
    """Return labels that are joined by commas as a list."""
    return [label.strip() for label in value.split(",") if label.strip()] if isinstance(value, str) else value


def without_number(value: Any) -> Any:
    """Return a template whose place is `{}`: the pipeline fills it by `str.format`, to which `{0}` is the same."""
    return value.replace("{0}", "{}") if isinstance(value, str) else value


class ZeroShotParameters(TextParameters):
    """The parameters of the zero-shot-classification pipeline."""

    candidate_labels: Annotated[Labels, BeforeValidator(split, json_schema_input_type=Labels | str)] = Field(
        description="The labels to choose from, as a list or joined by commas."
    )
    hypothesis_template: Annotated[Template, BeforeValidator(without_number)] = "This example is {}."
    multi_label: bool = Field(False, strict=True, description="Whether several labels may be right.")
    long: Literal["error", "mean", "max"] = Field("error", description="As in a job's options.")


class HfZeroShot(HfBody):
    """The body of ``POST /v1/hf/zero-shot-classification``."""

    inputs: Texts = Field(description="One text, or a list of them.")
    parameters: ZeroShotParameters


class HfOwnLabels(HfDialect):
    """Choose labels, as `InferenceClient.zero_shot_classification` sends and reads them: a flat list for one text."""

    path, body, returns = "/v1/hf/zero-shot-classification", HfZeroShot, list[Label] | list[list[Label]]
    example: Mapping[str, Any] = MappingProxyType(
        {"inputs": "The parcel never came.", "parameters": {"candidate_labels": ["delivery", "price"]}}
    )

    def read(self, body: HfZeroShot) -> Asked:
        """Return the texts."""
        given = body.parameters
        options = ZeroShotOptions(
            labels=given.candidate_labels,
            hypothesis_template=given.hypothesis_template,
            multi_label=given.multi_label,
            long=given.long,
        )
        return Asked([LabelledText(text=text) for text in listed(body.inputs)], options, given.priority)

    def reply(self, body: HfZeroShot, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the labels in the form of the inputs."""
        return as_given(body.inputs, (result["labels"] for result in results))
