"""What the compiler has to know of a task."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compile.tasks.evaluation import EvalSet, F1Loss
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import ModelRefused
from corelane.tasks.registry import TASKS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from corelane.artifacts.manifest import TokenizerSpec
    from corelane.engine.backends.protocol import Logits, Pass
    from corelane.engine.buckets import Bucket
    from corelane.engine.task import Query, Window
    from corelane.engine.text.engine import TextEngine

#: The tasks whose models are compiled.
COMPILED = [name for name in TASKS if find_spec(f"compile.tasks.{name.replace('-', '_')}")]

#: A row of a batch: the number of its query, the query as it was read, and the window of it in this row.
Row = tuple[int, Any, "Window"]


class CompileTask(ABC):
    """One task, as the compiler sees it."""

    #: The task's name (``corelane.tasks``).
    name: str
    #: Endings of the names of architectures with the task's head; empty if the task takes networks without a head.
    heads: tuple[str, ...]
    #: The class of transformers that loads the task's networks.
    loader: str
    #: The fields of a network's output that are kept, in order.
    outputs: tuple[str, ...]
    #: What a trained head does, in words, for the refusal of a network whose head has no trained weights.
    trained_to: str
    #: Whether the outputs have an entry for each token of a row, or one for the row.
    per_token = True
    #: Whether an item is often one sentence, alone in its row.
    short_texts = False
    #: The longest rows of the default ladder, if they are not the longest that a network reads.
    longest_rows: int | None = None
    #: Whether the loss of F1 is measured.
    measures_loss = False
    #: Further files of a model that change its results.
    files: tuple[str, ...] = ()

    @property
    def engine(self) -> "type[TextEngine]":
        """Return the class that puts rows together and reads the outputs."""
        # Imported here: commands that only look for a model need neither numpy nor tokenizers.
        from corelane.engine.runner import engine_of

        return engine_of(self.name)

    def is_made_for(self, architectures: Sequence[str], folder: Path, config: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return whether a model's own files say that it was made for this task."""
        return any(name.endswith(self.heads) for name in architectures)

    def check(self, label: str, folder: Path, config: Any) -> None:  # noqa: B027  # for tasks that need more
        """Raise ModelRefused if a network with the right head is unfit nevertheless."""

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return what the engine has to know of a model; it becomes ``facts`` of the manifest."""
        return {}

    def read_tokenizer(self, fast: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return what the engine has to know of a model's tokenizer, as transformers loads it, as further facts."""
        return {}

    def loader_of(self, config: Any) -> str:  # noqa: ARG002
        """Return the class of transformers that loads a network."""
        return self.loader

    def load(self, label: str, folder: Path) -> tuple[Any, Any, Any] | None:  # noqa: ARG002
        """Return the config, tokenizer and network of a model that transformers does not load; None if it does."""
        return None

    def keep(self, label: str, folder: Path, facts: Mapping[str, Any], tokenizer: Any) -> Mapping[str, bytes]:  # noqa: ARG002
        """Return further files that the engine reads, by name; raise ModelRefused if the model's are unfit."""
        return {}

    def finish(self, label: str, folder: Path, network: Any) -> Any:  # noqa: ARG002
        """Return the network to serve, made of the one that was loaded; raise ModelRefused."""
        return network

    def untrained(self, loading: Mapping[str, Any]) -> list[str]:
        """Return the weights of the network that a model lacks, from what transformers says of its loading."""
        return sorted(loading["missing_keys"])

    @abstractmethod
    def samples(self) -> "list[Query]":
        """Return items on which a compiled network is compared with the eager one."""

    @abstractmethod
    def found(self, parts: "Sequence[Sequence[Row]]", logits: "Sequence[Logits]") -> Mapping[int, Any]:
        """Return, by the sample's number, the result that must be equal; ``parts`` are the rows of each batch."""

    def measure_loss(
        self,
        tokenizer: "Tokenizer",
        spec: "TokenizerSpec",
        ladder: "Sequence[Bucket]",
        run_eager: "Pass",
        run: "Pass",
        eval_set: EvalSet | None,
    ) -> F1Loss:
        """Have both models read items cut for a ladder, and compare the F1; raises CompileFailed if none fits."""
        raise NotImplementedError

    def divergence(self, expected: "Logits", got: "Logits") -> float:
        """Return how far a pass is from the eager network: by default the KL divergence, in nats per row."""
        import numpy as np

        def log_softmax(logits: Any) -> Any:
            # A logit alone stands against one of 0, as a sigmoid has it.
            logits = np.append(logits, np.zeros_like(logits), axis=-1) if logits.shape[-1] == 1 else logits
            shifted = logits - logits.max(axis=-1, keepdims=True)
            return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

        total = 0.0
        for one, other in zip(expected, got, strict=True):
            true, found = log_softmax(one), log_softmax(other)
            total += float((np.exp(true) * (true - found)).sum())
        return total / len(expected[0])


def compile_task(name: str) -> CompileTask:
    """Return the compile half of a task."""
    return cast(CompileTask, import_module(f"compile.tasks.{name.replace('-', '_')}.task").TASK)


def task_of(label: str, architectures: Sequence[str], folder: Path, config: Mapping[str, Any]) -> str:
    """Return the task that a model was made for, by its architecture; raise ModelRefused if there is none."""
    names = [str(name).removesuffix("Simple") for name in architectures]
    for task in COMPILED:
        if compile_task(task).is_made_for(names, folder, config):
            return task
    if not names:
        return DEFAULT_TASK
    raise ModelRefused(
        f"{label} has a head for none of the tasks: it is made for {', '.join(names)}. The tasks are "
        f"{', '.join(COMPILED)}; `--task` names one"
    )


def check_heads(task: CompileTask, label: str, architectures: Sequence[str]) -> None:
    """Raise ModelRefused if a model has no head for a task."""
    names = [str(name).removesuffix("Simple") for name in architectures]
    if task.heads and not any(name.endswith(task.heads) for name in names):
        made_for = ", ".join(map(str, architectures)) or "nothing in particular"
        wanted = " or ".join(f"…{head}" for head in task.heads)
        raise ModelRefused(f"{label} has no {task.name} head: it is made for {made_for}, and {wanted} is needed")
