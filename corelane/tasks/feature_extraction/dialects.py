"""The routes that give vectors and cosines, as OpenAI, Hugging Face and Text Embeddings Inference have them."""

from array import array
from collections.abc import Mapping, Sequence
from operator import mul
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field

from corelane.domain.jobs import Priority, Text
from corelane.domain.wire import MOST_LISTED, at_most, in_pieces
from corelane.tasks.dialects import (
    MODEL,
    Asked,
    Cuts,
    Dialect,
    Foreign,
    HfBody,
    HfDialect,
    PipelineParameters,
    TeiDialect,
    Texts,
    Told,
    listed,
)
from corelane.tasks.feature_extraction.wire import EmbeddingOptions, Long, numbers_of
from corelane.tasks.text import TextItem

#: Why token ids are refused: what an id means depends on the vocabulary.
NO_IDS = (
    "token ids are those of another model's vocabulary: send texts; LangChain's `OpenAIEmbeddings` does with "
    "`check_embedding_ctx_length=False`"
)


def refuse_ids(value: Any) -> Any:
    """Refuse token ids, of one input or of several."""
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, int) or (isinstance(first, list) and first and isinstance(first[0], int)):
        raise ValueError(NO_IDS)
    return value


class VectorParameters(Foreign):
    """What all routes for vectors take."""

    model: str | None = MODEL
    dimensions: int | None = Field(
        None, ge=1, strict=True, description="How many of the first numbers to return; all if left out."
    )
    prompt_name: str | None = Field(None, min_length=1, max_length=100, description="One of the model's prompts.")
    long: Long = Field("error", description="As in a job's options.")
    priority: Priority = Field(Priority.NORMAL, description="Jobs of higher priority go first.")

    def job_options(self, **more: Any) -> EmbeddingOptions:
        """Return these and more as a job's options."""
        given = {"dimensions": self.dimensions, "prompt_name": self.prompt_name, "long": self.long}
        return EmbeddingOptions(**given | more)


class EmbeddingsBody(VectorParameters):
    """The body of ``POST /v1/embeddings``."""

    input: Annotated[Texts, BeforeValidator(refuse_ids)] = Field(description="One text, or a list of them.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="`base64` gives the numbers as 32-bit floats, little-endian."
    )
    user: str | None = Field(None, description="Taken, and not used.")


