"""Long documents for the bench, each with a question whose answer is at its end."""

import random
from collections.abc import Iterator, Sequence

from corelane.client import Client
from corelane.plugins.lab.batch_work import Standing
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.workload import Given
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question

#: Most documents: more than can be read while small requests are sent.
MOST_DOCUMENTS = 1000

#: The question about a document, and the answer, which is at its end.
QUESTION, ANSWER = "Who keeps the seal of the guild?", "Ottilie Brand"
LAST_SENTENCE = f" The seal of the guild is kept by {ANSWER}."


class Documents:
    """Long documents, one after the other until the time is over. Each is a job of one item."""

    def __init__(self, client: Client, target: Target, passages: Sequence[str], words: int) -> None:
        self._client, self._target, self._words = client, target, words
        self._passages = list(dict.fromkeys(passages))
        self._job, self._read = "", 0
        self.items, self.wrong = MOST_DOCUMENTS, 0
        self.places: list[int] = []

    def submit(self) -> None:
        """Submit the next document."""
        item = Question(question=QUESTION, context=make_document(self._passages, self._words, self._read))
        options = AnswerOptions.model_validate(self._target.options | {"no_answer": False})
        self._job = self._client.submit([item], model=self._target.model, options=options).id

    def poll(self) -> Standing:
        """Return the progress. When a document is done, submit the next, until the work is canceled."""
        if self._job and self._client.get(self._job).status.is_final:
            [result] = self._client.iter_results(self._job)
            self.wrong += result.answer is None or result.answer.text != ANSWER
            self._read += 1
            self._job = ""
            if self._read < self.items:
                self.submit()
        return Standing(self._read, self._read >= self.items)

    def cancel(self) -> None:
        """Cancel the document that is being read."""
        self._client.cancel(self._job)
        self._job = ""

    def results(self) -> Iterator[Given]:
        """Yield nothing: each document was checked when it was read."""
        yield from ()


def make_document(passages: Sequence[str], words: int, number: int) -> str:
    """Return shuffled passages with ``words`` words in total, and the sentence with the answer at the end."""
    order = random.Random(number)
    parts, count = [f"Volume {number}."], 0
    while count < words:
        parts.append(order.choice(passages))
        count += len(parts[-1].split())
    return "\n\n".join(parts) + LAST_SENTENCE
