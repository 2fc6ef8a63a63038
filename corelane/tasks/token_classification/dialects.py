"""The routes that find entities as Transformers' pipeline does."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from corelane.domain.jobs import UNLESS_NULL
from corelane.domain.wire import at_most
from corelane.tasks.dialects import Asked, HfBody, HfDialect, TextParameters, Texts, Told, as_given, listed
from corelane.tasks.text import TextItem
from corelane.tasks.token_classification.wire import Aggregation, EntityOptions


class EntityParameters(TextParameters):
    """The parameters of the token-classification pipeline."""

    refused: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"stride": "long texts are read in windows that overlap enough, and all of them are read"}
    )
    aggregation_strategy: Aggregation = Field("simple", description="How tokens become entities.")
    ignore_labels: Annotated[tuple[str, ...], Field(max_length=100), at_most(100)] = Field(
        ("O",), description="Labels that are left out."
    )


class HfTokens(HfBody):
    """The body of ``POST /v1/hf/token-classification``."""

    inputs: Texts = Field(description="One text, or a list of them.")
    parameters: EntityParameters = Field(default_factory=EntityParameters)


class HfEntity(BaseModel):
    """One entity: ``text[start:end] == word``."""

    entity_group: str | None = Field(None, **UNLESS_NULL, description="Its label, if tokens are aggregated.")
    entity: str | None = Field(None, **UNLESS_NULL, description="Its label, with the strategy `none`.")
    score: float
    word: str
    start: int
    end: int


class HfEntities(HfDialect):
    """Find entities, as `InferenceClient.token_classification` sends and reads them: a flat list for one text."""

    path, body, returns = "/v1/hf/token-classification", HfTokens, list[HfEntity] | list[list[HfEntity]]
    example: Mapping[str, Any] = MappingProxyType({"inputs": "Ada Lovelace was born in London."})

    def read(self, body: HfTokens) -> Asked:
        """Return the texts."""
        given = body.parameters
        options = EntityOptions(aggregation=given.aggregation_strategy, ignore_labels=given.ignore_labels)
        return Asked([TextItem(text=text) for text in listed(body.inputs)], options, given.priority)

    def reply(self, body: HfTokens, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the entities in the form of the inputs."""
        name = "entity" if body.parameters.aggregation_strategy == "none" else "entity_group"
        return as_given(
            body.inputs,
            (
                [
                    {name: each["label"], "score": each["score"], "word": each["text"]}
                    | {"start": each["start"], "end": each["end"]}
                    for each in result["entities"]
                ]
                for result in results
            ),
        )
