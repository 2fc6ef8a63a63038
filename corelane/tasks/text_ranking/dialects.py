"""The routes that rank documents as Cohere, Jina and Text Embeddings Inference do.

One form holds those of Jina and of both versions of Cohere's.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from corelane.domain.jobs import UNLESS_NULL, Priority, Text
from corelane.domain.wire import MOST_LISTED, Entry, at_most, in_pieces
from corelane.tasks.dialects import MODEL, UNCUT, Asked, Dialect, Foreign, HfBody, TeiDialect, Told
from corelane.tasks.text_ranking.wire import Ranked, RankedText, RankedTexts, RankingOptions, not_all_blank


def priority_of(value: Any) -> Any:
    """Return Cohere's priority, where 0 goes first, as one of a job's."""
    return (Priority.LOW if value > 0 else Priority.NORMAL) if type(value) is int else value


class DocumentFields(Entry):
    """The fields of a document, which may have any names."""

    model_config = ConfigDict(extra="allow")


#: A document: a text, or an object whose fields are read as `rank_fields` says.
Document = str | Annotated[dict[str, Any], at_most(100)]

Documents = Annotated[
    list[Document],
    Field(min_length=1, max_length=MOST_LISTED),
    FailFast(),
    in_pieces(DocumentFields),
    at_most(MOST_LISTED),
]


class RerankBody(Foreign):
    """The body of ``POST /v1/rerank`` and ``POST /v2/rerank``."""

    model: str | None = MODEL
    query: Text = Field(description="What is looked for.")
    documents: Documents = Field(description="The texts to rank, or objects that have them as fields.")
    top_n: int | None = Field(None, ge=1, strict=True, description="Documents returned, best first; all if null.")
    return_documents: bool = Field(False, strict=True, description="Whether each result has its document.")
    rank_fields: Annotated[list[str], Field(min_length=1, max_length=100), at_most(100)] = Field(
        ["text"], description="The fields of objects that are read, in this order."
    )
    max_tokens_per_doc: int | None = Field(None, description="Without effect: all of a document is read.")
    max_chunks_per_doc: int | None = Field(None, description="Without effect: all of a document is read.")
    priority: Annotated[Priority, BeforeValidator(priority_of, json_schema_input_type=Priority | int)] = Field(
        Priority.NORMAL, description="That of a job; or a number, of which 0 is `normal` and a greater one `low`."
    )
    _texts: list[str]

    @model_validator(mode="after")
    def _read_documents(self) -> Self:
        self._texts = [
            each if isinstance(each, str) else self._text_of(at, each) for at, each in enumerate(self.documents)
        ]
        not_all_blank(self._texts)
        return self

    def _text_of(self, at: int, document: Mapping[str, Any]) -> str:
        found = [document[name] for name in self.rank_fields if name in document]
        if not found or not all(isinstance(each, str) for each in found):
            wanted = ", ".join(f"`{name[:64]}`" for name in self.rank_fields[:20])
            raise ValueError(f"document {at} has no text as {wanted}: name the fields to read in `rank_fields`")
        return "\n".join(found)

    @property
    def texts(self) -> Sequence[str]:
        """Return what is read of each document."""
        return self._texts


class Reranked(BaseModel):
    """One document's place."""

    index: int = Field(description="Its position in the request.")
    relevance_score: float = Field(description="Between 0 and 1.")
    document: dict[str, Any] | None = Field(
        None, **UNLESS_NULL, description="With `return_documents` only: its fields, or its `text`."
    )


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


def document_of(body: RerankBody | None, place: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the document of a place in a ranking, if it is to be returned."""
    if place.get("text") is None:
        return None
    given = None if body is None else body.documents[place["index"]]
    return given if isinstance(given, dict) else {"text": place["text"]}


class Rerank(Dialect):
    """Rank documents, as Cohere's client and Jina's send and read them."""

    path, body, line, returns = "/v1/rerank", RerankBody, RerankBody, RerankReply
    errors_of = "cohere"
    example: Mapping[str, Any] = MappingProxyType(
        {"query": "How tall is the tower?", "documents": ["It is 330 metres tall.", "It opened in 1889."], "top_n": 1}
    )
    version = "1"

    def read(self, body: RerankBody) -> Asked:
        """Return the query and its documents."""
        options = RankingOptions(top_n=body.top_n, return_texts=body.return_documents, function="sigmoid")
        return Asked([Ranked(query=body.query, texts=tuple(body.texts))], options, body.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:
        """Return the ranking."""
        return RerankReply(
            id=told.id,
            model=told.model,
            results=[
                Reranked(
                    index=each["index"],
                    relevance_score=each["score"],
                    document=document_of(body, each),
                )
                for each in results[0]["ranking"]
            ],
            meta=RerankMeta(api_version=ApiVersion(version=self.version), billed_units=BilledUnits()),
            usage=None if told.tokens is None else RerankUsage(prompt_tokens=told.tokens, total_tokens=told.tokens),
        )


class RerankV2(Rerank):
    """Rank documents, as the second version of Cohere's client sends and reads them."""

    path, version = "/v2/rerank", "2"


class TeiRanking(HfBody):
    """The body of ``POST /rerank``."""

    query: Text = Field(description="What is looked for.")
    texts: RankedTexts = Field(description="The texts to rank; all of each is read, in windows if it is long.")
    raw_scores: bool = Field(False, strict=True, description="Whether scores are logits; else they are sigmoids.")
    return_text: bool = Field(False, strict=True, description="Whether each place has its text.")
    truncate: bool | None = UNCUT
    truncation_direction: str | None = UNCUT


class TeiRanks(TeiDialect):
    """Rank texts, as clients of Text Embeddings Inference send and read them: the best first."""

    path, body, returns = "/rerank", TeiRanking, list[RankedText]
    example: Mapping[str, Any] = MappingProxyType(
        {"query": "How tall is the tower?", "texts": ["It is 330 metres tall.", "It opened in 1889."]}
    )

    def read(self, body: TeiRanking) -> Asked:
        """Return the query and its texts."""
        options = RankingOptions(return_texts=body.return_text, function="none" if body.raw_scores else "sigmoid")
        return Asked([Ranked(query=body.query, texts=body.texts)], options)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the ranking."""
        return results[0]["ranking"]

    def kind(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the only label."""
        return {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
