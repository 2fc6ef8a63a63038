"""What a task is: the form of its items, options and results, and what is known of an item before a model reads it.

An item is stored as a row: its id, what stands ``beside`` its text (any JSON value), and the text, which items may
share. The store, the API and the client carry items of any task: the text is all that they know of an item.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import orjson

from corelane.domain.dispatch import Row
from corelane.domain.jobs import Item, JobHead, Result, TaskOptions
from corelane.tasks.dialects import Dialect
from corelane.tasks.presenting import Presenter

#: What stands beside an item's text; the item's own text, or None; the id of a text that items share, or None.
Parts = tuple[Any, str | None, str | None]


class Bounds(Protocol):
    """How large an item may be, as the settings say."""

    @property
    def text_chars(self) -> tuple[int, str]:
        """Return the most characters of a text, and the name of the setting."""

    @property
    def beside_chars(self) -> tuple[int, str]:
        """Return the most characters of what is asked about a text, and the name of the setting."""

    @property
    def max_item_bytes(self) -> int:
        """Return the most bytes of an item as JSON."""


class Task(ABC):
    """One kind of work. Pure; what needs a model is in its ``engine``."""

    #: The task's name, as Hugging Face's pipeline has it; and the version of the stored rows and results.
    name: str
    version: int

    #: The forms of an item, of a job's options, and of a result.
    item: type[Item]
    options: type[TaskOptions]
    result: type[Result]

    #: The job's field for texts that its items share, if the task has one.
    shares: type[JobHead] | None

    #: The types of what stands beside an item's text, in a row.
    beside: tuple[type, ...]

    #: The field, of an item or else of the options, of which each entry makes a row; empty if an item is read once.
    rows_by: str = ""

    #: The fields of a result that has no output.
    nothing: Mapping[str, Any]

    #: Options by which results are smallest on their way into a table.
    packed: Mapping[str, Any] = MappingProxyType({})

    #: What a result with a null output lacks, as summaries name it.
    output: str = "output"

    #: An item, for documents and error messages.
    example: Mapping[str, Any]

    #: The task's routes with the forms of other services.
    dialects: Sequence[Dialect] = ()

    #: The command, after ``corelane``, to try the task if it is that of the default model.
    first_try: str = ""

    #: The class that runs the task's models, as ``module:Class``; only workers and compilers import it.
    engine: str

    #: What pages show of the task's items and results.
    present: Presenter = Presenter()

    @property
    def job_examples(self) -> Mapping[str, Mapping[str, Any]]:
        """Return example bodies of jobs with summaries, for documents. Their model has the same name as the task."""
        summary = f"One item for a model of the task {self.name}"
        return {self.name: {"summary": summary, "value": {"model": self.name, "items": [{**self.example}]}}}

    @abstractmethod
    def parts(self, item: Any) -> Parts:
        """Return an item without its id: what stands beside its text, and the text or the id of a shared one."""

    @abstractmethod
    def fields(self, beside: Any, text: str | None, text_id: str | None) -> dict[str, Any]:
        """Return the fields of an item on the wire from its parts."""

    def row(self, item: Item, numbers: Mapping[str, int]) -> Row:
        """Return an item as a row; ``numbers`` are the numbers of the job's shared texts, by id."""
        beside, text, text_id = self.parts(item)
        return item.id, beside, (text or "") if text_id is None else numbers[text_id]

    def item_of(self, row: Row) -> Item:
        """Return an item as it was submitted. A shared text is named by its number."""
        item_id, beside, text = row
        given = (None, str(text)) if isinstance(text, int) else (text, None)
        fields = self.fields(beside, *given)
        return self.item.model_validate({"id": item_id, **fields})

    def sharing(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a job whose items share these texts, given by id; only for tasks with ``shares``."""
        raise NotImplementedError

    @abstractmethod
    def tokens(self, beside: Any, text: str, options: Any) -> int:
        """Estimate the tokens of all rows of an item, without a tokenizer."""

    @abstractmethod
    def tokens_of(self, beside: Any, text_tokens: float, options: Any) -> int:
        """Estimate as ``tokens`` does, from the text's estimated tokens (``dispatch.measure``) instead of the text."""

    @abstractmethod
    def check(self, bounds: Bounds, place: str, item: Any) -> None:
        """Raise TooLarge if an item exceeds a bound; ``place`` is the beginning of the sentence."""

    def of_version(self, version: str, summary: Mapping[str, Any]) -> "Task":  # noqa: ARG002
        """Return the task with the forms of one version, if workers announced forms of its own for the version."""
        return self

    def check_options(self, options: Any, place: str, item: Any) -> None:  # noqa: B027  # for tasks that need it
        """Raise InvalidInput if neither an item nor the options of its job give what the task needs."""

    def depends_on_version(self, options: Any) -> bool:  # noqa: ARG002  # for tasks whose options depend on it
        """Return whether these options can be accepted only after ``check_version``."""
        return False

    def check_version(self, options: Any, version: str, summary: Mapping[str, Any]) -> None:
        """Raise InvalidInput if a version, as workers announced it, cannot do what options ask for."""
        raise NotImplementedError

    def columns(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the output of a result by column of a table, as far as it is flat."""
        return {name: result[name] for name in self.nothing}

    def line(self, result: Mapping[str, Any]) -> str:
        """Return the output of a result in one line, for a terminal."""
        return orjson.dumps({name: result[name] for name in self.nothing}).decode()
