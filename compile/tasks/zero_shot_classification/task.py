"""Zero-shot classification, as the compiler sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compile.tasks.text_classification.task import ClassificationHead
from compile.tasks.texts import SAMPLES
from corelane.engine.task import Query
from corelane.errors import ModelRefused
from corelane.tasks.zero_shot_classification.task import ZeroShotClassification
from corelane.tasks.zero_shot_classification.wire import ZeroShotOptions

#: The labels that the samples are judged by.
LABELS = ("travel", "food and drink")


class ZeroShot(ClassificationHead):
    """Gives the logits of the judgements on a text and a sentence."""

    name = ZeroShotClassification.name
    trained_to = "judge whether a sentence follows from a text"
    short_texts = False

    def is_made_for(self, architectures: Sequence[str], folder: Path, config: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return False: no head shows this task, so a model counts as a classifier unless `--task` names the task."""
        return False

    def check(self, label: str, folder: Path, config: Any) -> None:  # noqa: ARG002
        """Refuse a classifier without a label for entailment: it was not trained for inference."""
        if config.num_labels < 2 or place_of(config, "entail") is None:
            names = ", ".join(str(config.id2label[at]) for at in sorted(config.id2label)[:8])
            raise ModelRefused(
                f"{label} has no label for entailment beside another, and its labels are {names}: {self.name} needs a "
                "model for natural-language inference. If it is one, name its labels in `id2label` of its config.json: "
                "`entailment` and `contradiction`"
            )

    def facts(self, folder: Path, config: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return which logits say that a sentence follows from the text, and that it contradicts it.

        Without a label for contradiction, that is the last logit if entailment is the first, and else the first.
        """
        entailment, contradiction = place_of(config, "entail"), place_of(config, "contradict")
        if contradiction is None:
            contradiction = config.num_labels - 1 if entailment == 0 else 0
        return {"entailment": entailment, "contradiction": contradiction}

    def samples(self) -> list[Query]:
        """Return sample texts, each with two labels; those that are too long are read in windows."""
        options = ZeroShotOptions(labels=LABELS, long="mean")
        return [Query(None, text, options) for text in SAMPLES]


def place_of(config: Any, beginning: str) -> int | None:
    """Return the number of the first label with this beginning, in upper or lower case; None if there is none."""
    names = [*config.id2label.items(), *((at, name) for name, at in (config.label2id or {}).items())]
    found = [int(at) for at, name in names if str(name).lower().startswith(beginning)]
    return next((at for at in found if 0 <= at < config.num_labels), None)


TASK = ZeroShot()
