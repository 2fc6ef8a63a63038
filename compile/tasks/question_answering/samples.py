"""Sample questions, written for Corelane, on which a compiled model is compared with the eager one.

Each has one answer. Passages differ in length. One passage joins all others, so even the longest buckets get full rows.
"""

from compile.tasks.texts import BAKERY, EVERYTHING, GLACIER, LIGHTHOUSE, ORCHESTRA, PROCESSOR, PROGRAM, RIVER, TOWER
from corelane.engine.task import Query
from corelane.tasks.question_answering.engine.task import QuestionQuery
from corelane.tasks.question_answering.options import AnswerOptions

#: Overlap of the windows, in tokens: longer than every answer below, and short enough for short buckets.
DOC_STRIDE = 16

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
