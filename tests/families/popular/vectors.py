"""The models that embed texts."""

from typing import Any

from tests.families.popular.heads import CASED, NO_CLASS, UNCASED
from tests.families.popular.rows import ABOUT_3, VECTORS, Popular, Sentences, own_code

INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
ASKS = {"query": "Represent this sentence for searching relevant passages: "}
GEMMA = {
    "query": "task: search result | query: ",
    "document": "title: none | text: ",
    "BitextMining": "task: search result | query: ",
    "STS": "task: sentence similarity | query: ",
}
XLM: Any = {"tokenizer": "XLMRobertaTokenizer"}
MODERN: Any = {"tokenizer": "DebertaTokenizer", "told": {**NO_CLASS, "model_max_length": 8192}}


def about(prompts: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return what versions 3 and later say beside a model."""
    return {**ABOUT_3, "prompts": prompts, **more}


WITH_VECTORS = (
    Popular(
        "sentence-transformers/all-MiniLM-L6-v2",
        *(VECTORS, "bert"),
        sentences=Sentences(longest=256),
        told=UNCASED,
        quick=True,
    ),
    Popular("sentence-transformers/all-mpnet-base-v2", VECTORS, "mpnet", sentences=Sentences(longest=384)),
    Popular(
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        *(VECTORS, "bert"),
        sentences=Sentences(longest=128, normalize=False),
        **XLM,
    ),
    Popular("BAAI/bge-small-en-v1.5", VECTORS, "bert", sentences=Sentences("cls_token", lower=True)),
    Popular(
        "BAAI/bge-base-en-v1.5",
        *(VECTORS, "bert", {"id2label": {"0": "LABEL_0"}}, "words"),
        sentences=Sentences("cls_token", lower=True),
        weights="bin",
    ),
    Popular(
        "BAAI/bge-m3",
        *(VECTORS, "xlm-roberta", {"max_position_embeddings": 2050}),
        sentences=Sentences("cls_token", longest=2048),
        weights="bin",
    ),
    Popular("intfloat/e5-base-v2", VECTORS, "bert", sentences=Sentences(about=None), told=UNCASED),
    Popular(
        "intfloat/multilingual-e5-small",
        *(VECTORS, "bert", {"tokenizer_class": "XLMRobertaTokenizer"}),
        sentences=Sentences(about=None),
        **XLM,
        quick=True,
    ),
    Popular(
        "Alibaba-NLP/gte-modernbert-base",
        *(VECTORS, "modernbert"),
        sentences=Sentences("cls_token", longest=2048, about=ABOUT_3, normalize=False),
        dtype="float16",
        **MODERN,
    ),
    Popular(
        "nomic-ai/modernbert-embed-base",
        *(VECTORS, "modernbert"),
        sentences=Sentences(longest=2048, about=ABOUT_3),
        **MODERN,
    ),
    Popular(
        "mixedbread-ai/mxbai-embed-large-v1",
        *(VECTORS, "bert"),
        sentences=Sentences("cls_token", about=about(ASKS), normalize=False),
        dtype="float16",
    ),
    Popular(
        "sentence-transformers/LaBSE",
        *(VECTORS, "bert"),
        sentences=Sentences("cls_token", longest=256, dense=(True,)),
        told={"do_lower_case": False},
    ),
    Popular(
        "sentence-transformers/distiluse-base-multilingual-cased-v2",
        *(VECTORS, "distilbert"),
        sentences=Sentences(longest=128, dense=(True,), normalize=False),
        told=CASED,
        quick=True,
    ),
    Popular(
        "sentence-transformers/sentence-t5-base",
        *(VECTORS, "t5"),
        head="T5EncoderModel",
        sentences=Sentences(longest=256, dense=(False,)),
        dtype="float16",
    ),
    Popular(
        "google/embeddinggemma-300m",
        *(VECTORS, "gemma3_text"),
        sentences=Sentences(longest=2048, dense=(False, False), about=about(GEMMA, model_type="SentenceTransformer")),
        tokenizer="GemmaTokenizer",
        adds=("<bos>", "<eos>"),
        dtype="bfloat16",
    ),
    Popular(
        "Qwen/Qwen3-Embedding-0.6B",
        *(VECTORS, "qwen3", {"architectures": ["Qwen3ForCausalLM"]}),
        sentences=Sentences("lasttoken", longest=None, about=about({"query": INSTRUCT, "document": ""})),
        adds=("", "<|endoftext|>"),
        dtype="bfloat16",
        told={"model_max_length": 131072, "add_bos_token": False},
    ),
    Popular(
        "sentence-transformers/static-retrieval-mrl-en-v1",
        *(VECTORS, "static"),
        sentences=Sentences(about=ABOUT_3, modules=("StaticEmbedding",)),
    ),
    Popular("facebook/contriever", VECTORS, "bert", {}, "words", told=UNCASED, weights="bin"),
    Popular(
        "naver/splade-v3",
        *(VECTORS, "bert"),
        head="BertForMaskedLM",
        sentences=Sentences(about=ABOUT_3, modules=("MLMTransformer", "SpladePooling")),
        refused="SpladePooling: Corelane does",
    ),
    Popular(
        "jinaai/jina-embeddings-v3",
        *(VECTORS, "xlm-roberta", own_code(AutoModel="there/code--modeling.XLMRobertaLoRA")),
        sentences=Sentences(longest=None, about=ABOUT_3, modules=("custom_st.Transformer", "Pooling", "Normalize")),
        refused="which Corelane never runs",
    ),
    Popular(
        "Alibaba-NLP/gte-multilingual-base",
        *(VECTORS, "xlm-roberta", {"model_type": "new", **own_code(AutoModel="there/code--modeling.NewModel")}),
        sentences=Sentences("cls_token", longest=8192, about=None),
        refused="which Corelane never runs",
    ),
    Popular(
        "nomic-ai/nomic-embed-text-v1.5",
        *(VECTORS, "nomic_bert", own_code(AutoModel="there/code--modeling.NomicBertModel")),
        sentences=Sentences(longest=2048, normalize=False),
        quick=True,
    ),
)
