"""BentoML, as its documentation has it: a service with an adaptive batching endpoint and one worker process a core. Its
two inputs are one Pydantic model, as such an endpoint takes one parameter; a caller sends a list of one.

https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html,
https://docs.bentoml.com/en/latest/build-with-bentoml/parallelize-requests.html
"""

from pathlib import Path
from typing import Any

import bentoml
from pydantic import BaseModel

from benchmarks.peers.answering import Answerer, Pair
from benchmarks.peers.servers.given import given

MINE = given()


class Question(BaseModel):
    """One question and its passage."""

    question: str
    context: str


@bentoml.service(workers=MINE.workers, traffic={"timeout": 60}, logging={"access": {"enabled": False}})
class Answers:
    """Answers questions in batches that BentoML puts together."""

    def __init__(self) -> None:
        self.answerer = Answerer(Path(MINE.artifact))
        self.answerer.warm_up(MINE.batch)

    # The longest latency is also the time-out (503 beyond it), so it stays at its default of 60 s; within it BentoML
    # learns by itself how long to wait.
    @bentoml.api(batchable=True, max_batch_size=MINE.batch)
    def predict(self, questions: list[Question]) -> list[dict[str, Any]]:
        """Answer a batch."""
        return [found._asdict() for found in self.answerer.answer([Pair(q.question, q.context) for q in questions])]
