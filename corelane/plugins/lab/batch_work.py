"""The work beside questions: a job of lines, a file in OpenAI's format, or documents one after the other."""

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from corelane.client import Client
from corelane.domain.batches import FINAL
from corelane.domain.jobs import Result
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.workload import Given, Questions
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.wire import Question

#: Most documents: more than can be read while the questions are asked.
MOST_DOCUMENTS = 1000

#: The question about a document, and the answer, which is at its end.
QUESTION, ANSWER = "Who keeps the seal of the guild?", "Ottilie Brand"
LAST_SENTENCE = f" The seal of the guild is kept by {ANSWER}."


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of work: the number of final items, and whether all are final."""

    done: int
    is_final: bool


class BatchWork(Protocol):
    """Work for a service: to be submitted, watched, canceled and read."""

    items: int
    #: The places of the work's items among the questions; none if the work checks its own answers.
    places: list[int]
    #: Number of wrong answers, if the work checks its own answers.
    wrong: int

    def submit(self) -> None:
        """Submit the work."""

    def poll(self) -> Standing:
        """Return the progress of the work."""

    def cancel(self) -> None:
        """Cancel the items that are not done."""

    def results(self) -> Iterator[Given]:
        """Yield the answers of final work, each with the number of its item; failed items have no answer."""


class SubmittedItems:
    """Questions of a file that are submitted together under one id, in order, repeated as often as needed."""

    def __init__(self, client: Client, target: Target, questions: Questions, items: int) -> None:
        self._client, self._target, self._questions = client, target, questions
        self.items, self.wrong = items, 0
        self.places = [questions.pick(number)[0] for number in range(items)]
        self._id, self._output = "", ""


class LinesJob(SubmittedItems):
    """One job sent as lines."""

    def submit(self) -> None:
        """Send the lines; the id of each item is its number."""
        asked = map(self._questions.asked.__getitem__, self.places)
        items = (
            Question(id=str(number), question=each.question, context=each.context) for number, each in enumerate(asked)
        )
        self._id = self._client.submit_lines(items, self._target.head).id

    def poll(self) -> Standing:
        """Return the progress of the job."""
        job = self._client.get(self._id)
        return Standing(job.counts.done, job.status.is_final)

    def cancel(self) -> None:
        """Cancel the job."""
        self._client.cancel(self._id)

    def results(self) -> Iterator[Given]:
        """Yield the answers of the job."""
        for result in self._client.iter_results(self._id):
            if result.status == "succeeded" and result.id is not None:
                yield given_of(int(result.id), result)


class FileBatch(SubmittedItems):
    """One file, answered as a batch of OpenAI's API."""

    def submit(self) -> None:
        """Upload the file and create the batch."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.jsonl"
            with path.open("wb") as file:
                for number, place in enumerate(self.places):
                    file.write(self._target.batch_line(number, self._questions.asked[place]))
            uploaded = self._client.upload_file(path)
        self._id = self._client.create_batch(uploaded.id).id

    def poll(self) -> Standing:
        """Return the progress of the batch."""
        batch = self._client.get_batch(self._id)
        self._output = batch.output_file_id or ""
        counts = batch.request_counts
        return Standing(counts.completed + counts.failed, batch.status in FINAL)

    def cancel(self) -> None:
        """Cancel the batch."""
        self._client.cancel_batch(self._id)

    def results(self) -> Iterator[Given]:
        """Yield the answers in the output file."""
        if not self._output:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "output.jsonl"
            self._client.download_file(self._output, path)
            with path.open("rb") as file:
                for line in map(orjson.loads, file):
                    result = Result.model_validate(line["response"]["body"], extra="ignore")
                    yield given_of(int(line["custom_id"]), result)


class Documents:
    """Long documents, one after the other until the time is over. Each is a job of one item."""

    def __init__(self, client: Client, target: Target, questions: Questions, words: int) -> None:
        self._client, self._target, self._words = client, target, words
        self._contexts = list(dict.fromkeys(each.context for each in questions.asked))
        self._job, self._read = "", 0
        self.items, self.wrong = MOST_DOCUMENTS, 0
        self.places: list[int] = []

    def submit(self) -> None:
        """Submit the next document."""
        item = Question(question=QUESTION, context=make_document(self._contexts, self._words, self._read))
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


def make_document(contexts: list[str], words: int, number: int) -> str:
    """Return shuffled passages with ``words`` words in total, and the sentence with the answer at the end."""
    order = random.Random(number)
    parts, count = [f"Volume {number}."], 0
    while count < words:
        parts.append(order.choice(contexts))
        count += len(parts[-1].split())
    return "\n\n".join(parts) + LAST_SENTENCE


def given_of(place: int, result: Result) -> Given:
    """Return a result in the form in which answers are compared."""
    answer = result.answer
    return Given(place, None) if answer is None else Given(place, answer.text, answer.start, answer.end)
