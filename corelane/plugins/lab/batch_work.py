"""The work beside small requests: a job of lines, a file in OpenAI's format, or what a task has."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from corelane.client import Client
from corelane.domain.batches import FINAL
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.workload import Given, Workload


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of work: the number of final items, and whether all are final."""

    done: int
    is_final: bool


class BatchWork(Protocol):
    """Work for a service: to be submitted, watched, canceled and read."""

    items: int
    #: The places of the work's items among those of a file; none if the work checks its own results.
    places: list[int]
    #: Number of wrong results, if the work checks its own results.
    wrong: int

    def submit(self) -> None:
        """Submit the work."""

    def poll(self) -> Standing:
        """Return the progress of the work."""

    def cancel(self) -> None:
        """Cancel the items that are not done."""

    def results(self) -> Iterator[Given]:
        """Yield the results of final work, each with the number of its item; failed items have no result."""


class SubmittedItems:
    """Items of a file that are submitted together under one id, in order, repeated as often as needed."""

    def __init__(self, client: Client, target: Target, workload: Workload, items: int) -> None:
        self._client, self._target, self._workload, self._bench = client, target, workload, workload.bench
        self.items, self.wrong = items, 0
        self.places = [workload.pick(number)[0] for number in range(items)]
        self._id, self._output = "", ""


class LinesJob(SubmittedItems):
    """One job sent as lines."""

    def submit(self) -> None:
        """Send the lines; the id of each item is its number."""
        asked = map(self._workload.asked.__getitem__, self.places)
        form = self._bench.task.item
        items = (form.model_validate({"id": str(number), **each.fields}) for number, each in enumerate(asked))
        self._id = self._client.submit_lines(items, self._target.head).id

    def poll(self) -> Standing:
        """Return the progress of the job."""
        job = self._client.get(self._id)
        return Standing(job.counts.done, job.status.is_final)

    def cancel(self) -> None:
        """Cancel the job."""
        self._client.cancel(self._id)

    def results(self) -> Iterator[Given]:
        """Yield the results of the job."""
        for result in self._client.iter_results(self._id):
            if result.status == "succeeded" and result.id is not None:
                yield Given(int(result.id), self._bench.output(result.model_dump()))


class FileBatch(SubmittedItems):
    """One file, answered as a batch of OpenAI's API."""

    def submit(self) -> None:
        """Upload the file and create the batch."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.jsonl"
            with path.open("wb") as file:
                for number, place in enumerate(self.places):
                    file.write(self._target.batch_line(number, self._workload.asked[place]))
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
        """Yield the results in the output file."""
        if not self._output:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "output.jsonl"
            self._client.download_file(self._output, path)
            with path.open("rb") as file:
                for line in map(orjson.loads, file):
                    yield Given(int(line["custom_id"]), self._bench.output(line["response"]["body"]))
