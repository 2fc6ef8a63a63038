"""Token classification gives what Transformers' pipeline gives, and reads long texts whole."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from corelane.engine.task import Query, Window
from corelane.engine.text.engine import ReadRow
from corelane.tasks.token_classification.engine import most_inside
from corelane.tasks.token_classification.wire import EntityOptions
from tests.families.texts import MULTI_SCRIPT
from tests.families.tokenizers import make_tokenizer
from tests.tasks.tiny import answer, compiled, save_tiny

LOADER = "AutoModelForTokenClassification"

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}

#: Labels in the schemes that people train with, and labels that only look like them.
SCHEMES = (
    tuple(LABELS.values()),
    ("O", "I-PER", "I-LOC", "I-ORG"),
    ("O", "B-PER", "I-PER", "E-PER", "S-PER"),
    ("O", "B-PER", "I-PER", "L-PER", "U-PER", "B-LOC"),
    ("NOUN", "VERB", "PUNCT", "ADP-X"),
    ("o", "b-per", "i-per", "B-", "PER-B", "B-O", "LABEL_0", "B_LOC", "I-LOC-X"),
)

#: Families whose tokenizers differ in what a word is: pieces with a mark, bytes, and SentencePiece in many forms.
KINDS = (
    *("bert", "roberta", "deberta-v2", "distilbert", "electra", "albert", "xlm-roberta", "camembert", "modernbert"),
    *("bloom", "gpt2", "mpnet", "xlnet", "llama"),
)

#: Texts with what tokenizers trip over: unknown letters, white space of all kinds, special tokens as one types them.
TEXTS = (
    "Ada",
    "Ada Lovelace was born in London.",
    "The co-founder's e-mail: a@b.example 👩‍🚀 wrote to Zoë.",
    *(text[:70] for text in MULTI_SCRIPT),
    "ሰላም Ada ሰላም London",
    "Adaሰላም wasሰ, ሰin London.",
    "𓀀𓀁 Ada 𓀂was",
    "Ada 🜲 🀄🀅 London🜲",
    "🜲",
    "ꙮ, ꙮ. (ꙮ)ꙮ!",
    "tower ꙮ ꙮ tower",
    "  Ada  Lovelace   was  ",
    " ",
    "\tAda\tLovelace\twas\n",
    "Ada\nLovelace\r\nwas\n\nborn",
    "Ada\u00a0Lovelace\u00a0\u00a0was",
    "Ada\u2003was\u3000born\u2028in",
    "Ada\u200bLovelace\u200d\ufeffwas",
    "\u200b",
    "\x00Ada\x07 was\x1f",
    "東京は大きい都市です。大阪も",
    "北京市朝阳区建国路88号",
    "مرحبا بالعالم، آدا في لندن",
    "e\u0301lan Z\u0308u\u0308rich n\u0303o\u0301",
    "\u0301\u0308 \u0301Ada",
    "ﬁne Ⅷ ½ ㎒ İstanbul Straße",
    "wait...what?!--(no)[yes]{ok}<a/>&amp;",
    "\"Ada's\" o'clock rock'n'roll",
    "A.B.C. U.S.A., 3.5% $1,000.00 1/2",
    "[UNK] Ada [UNK]was London[UNK]",
    "<unk> Ada <unk>was London<unk>",
    "[CLS] Ada [SEP] was [MASK] [PAD]",
    "<s> Ada </s> was <mask> <pad> <|endoftext|>",
    "##ing Ada ##s ▁was ▁",
    "Ġwas ĠAda",
    "supercalifragilisticexpialidocious" * 3,
    "wordswithoutanyspaces,andpunctuation;runtogether:all/of\\it",
)

STRATEGIES = ("none", "simple", "first", "average", "max")


def save_labelled(kind: str, folder: Path) -> Path:
    """Save a tiny model whose labels are of one of the schemes; DistilBERT's tokenizer is cased."""
    labels = dict(enumerate(SCHEMES[KINDS.index(kind) % len(SCHEMES)]))
    save_tiny(kind, LOADER, folder, num_labels=len(labels), id2label=labels)
    if kind == "distilbert":
        make_tokenizer("BertTokenizer", do_lower_case=False).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_entities_are_those_of_the_pipeline(kind: str, tmp_path: Path) -> None:
    import transformers

    folder = save_labelled(kind, tmp_path / kind)
    artifact = compiled(folder, tmp_path / "data")
    asked = [(text, strategy, ignored) for text in TEXTS for strategy in STRATEGIES for ignored in (("O",), ())]
    options = [EntityOptions(aggregation=how, ignore_labels=ignored) for _, how, ignored in asked]
    results = answer(artifact, [Query(None, text, each) for (text, *_), each in zip(asked, options, strict=True)])
    pipeline = transformers.pipeline("token-classification", str(folder))
    seen = 0
    for (text, strategy, ignored), result in zip(asked, results, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = pipeline(text, aggregation_strategy=strategy, ignore_labels=list(ignored))
        assert [(each["label"], each["start"], each["end"]) for each in result["entities"]] == [
            (each.get("entity_group", each.get("entity")), each["start"], each["end"]) for each in expected
        ], (text, strategy)
        for ours, theirs in zip(result["entities"], expected, strict=True):
            assert ours["score"] == pytest.approx(float(theirs["score"]), abs=2e-4)
            assert ours["text"] == text[ours["start"] : ours["end"]]
        seen += len(expected)
    assert seen > len(asked)


def test_long_text_is_read_whole_and_each_token_where_it_stands_most_inside(tmp_path: Path) -> None:
    folder = save_tiny("bert", LOADER, tmp_path / "bert", num_labels=len(LABELS), id2label=LABELS)
    text = " ".join(f"Ada Lovelace met Mr {number} in London 👋🏽." for number in range(60))
    options = EntityOptions(aggregation="none", ignore_labels=(), offsets=("utf16", "bytes"))
    [result] = answer(compiled(folder, tmp_path / "data"), [Query(None, text, options)])
    assert result["windows"] > 5
    entities = result["entities"]
    assert [each["start"] for each in entities] == sorted(each["start"] for each in entities)
    assert not set("".join(text.split())) - set("".join(each["text"] for each in entities))
    for each in entities:
        start, end = each["offsets"]["bytes"]
        assert text.encode()[start:end].decode() == each["text"] == text[each["start"] : each["end"]]
        start, end = each["offsets"]["utf16"]
        assert text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == each["text"]


def test_token_is_judged_in_the_window_where_it_is_deepest() -> None:
    rows = [
        ReadRow(Window(start, end, end - start), (np.full((end - start, 1), mark, dtype=np.float32),))
        for mark, (start, end) in enumerate([(0, 10), (6, 16), (12, 22)])
    ]
    assert most_inside(rows[::-1], 22)[:, 0].tolist() == [0] * 8 + [1] * 6 + [2] * 8
