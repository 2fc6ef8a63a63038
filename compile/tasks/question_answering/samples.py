"""Sample questions, written for Corelane, on which a compiled model is compared with the eager one.

Each has one answer. Passages differ in length. One passage joins all others, so even the longest buckets get full rows.
"""

from corelane.engine.task import Query
from corelane.tasks.question_answering.engine.task import QuestionQuery
from corelane.tasks.question_answering.options import AnswerOptions

#: Overlap of the windows, in tokens: longer than every answer below, and short enough for short buckets.
DOC_STRIDE = 16

LIGHTHOUSE = (
    "The lighthouse on Gull Rock was built in 1874 by the engineer Mary Ashdown. The tower is 31 metres tall and "
    "stands on a reef two miles west of the harbour. Its lamp burned whale oil until 1902, when the keepers changed "
    "to paraffin. The last keeper, Owen Pryce, left in 1988, and since then the light has been run from the "
    "mainland."
)

BAKERY = (
    "Every morning at four o'clock Leila Haddad lights the stone oven of her bakery in Lyon. She learned the trade "
    "from her grandfather, who came from Aleppo in 1961. The shop sells eleven kinds of bread, but most people "
    "queue for the rye loaf with walnuts, which costs six euros and is gone before nine."
)

RIVER = (
    "The Tarn rises on the slopes of Mont Lozère and runs west for 380 kilometres before it joins the Garonne. In "
    "its upper course it has cut a gorge through limestone that is in places more than 500 metres deep. Otters, "
    "which had vanished from the valley by the 1970s, returned after the water became cleaner."
)

PROCESSOR = (
    "The board carries two processors. The larger one decodes video and is cooled by a small fan; the other, which "
    "draws less than one watt, watches the sensors and wakes its neighbour when something moves. Firmware is "
    "updated over a serial cable, and a red lamp blinks twice if the update fails."
)

ORCHESTRA = (
    "When the Valletta Youth Orchestra was founded in 2009 it had fourteen members and no conductor. Today it has "
    "ninety players between the ages of twelve and twenty-four. Its first recording, made in an empty granary "
    "because the concert hall was being repaired, won the Island Prize. The orchestra rehearses on Thursdays."
)

GLACIER = (
    "Measurements began on the Hallen glacier in 1931. Since then it has lost forty percent of its area, most of it "
    "after 1990. Dr. Ingrid Solberg, who leads the survey, says that the lower tongue will be gone by 2050. "
    "Meltwater from the glacier feeds the reservoir that supplies the town of Brekke with electricity."
)

TOWER = "The tower was built in 1889. The tower is 330 metres tall."

PROGRAM = "Ada Lovelace wrote the first program. Byron was a poet."

EVERYTHING = " ".join((ORCHESTRA, LIGHTHOUSE, PROCESSOR, BAKERY, RIVER, GLACIER))

TEXTS = (
    ("When was the tower built?", TOWER),
    ("Who wrote the first program?", PROGRAM),
    ("Who built the lighthouse on Gull Rock?", LIGHTHOUSE),
    ("How tall is the tower?", LIGHTHOUSE),
    ("Who taught Leila Haddad her trade?", BAKERY),
    ("How much does the rye loaf cost?", BAKERY),
    ("Which river does the Tarn join?", RIVER),
    ("Which animals returned to the valley?", RIVER),
    ("How is the firmware updated?", PROCESSOR),
    ("How many members did the orchestra have when it was founded?", ORCHESTRA),
    ("Who leads the survey of the glacier?", GLACIER),
    ("When did the last keeper leave?", EVERYTHING),
)


def sample_queries() -> list[Query]:
    """Return the samples as the engine's queries."""
    return [QuestionQuery(question, context, AnswerOptions(doc_stride=DOC_STRIDE)) for question, context in TEXTS]
