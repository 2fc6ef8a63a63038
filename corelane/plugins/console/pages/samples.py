"""Questions with their passages, to try the ask box with: several languages, and scripts where offsets go wrong."""

from dataclasses import dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """One question and its passage; ``name`` is in its address, ``about`` on its button."""

    name: str
    about: str
    question: str
    context: str


SAMPLES = tuple(SampleQuestion(**each) for each in orjson.loads(Path(__file__).with_suffix(".json").read_bytes()))


def sample_named(name: str) -> SampleQuestion | None:
    """Return the sample of this name, or None."""
    return next((sample for sample in SAMPLES if sample.name == name), None)
