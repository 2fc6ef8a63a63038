"""The routes that rank documents as Cohere and Jina do: one form that holds both, and both versions of Cohere's."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from corelane.domain.jobs import UNLESS_NULL, Priority, Text
from corelane.domain.wire import MOST_LISTED, Entry, at_most, in_pieces
from corelane.tasks.dialects import MODEL, Asked, Dialect, Foreign, Told
from corelane.tasks.text_ranking.wire import Ranked, RankingOptions


def texts_of(value: Any) -> Any:
    """Return documents as texts, those that are objects by their `text`."""
    if not isinstance(value, list):
        return value
    return [each["text"] if isinstance(each, dict) and each.keys() == {"text"} else each for each in value]


def priority_of(value: Any) -> Any:
    """Return Cohere's priority, where 0 goes first, as one of a job's."""
    return (Priority.LOW if value > 0 else Priority.NORMAL) if type(value) is int else value


class DocumentObject(Entry):
    """A document as an object."""

    text: Text


DocumentList = Annotated[list[str | DocumentObject], Field(min_length=1, max_length=MOST_LISTED)]

Documents = Annotated[
    list[Text],
    Field(min_length=1, max_length=MOST_LISTED),
    in_pieces(Entry),
    BeforeValidator(texts_of, json_schema_input_type=DocumentList),
    at_most(MOST_LISTED),
]


class RerankBody(Foreign):
    """The body of ``POST /v1/rerank`` and ``POST /v2/rerank``."""

    model: str | None = MODEL
    query: Text = Field(description="What is looked for.")
    documents: Documents = Field(description="The texts to rank, or objects with a `text`.")
    top_n: int | None = Field(None, ge=1, strict=True, description="Documents returned, best first; all if null.")
    return_documents: bool = Field(False, strict=True, description="Whether each result has its document.")
    rank_fields: list[Literal["text"]] | None = Field(None, max_length=1, description="`text`, as there is no other.")
    max_tokens_per_doc: int | None = Field(None, description="Without effect: all of a document is read.")
    max_chunks_per_doc: int | None = Field(None, description="Without effect: all of a document is read.")
    priority: Annotated[Priority, BeforeValidator(priority_of, json_schema_input_type=Priority | int)] = Field(
        Priority.NORMAL, description="That of a job; or a number, of which 0 is `normal` and a greater one `low`."
    )


class RerankDocument(BaseModel):
    """The text of a document."""

    text: str


class Reranked(BaseModel):
    """One document's place."""

    index: int = Field(description="Its position in the request.")
    relevance_score: float = Field(description="Between 0 and 1.")
    document: RerankDocument | None = Field(None, **UNLESS_NULL, description="With `return_documents` only.")


class ApiVersion(BaseModel):
    """The version of the form."""

    version: str


class BilledUnits(BaseModel):
    """What Cohere's clients expect of a bill."""

    search_units: int = 1


class RerankMeta(BaseModel):
    """What Cohere's clients expect beside the results."""

    api_version: ApiVersion
    billed_units: BilledUnits


class RerankUsage(BaseModel):
    """What Jina's clients expect beside the results."""

    prompt_tokens: int
    total_tokens: int


class RerankReply(BaseModel):
    """Documents, the best first."""

    id: str
    model: str = Field(description="The model version that judged them.")
    results: list[Reranked]
    meta: RerankMeta
    usage: RerankUsage | None = Field(None, **UNLESS_NULL, description="Tokens that the model read.")


class Rerank(Dialect):
    """Rank documents, as Cohere's client and Jina's send and read them."""

    path, body, line, returns = "/v1/rerank", RerankBody, RerankBody, RerankReply
    example: Mapping[str, Any] = MappingProxyType(
        {"query": "How tall is the tower?", "documents": ["It is 330 metres tall.", "It opened in 1889."], "top_n": 1}
    )
    version = "1"

    def read(self, body: RerankBody) -> Asked:
        """Return the query and its documents."""
        options = RankingOptions(top_n=body.top_n, return_texts=body.return_documents, function="sigmoid")
        return Asked([Ranked(query=body.query, texts=tuple(body.documents))], options, body.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the ranking."""
        return RerankReply(
            id=told.id,
            model=told.model,
            results=[
                Reranked(
                    index=each["index"],
                    relevance_score=each["score"],
                    document=None if each.get("text") is None else RerankDocument(text=each["text"]),
                )
                for each in results[0]["ranking"]
            ],
            meta=RerankMeta(api_version=ApiVersion(version=self.version), billed_units=BilledUnits()),
            usage=None if told.tokens is None else RerankUsage(prompt_tokens=told.tokens, total_tokens=told.tokens),
        )


class RerankV2(Rerank):
    """Rank documents, as the second version of Cohere's client sends and reads them."""

    path, version = "/v2/rerank", "2"
