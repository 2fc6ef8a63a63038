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