class EmbeddingObject(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """The tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(BaseModel):
    """Vectors, in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str = Field(description="The model version that made them.")
    usage: EmbeddingsUsage


class Embeddings(Dialect):
    """Turn texts into vectors, as OpenAI's client sends and reads them."""

    path, body, line, returns = "/v1/embeddings", EmbeddingsBody, EmbeddingsBody, EmbeddingsReply
    errors_of = "openai"
    example: Mapping[str, Any] = MappingProxyType({"input": ["How tall is the tower?", "When did it open?"]})

    def read(self, body: EmbeddingsBody) -> Asked:
        """Return the texts."""
        options = body.job_options(encoding=body.encoding_format)
        return Asked([TextItem(text=text) for text in listed(body.input)], options, body.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the vectors; not as models, which would check each number."""
        tokens = sum(result["tokens"] for result in results)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": result["embedding"]}
                for index, result in enumerate(results)
            ],
            "model": told.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }


class HfFeatures(Cuts, VectorParameters, HfBody):
    """The body of ``POST /v1/hf/feature-extraction``, whose parameters stand at its root."""

    inputs: Annotated[Texts, BeforeValidator(refuse_ids)] = Field(description="One text, or a list of them.")
    normalize: bool | None = Field(None, strict=True, description="As the model has it if null; true for `/embed`.")
    encoding_format: Literal["float"] = Field("float", description="`POST /v1/embeddings` gives `base64` too.")


class HfVectors(HfDialect):
    """Turn texts into vectors, as `InferenceClient.feature_extraction` sends and reads them: one list for each text."""

    path, body = "/v1/hf/feature-extraction", HfFeatures
    returns: Any = list[list[float]]
    example: Mapping[str, Any] = MappingProxyType({"inputs": "How tall is the tower?", "normalize": True})
    #: Whether vectors have the length 1 if a request does not say.
    normalize: bool | None = None
    #: Other options of the job.
    more: Mapping[str, Any] = MappingProxyType({})

    def read(self, body: HfFeatures) -> Asked:
        """Return the texts."""
        normalize = self.normalize if body.normalize is None else body.normalize
        options = body.job_options(normalize=normalize, long=body.long_option(), **self.more)
        return Asked([TextItem(text=text) for text in listed(body.inputs)], options, body.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the vectors."""
        return [result["embedding"] for result in results]


class TeiVectors(TeiDialect, HfVectors):
    """Turn texts into vectors, as clients of Text Embeddings Inference send and read them: one list for each text."""

    path = "/embed"
    normalize: bool | None = True
    example: Mapping[str, Any] = MappingProxyType({"inputs": "How tall is the tower?", "truncate": True})

    def kind(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return how vectors of tokens become one."""
        return {"embedding": {"pooling": "+".join(facts.get("pooling", ()))}}


#: Most texts of a request for vectors of tokens: one text may have megabytes of them.
MOST_ALL = 32


class TeiFewTexts(HfFeatures):
    """The body of ``POST /embed_all``."""

    inputs: Annotated[
        Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_ALL)], BeforeValidator(refuse_ids)
    ]


class TeiTokenVectors(TeiVectors):
    """Turn texts into the vectors of all of their tokens, as Text Embeddings Inference does."""

    path, body, returns = "/embed_all", TeiFewTexts, list[list[list[float]]]
    normalize = None
    more: Mapping[str, Any] = MappingProxyType({"output": "tokens", "encoding": "base64"})

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return a list of vectors for each text."""
        return [self._vectors(numbers_of(result["embedding"] or ""), result["tokens"]) for result in results]

    @staticmethod
    def _vectors(numbers: "array[float]", tokens: int) -> list[list[float]]:
        size = len(numbers) // max(1, tokens)
        return [numbers[at * size : (at + 1) * size].tolist() for at in range(tokens)]


class TeiTexts(HfBody):
    """The body of ``POST /tokenize``."""

    inputs: Texts = Field(description="One text, or a list of them.")
    add_special_tokens: bool = Field(True, strict=True, description="Whether special tokens are listed.")
    prompt_name: str | None = Field(None, min_length=1, max_length=100, description="One of the model's prompts.")


class TeiTokens(TeiDialect):
    """Cut texts into tokens, as Text Embeddings Inference does."""

    path, body, returns = "/tokenize", TeiTexts, list[list[dict[str, Any]]]
    example: Mapping[str, Any] = MappingProxyType({"inputs": "How tall is the tower?"})

    def read(self, body: TeiTexts) -> Asked:
        """Return the texts."""
        options = EmbeddingOptions(output="pieces", prompt_name=body.prompt_name)
        return Asked([TextItem(text=text) for text in listed(body.inputs)], options)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return a list of tokens for each text."""
        found = (result.get("pieces") or () for result in results)
        return [[each for each in those if body.add_special_tokens or not each["special"]] for those in found]


Ids = Annotated[list[Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1, max_length=MOST_LISTED)]


class TeiIds(HfBody):
    """The body of ``POST /decode``."""

    ids: Ids | Annotated[list[Ids], Field(min_length=1, max_length=MOST_LISTED)] = Field(
        description="The ids of one text's tokens, or a list of such lists."
    )
    skip_special_tokens: bool = Field(True, strict=True, description="Whether special tokens are left out.")


class TeiDecoded(TeiDialect):
    """Turn ids of tokens into texts, as Text Embeddings Inference does."""

    path, body, returns = "/decode", TeiIds, list[str]
    example: Mapping[str, Any] = MappingProxyType({"ids": [101, 7592, 102]})

    def read(self, body: TeiIds) -> Asked:
        """Return the ids of each text as an item."""
        lists = body.ids if isinstance(body.ids[0], list) else [body.ids]
        return Asked([TextItem(text=" ".join(map(str, ids))) for ids in lists], EmbeddingOptions(output="decoded"))

    def reply(self, body: TeiIds, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the texts."""
        return [
            each["text"]
            for result in results
            for each in result["pieces"]
            if each["special"] != body.skip_special_tokens
        ]


class SimilarityParameters(Cuts, PipelineParameters):
    """The parameters of sentence similarity."""

    prompt_name: str | None = Field(None, min_length=1, max_length=100, description="One of the model's prompts.")


class SimilarityInputs(Foreign):
    """A sentence, and those that it is compared with."""

    source_sentence: Text
    sentences: Annotated[
        list[Text], Field(min_length=1, max_length=MOST_LISTED), in_pieces(Foreign), at_most(MOST_LISTED)
    ]


class HfSimilarity(HfBody):
    """The body of ``POST /v1/hf/sentence-similarity``."""

    #: The name of its inputs, as errors name them.
    hints: ClassVar[Mapping[str, str]] = MappingProxyType(
        dict.fromkeys(("source_sentence", "sentences"), "it belongs into `inputs`")
    )
    inputs: SimilarityInputs
    parameters: SimilarityParameters = Field(default_factory=SimilarityParameters)


class HfSimilarities(HfDialect):
    """Compare a sentence with others, as `InferenceClient.sentence_similarity` sends and reads them: their cosines."""

    path, body, returns = "/v1/hf/sentence-similarity", HfSimilarity, list[float]
    example: Mapping[str, Any] = MappingProxyType(
        {"inputs": {"source_sentence": "The room is clean.", "sentences": ["The room is tidy.", "It rains."]}}
    )

    def read(self, body: HfSimilarity) -> Asked:
        """Return all sentences; vectors of length 1 make a cosine a sum of products."""
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        given = body.parameters
        options = EmbeddingOptions(normalize=True, prompt_name=given.prompt_name, long=given.long_option())
        return Asked([TextItem(text=text) for text in texts], options, given.priority)

    def reply(self, body: Any, results: Sequence[Mapping[str, Any]], told: Told) -> Any:  # noqa: ARG002
        """Return the cosines."""
        source, *others = (result["embedding"] for result in results)
        return [sum(map(mul, source, other)) for other in others]


class TeiSimilarities(TeiDialect, HfSimilarities):
    """Compare a sentence with others, as clients of Text Embeddings Inference send and read them: their cosines."""

    path = "/similarity"
