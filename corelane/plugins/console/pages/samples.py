"""Questions with their passages, to try the ask box with: several languages, and scripts where offsets go wrong."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """One question and its passage; ``name`` stands in its address, ``about`` on its button."""

    name: str
    about: str
    question: str
    context: str


SAMPLES = (
    SampleQuestion(
        "english",
        "English",
        "How long did the eruption last?",
        "In 1883 the volcano Krakatoa erupted in the Sunda Strait. The final explosions began on the morning of 27 "
        "August and were heard on the island of Rodrigues, almost 4,800 kilometres away. The eruption lasted about "
        "twenty hours. Waves of up to 40 metres struck the coasts of Java and Sumatra, and fine ash coloured sunsets "
        "around the world for months.",
    ),
    SampleQuestion(
        "no-answer",
        "No answer",
        "Who painted the ceiling?",
        "The lighthouse at the mouth of the bay was built in 1871. Its lamp burned rape oil at first, and petroleum "
        "from 1889 on. The last keeper left in 1974, when the light was made to work on its own.",
    ),
    SampleQuestion(
        "several",
        "Several answers",
        "Which rivers flow through the city?",
        "Passau is called the city of three rivers. The Inn comes from the Alps and carries green water, the Ilz "
        "comes from the Bavarian Forest and looks almost black, and the Danube between them is said to be blue. Below "
        "the old town they run side by side for a while before their colours mix.",
    ),
    SampleQuestion(
        "deutsch",
        "Deutsch",
        "Wann wurde die Brücke eröffnet?",
        "Die Müngstener Brücke überspannt das Tal der Wupper zwischen Remscheid und Solingen. Sie ist 107 Meter hoch "
        "und damit die höchste Eisenbahnbrücke Deutschlands. Am 15. Juli 1897 wurde sie feierlich eröffnet; Kaiser "
        "Wilhelm II. ließ sich vertreten.",
    ),
    SampleQuestion(
        "espanol",
        "Español",
        "¿Dónde nace el río Ebro?",
        "El Ebro es el río más caudaloso de España. Nace en Fontibre, en Cantabria, y desemboca en el mar Mediterráneo "
        "después de 930 kilómetros. En su delta se cultiva arroz desde la Edad Media.",
    ),
    SampleQuestion(
        "chinese",
        "中文",
        "长城有多长？",
        "长城是中国古代的军事防御工程。根据2012年公布的调查结果，历代长城的总长度为21196.18千米。"
        "1987年，长城被列入世界遗产名录。",
    ),
    SampleQuestion(
        "japanese",
        "日本語",
        "富士山の高さは何メートルですか？",
        "富士山は静岡県と山梨県にまたがる活火山で、標高は3776メートルである。日本の最高峰であり、"
        "2013年に世界文化遺産に登録された。",
    ),
    SampleQuestion(
        "arabic",
        "العربية",
        "أين تقع مدينة البتراء؟",
        "البتراء مدينة أثرية منحوتة في الصخر الوردي، وتقع في جنوب الأردن. بناها الأنباط قبل أكثر من ألفي عام، "
        "واختيرت عام 2007 واحدة من عجائب الدنيا السبع الجديدة.",
    ),
    SampleQuestion(
        "emoji",
        "Emoji 🛰️",
        "When does the launch window open?",
        "🚀🛰️ Mission log, day 12 👩🏽‍🚀: the countdown was held at T-9 minutes because of a sensor 🌡️ in the second "
        "stage. The launch window opens at 04:17 UTC 🌍 and closes 38 minutes later. If it is missed, the crew "
        "👨‍👩‍👧‍👦 waits for two days. 🤞",
    ),
)


def sample_named(name: str) -> SampleQuestion | None:
    """Return the sample of a name, None if there is none."""
    return next((sample for sample in SAMPLES if sample.name == name), None)
