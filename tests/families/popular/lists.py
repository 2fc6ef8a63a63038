"""The list of sixty, and ten more by other people and of other kinds, chosen before any of them was tried."""

from tests.families.popular.heads import CASED, NO_LIMIT, UNCASED, WITH_HEAD
from tests.families.popular.rows import (
    ABOUT_3,
    ENTITIES,
    JUDGING,
    LABELS,
    QUESTIONS,
    RANKING,
    VECTORS,
    Popular,
    Sentences,
    entities,
    labels,
)
from tests.families.popular.vectors import INSTRUCT, WITH_VECTORS, about

SIGMOID = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "4.1.0.dev0"}

POPULAR = (*WITH_HEAD, *WITH_VECTORS)

INDEPENDENT = (
    Popular("twmkn9/albert-base-v2-squad2", QUESTIONS, "albert", {}, "pieces", told=None, weights="bin"),
    Popular(
        "bhadresh-savani/electra-base-emotion",
        *(LABELS, "electra", labels("sadness", "joy", "love", "anger", "fear", "surprise")),
        told=UNCASED,
    ),
    Popular(
        "microsoft/deberta-xlarge-mnli",
        *(JUDGING, "deberta", labels("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), "merges"),
        told={"do_lower_case": False, "vocab_type": "gpt2"},
        weights="bin",
        option=True,
    ),
    Popular(
        "Babelscape/wikineural-multilingual-ner",
        *(ENTITIES, "bert", entities("PER", "ORG", "LOC", "MISC")),
        told=CASED,
    ),
    Popular(
        "avsolatorio/GIST-small-Embedding-v0",
        *(VECTORS, "bert"),
        sentences=Sentences("cls_token", about=ABOUT_3),
        told=UNCASED,
    ),
    Popular("WhereIsAI/UAE-Large-V1", VECTORS, "bert", sentences=Sentences("cls_token", normalize=False), told=UNCASED),
    Popular(
        "dangvantuan/sentence-camembert-base",
        *(VECTORS, "camembert", {}, "pieces"),
        sentences=Sentences(longest=128, normalize=False),
        weights="bin",
    ),
    Popular(
        "ibm-granite/granite-embedding-107m-multilingual",
        *(VECTORS, "xlm-roberta"),
        sentences=Sentences("cls_token", about=ABOUT_3),
        dtype="bfloat16",
    ),
    Popular(
        "intfloat/e5-mistral-7b-instruct",
        *(VECTORS, "mistral"),
        sentences=Sentences("lasttoken", longest=2048, about=about({"web_search_query": f"{INSTRUCT} "})),
        tokenizer="LlamaTokenizer",
        told={**NO_LIMIT, "legacy": True, "pad_token": "</s>"},
        adds=("<s>", "</s>"),
        dtype="float16",
        weights="shards",
    ),
    Popular(
        "cross-encoder/qnli-electra-base",
        *(RANKING, "electra", labels("LABEL_0", sentence_transformers=SIGMOID)),
        told=UNCASED,
    ),
)
