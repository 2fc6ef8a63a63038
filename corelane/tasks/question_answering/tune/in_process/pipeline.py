"""``pipeline("question-answering", model=…)`` in this process, as in transformers before version 5.

The model is compiled for this CPU on the first call of ``pipeline``, which takes seconds to a minute, and kept in the
user's cache. Questions of a list share batches.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from corelane.artifacts.manifest import model_name
from corelane.engine.backends.registry import open_backend
from corelane.engine.runner import Runner, ServedModel
from corelane.engine.text.tokenizer import open_tokenizer
from corelane.settings import Settings, read_settings
from corelane.tasks.question_answering.tune.in_process.inputs import (
    Input,
    Parameters,
    read_input,
    read_inputs,
    take_parameters,
)
from corelane.tasks.question_answering.tune.in_process.task import Ask, PipelineTask

TASK = "question-answering"

#: The model that comes with Corelane.
DEFAULT_MODEL = "qa-minilm"

#: The accepted values for a device.
CPU = (None, "cpu", -1)

#: Parameters of transformers' ``pipeline`` that make no difference here.
IGNORED = ("framework", "use_fast")

#: Questions of a list that are in progress at a time, unless ``batch_size`` says otherwise.
AT_A_TIME = 64

#: With ``max_seq_len`` two buckets are compiled: a short one of these rows and length, and a long one of these rows.
SHORT_ROWS, SHORT_LENGTH, LONG_ROWS = 8, 128, 3

Answers = dict[str, Any] | list[dict[str, Any]]


class QuestionAnsweringPipeline:
    """Answers questions as transformers' pipeline of this name did. Not thread-safe."""

    task = TASK

    def __init__(self, runner: Runner, longest: int, usual: Parameters, batch_size: int | None = None) -> None:
        """``longest`` is the longest row, in tokens. ``usual`` holds the defaults for a call's parameters."""
        self._runner = runner
        self._longest = longest
        self._usual = usual
        self._batch_size = batch_size

    def __call__(self, *arguments: Any, batch_size: int | None = None, **named: Any) -> Any:
        """Answer questions: ``question=…, context=…``, each a text or a list, dictionaries of both, or an iterator.

        Returns a dictionary of ``score``, ``start``, ``end`` and ``answer``, or a list of them if ``top_k`` is more
        than one. For several questions it returns a list of these; for an iterator, an iterator. Raises ValueError or
        KeyError if the arguments make no sense.
        """
        parameters = take_parameters(self._usual, named)
        self._check(parameters)
        inputs, size = read_inputs(arguments, named), batch_size or self._batch_size
        if isinstance(inputs, Iterator):
            return self._answer_iterator(inputs, parameters, size or 1)
        answers = [
            answer
            for at in range(0, len(inputs), size or AT_A_TIME)
            for answer in self._answer(inputs[at : at + (size or AT_A_TIME)], parameters)
        ]
        return answers[0] if len(inputs) == 1 else answers

    def close(self) -> None:
        """Free the model's memory."""
        self._runner.close()

    def _check(self, parameters: Parameters) -> None:
        longest = parameters.max_seq_len
        if longest is not None and longest > self._longest:
            raise ValueError(
                f"`max_seq_len` ({longest}) is longer than the rows that this pipeline was made for ({self._longest}): "
                "give it to `pipeline` itself"
            )
        if parameters.doc_stride is not None and parameters.doc_stride > (longest or self._longest):
            raise ValueError(
                f"`doc_stride` ({parameters.doc_stride}) is larger than `max_seq_len` ({longest or self._longest})"
            )

    def _answer_iterator(self, inputs: Iterator[Any], parameters: Parameters, size: int) -> Iterator[Answers]:
        while examples := [read_input(each) for each in islice(inputs, size)]:
            yield from self._answer(examples, parameters)

    def _answer(self, examples: Sequence[Input], parameters: Parameters) -> Iterator[Answers]:
        asked = [Ask(each.question, each.context, parameters=parameters) for each in examples]
        for example, result in zip(examples, self._runner.results_of(asked), strict=True):
            if result["error"] is not None:
                raise ValueError(result["error"]["detail"])
            yield _present(example.context, result["answers"])


def _present(context: str, answers: Iterable[Any]) -> Answers:
    """Return answers in the form of transformers: one by itself, several or none as a list."""
    found = [
        {"score": score, "start": start, "end": end, "answer": context[start:end]} for score, start, end in answers
    ]
    return found[0] if len(found) == 1 else found


def pipeline(
    task: str | None = None,
    model: Any = None,
    tokenizer: Any = None,
    *,
    device: Any = None,
    dtype: str = "fp32",
    batch_size: int | None = None,
    **parameters: Any,
) -> QuestionAnsweringPipeline:
    """Return a question-answering pipeline, as transformers' ``pipeline`` did until its version 5.

    ``model`` is a Hugging Face id, a folder, a name that Corelane knows, or a network with its ``tokenizer``; the
    built-in model if not given. ``dtype`` is a number format, or ``auto`` for the fastest. The other parameters are
    defaults for calls of the pipeline. Raises ValueError, SetupError, or ModelRefused if the model is at fault.
    """
    if task not in (None, TASK):
        raise ValueError(f"corelane's pipeline does {TASK!r} alone, not {task!r}; transformers has the others")
    if str(device) not in map(str, CPU):
        raise ValueError(f"corelane's pipeline runs on the CPU, not on {device!r}; a service runs on other devices")
    usual = take_parameters(Parameters(), parameters)
    if unknown := parameters.keys() - {*IGNORED}:
        raise ValueError(f"unknown parameters {sorted(unknown)}")
    with ExitStack() as stack:
        source = _find_source(model, tokenizer, stack)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-pipeline-")))
        # No file of the artifact is read after it was loaded.
        artifact = _compile(source, read_settings(data_dir=folder), dtype, usual.max_seq_len)
        manifest, backend = artifact.manifest, open_backend("cpu")
        served = ServedModel.of(artifact, None)
        own = PipelineTask(open_tokenizer(artifact), manifest.tokenizer, manifest.max_length)
        loaded = backend.load(artifact)
    runner = Runner(own, served, lambda batch: backend.run(loaded, batch), unload=lambda: backend.unload(loaded))
    return QuestionAnsweringPipeline(runner, manifest.max_length, usual, batch_size)


def _find_source(model: Any, tokenizer: Any, stack: ExitStack) -> str:
    """Return the name or folder of a model; a network in memory is saved first."""
    if model is None or isinstance(model, str | Path):
        if tokenizer is not None and str(tokenizer) != str(model):
            raise ValueError("the tokenizer is the model's own: leave it out, or give the network as an object too")
        return DEFAULT_MODEL if model is None else str(model)
    if tokenizer is None or isinstance(tokenizer, str):
        raise ValueError("give the tokenizer of the network too, as an object")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-pipeline-"))) / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def _compile(source: str, settings: Settings, dtype: str, longest: int | None) -> Any:
    """Compile a model, or take it from this user's cache."""
    from compile.build import build
    from compile.once import compile_once
    from corelane.engine.buckets import AUTO_BUCKETS

    buckets = AUTO_BUCKETS
    if longest is not None:
        shapes = {min(SHORT_LENGTH, longest): SHORT_ROWS, longest: LONG_ROWS}
        buckets = ",".join(f"{rows}x{length}" for length, rows in shapes.items())
    name = model_name(source)
    options: dict[str, Any] = {"buckets": buckets, "dtype": dtype, "format": "torchscript"}
    return compile_once(source, name, settings, options, lambda: build(source, settings=settings, name=name, **options))
