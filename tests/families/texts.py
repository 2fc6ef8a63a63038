"""Texts that tokenizers are trained on and asked about: several scripts, flags, skin tones, tag sequences."""

from compile.tasks.question_answering.samples import TEXTS

MULTI_SCRIPT = (
    "Zürich’s naïve café served crème brûlée to 12 people on 3 May 1889. It closed at nine.",
    "東京タワーは1958年に完成した。高さは333メートルです。",
    "برج إيفل في باريس بُني عام ١٨٨٩ وهو مصنوع من الحديد.",
    "एफिल टॉवर पेरिस में है और 1889 में बना था।",
    "Эйфелева башня построена в 1889 году в Париже.",
    "The flags 🇫🇷🇩🇪🇯🇵 were waved by 👩🏽‍🚀, 👍🏿 and 👨‍👩‍👧‍👦 near 🏴󠁧󠁢󠁳󠁣󠁴󠁿 in Z̈ürich on 1 ½ days.",
    "หอไอเฟลสร้างในปี 1889",
    "에펠탑은 1889년에 완공되었다.",
)

CORPUS = [text for pair in TEXTS for text in pair] + list(MULTI_SCRIPT)

#: What callers send: nearly nothing, one letter, every script, tokens typed, control characters, marks, white space.
HOSTILE = (
    *(".", "a", "Ω", "京", "👍🏿", "\u0301", "\u200b", "\ufeffa", "-", "''", "1889"),
    *("The room was clean and the staff were kind.", "THE TOWER", "the tower", " the tower ", "the  tower", "tower,"),
    *(
        "a\tb",
        "one\ntwo\r\nthree",
        "\n\nthe tower\n",
        "a\x07b\x1b[31m",
        "a\x00b",
        "a\u2028b\u00a0c",
        "a\u00adb",
        "\x7f",
    ),
    *("it was </s> here", "[SEP] it was [CLS]", "<s>it</s>", "<pad> and [PAD]", "a<mask>b [MASK]", "<|endoftext|>x"),
    *("[UNK] <unk>", "<|im_end|>", "<extra_id_0>", "## ##ing", "▁ ▁a", "Ġthe Ċ"),
    *(
        "Zu\u0308rich cafe\u0301",
        "ﬁne ½ ㎏ Ａ",
        "İstanbul ß ſ",
        "e\u0301\u0327\u0323" * 4,
        "\U0001d573\U0001f1eb\U000e0067",
    ),
    *("x" * 60, "co-founder's e-mail: a@b.example", "https://a.example/b?c=d&e=%20#f", '{"a": [1, 2.5e-3]}'),
    *(text[:70] for text in MULTI_SCRIPT),
)
