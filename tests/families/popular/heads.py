"""The models with a head: of questions, labels, judgements, entities and ranks."""

from tests.families.popular.rows import (
    ENTITIES,
    JUDGING,
    LABELS,
    QUESTIONS,
    RANKING,
    Popular,
    Sentences,
    entities,
    labels,
    own_code,
)

UNCASED = {"do_lower_case": True, "model_max_length": 512}
CASED = {"do_lower_case": False, "model_max_length": 512}
NO_LIMIT = {"model_max_length": 1000000000000000019884624838656}

NLI = labels("contradiction", "neutral", "entailment")
NLI_TURNED = labels("entailment", "neutral", "contradiction")
IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0.dev0"}

#: The label of a network with one.
RANK = labels("LABEL_0")

#: ModernBERT's and Llama's tokenizers are files of the tokenizers library, without a class of their own.
NO_CLASS = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}

WITH_HEAD = (
    Popular("deepset/roberta-base-squad2", QUESTIONS, "roberta", {"language": "english"}, "merges", quick=True),
    Popular("distilbert/distilbert-base-cased-distilled-squad", QUESTIONS, "distilbert", told=CASED),
    Popular("deepset/minilm-uncased-squad2", QUESTIONS, "bert", {"language": "english"}, "words", weights="bin"),
    Popular("deepset/deberta-v3-base-squad2", QUESTIONS, "deberta-v2", {}, "pieces", dtype="float16"),
    Popular("timpal0l/mdeberta-v3-base-squad2", QUESTIONS, "deberta-v2", told={"vocab_type": "spm"}),
    Popular("deepset/xlm-roberta-base-squad2", QUESTIONS, "xlm-roberta", {}, "pieces"),
    Popular(
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
        *(LABELS, "distilbert", labels("NEGATIVE", "POSITIVE", finetuning_task="sst-2"), "words"),
        told=UNCASED,
        quick=True,
    ),
    Popular(
        "cardiffnlp/twitter-roberta-base-sentiment-latest",
        *(LABELS, "roberta", labels("negative", "neutral", "positive"), "merges"),
        told=None,
        weights="bin",
    ),
    Popular(
        "nlptown/bert-base-multilingual-uncased-sentiment",
        *(LABELS, "bert"),
        labels(
            "1 star", "2 stars", "3 stars", "4 stars", "5 stars", _num_labels=5, output_past=True, directionality="bidi"
        ),
        "words",
        told=UNCASED,
    ),
    Popular(
        "ProsusAI/finbert",
        *(LABELS, "bert", labels("positive", "negative", "neutral"), "words"),
        told=UNCASED,
        weights="bin",
    ),
    Popular(
        "SamLowe/roberta-base-go_emotions",
        *(LABELS, "roberta"),
        labels(*(f"emotion {at}" for at in range(28)), problem_type="multi_label_classification"),
        quick=True,
    ),
    Popular(
        "madhurjindal/autonlp-Gibberish-Detector-492513457",
        *(LABELS, "distilbert"),
        labels("clean", "mild gibberish", "noise", "word salad", _num_labels=4, max_length=64, padding="max_length"),
        told={**UNCASED, "tokenizer_class": "DistilBertTokenizer"},
    ),
    Popular(
        "protectai/deberta-v3-base-prompt-injection-v2",
        *(LABELS, "deberta-v2", labels("SAFE", "INJECTION", problem_type="single_label_classification")),
        told={**NO_LIMIT, "split_by_punct": False, "vocab_type": "spm"},
    ),
    Popular(
        "HuggingFaceFW/fineweb-edu-classifier",
        *(LABELS, "bert", labels("LABEL_0", problem_type="regression", classifier_dropout=0.0)),
        told=UNCASED,
    ),
    Popular(
        "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2",
        *(LABELS, "llama", RANK),
        tokenizer="GPT2Tokenizer",
        told={**NO_CLASS, "model_max_length": 131072, "pad_token": "[PAD]"},
        adds=("<|endoftext|>", ""),
        dtype="bfloat16",
        weights="shards",
        option=True,
    ),
    Popular("facebook/bart-large-mnli", JUDGING, "bart", {**NLI, "_num_labels": 3}, "merges", option=True, quick=True),
    Popular(
        "MoritzLaurer/deberta-v3-base-zeroshot-v2.0",
        *(JUDGING, "deberta-v2", labels("entailment", "not_entailment")),
        dtype="float16",
        option=True,
    ),
    Popular(
        "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli",
        *(JUDGING, "deberta-v2", NLI_TURNED, "pieces"),
        option=True,
    ),
    Popular(
        "MoritzLaurer/mDeBERTa-v3-base-xnli-multilingual-nli-2mil7", JUDGING, "deberta-v2", NLI_TURNED, option=True
    ),
    Popular("joeddav/xlm-roberta-large-xnli", JUDGING, "xlm-roberta", NLI, "pieces", told=None, option=True),
    Popular("valhalla/distilbart-mnli-12-3", JUDGING, "bart", NLI, "merges", told=None, weights="bin", option=True),
    Popular(
        "cross-encoder/nli-deberta-v3-base",
        *(JUDGING, "deberta-v2", labels("contradiction", "entailment", "neutral", sentence_transformers=IDENTITY)),
        option=True,
    ),
    Popular(
        "dslim/bert-base-NER",
        *(ENTITIES, "bert", entities("MISC", "PER", "ORG", "LOC", _num_labels=9, output_past=True), "words"),
        told=CASED,
        quick=True,
    ),
    Popular(
        "dbmdz/bert-large-cased-finetuned-conll03-english",
        *(ENTITIES, "bert", entities("MISC", "PER", "ORG", "LOC", _num_labels=9)),
        told={"do_lower_case": False},
    ),
    Popular(
        "Davlan/bert-base-multilingual-cased-ner-hrl",
        *(ENTITIES, "bert", entities("DATE", "PER", "ORG", "LOC")),
        told=CASED,
        weights="bin",
    ),
    Popular(
        "FacebookAI/xlm-roberta-large-finetuned-conll03-english",
        *(ENTITIES, "xlm-roberta", labels("B-LOC", "B-MISC", "B-ORG", "I-LOC", "I-MISC", "I-ORG", "I-PER", "O")),
    ),
    Popular(
        "Jean-Baptiste/camembert-ner",
        *(ENTITIES, "camembert", entities("LOC", "PER", "MISC", "ORG", scheme="I"), "pieces"),
    ),
    Popular(
        "Jean-Baptiste/roberta-large-ner-english",
        *(ENTITIES, "roberta", labels("O", "MISC", "PER", "ORG", "LOC"), "merges"),
        told={"add_prefix_space": True, "model_max_length": 512},
    ),
    Popular("obi/deid_roberta_i2b2", ENTITIES, "roberta", entities("AGE", "DATE", "STAFF", scheme="BILU"), "merges"),
    Popular(
        "iiiorg/piiranha-v1-detect-personal-information",
        *(ENTITIES, "deberta-v2", entities("EMAIL", "CITY", "SURNAME", scheme="I")),
    ),
    Popular(
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        *(RANKING, "bert", {**RANK, "sentence_transformers": IDENTITY}),
        told=UNCASED,
        quick=True,
    ),
    Popular("BAAI/bge-reranker-base", RANKING, "xlm-roberta", RANK),
    Popular("BAAI/bge-reranker-v2-m3", RANKING, "xlm-roberta", {**RANK, "max_position_embeddings": 2050}),
    Popular("mixedbread-ai/mxbai-rerank-base-v1", RANKING, "deberta-v2", {**RANK, "legacy": True}, dtype="float16"),
    Popular(
        "Alibaba-NLP/gte-reranker-modernbert-base",
        *(RANKING, "modernbert", {**RANK, "sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}}),
        tokenizer="DebertaTokenizer",
        told={**NO_CLASS, "model_max_length": 8192},
        dtype="float16",
    ),
    Popular("tomaarsen/Qwen3-Reranker-0.6B-seq-cls", RANKING, "qwen3", RANK, dtype="bfloat16"),
    Popular(
        "Qwen/Qwen3-Reranker-0.6B",
        *(RANKING, "qwen3"),
        head="Qwen3ForCausalLM",
        sentences=Sentences(modules=("Transformer", "LogitScore")),
    ),
    Popular(
        "jinaai/jina-reranker-v2-base-multilingual",
        *(RANKING, "xlm-roberta"),
        {**RANK, **own_code(AutoModelForSequenceClassification="modeling.OwnForSequenceClassification")},
        refused="which Corelane never runs",
    ),
)
