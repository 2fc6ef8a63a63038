"""Report the progress of a run: lines for a reader, and the same as JSONL for programs.

A resumed run drops the lines after its checkpoint, so each step is in the log once.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corelane.domain.durations import duration

#: Least time between two lines for the reader, in seconds.
SAID_EVERY_S = 15.0

#: The weight of the last step in the measured speed.
FRESH = 0.05

Say = Callable[[str], None]


class TrainingProgress:
    """The log of one run, and its speed."""

    def __init__(self, path: Path, say: Say, step: int, elapsed_s: float) -> None:
        """Continue after a step; ``elapsed_s`` is the time that the run took until then."""
        self._say = say
        self._before_s = elapsed_s
        self._started = self._last = time.monotonic()
        self._said = float("-inf")
        self._tokens_per_s = 0.0
        self._loss: float | None = None
        lines = path.read_bytes().splitlines() if path.exists() else []
        kept = [line for line in lines if _step_of(line) <= step]
        path.write_bytes(b"".join(line + b"\n" for line in kept))
        self._file = path.open("a", encoding="utf-8", buffering=1)

    @property
    def elapsed_s(self) -> float:
        """The seconds of this run, including those before it was resumed."""
        return self._before_s + time.monotonic() - self._started

    def step(self, step: int, steps: int, epoch: int, tokens: int, figures: dict[str, float]) -> None:
        """Note one step; ``tokens`` is the number it read."""
        now = time.monotonic()
        speed = tokens / max(1e-9, now - self._last)
        self._last = now
        self._tokens_per_s = (1 - FRESH) * self._tokens_per_s + FRESH * speed if self._tokens_per_s else speed
        loss = figures["loss"]
        self._loss = loss if self._loss is None else (1 - FRESH) * self._loss + FRESH * loss
        self._write({"step": step, "epoch": epoch, "tokens": tokens, **figures})
        if now - self._said >= SAID_EVERY_S or step == steps:
            self._said = now
            left_s = (steps - step) * tokens / max(1e-9, self._tokens_per_s)
            self._say(
                f"step {step:,} of {steps:,} · epoch {epoch + 1} · loss {self._loss:.3f} · "
                f"{self._tokens_per_s:,.0f} tokens/s · {duration(left_s)} left"
            )

    def judged(self, step: int, figures: dict[str, Any], is_best: bool) -> None:
        """Note an evaluation of the development part."""
        self._write({"step": step, "judged": figures, "best": is_best})
        accuracy = figures["no_answer_accuracy"]
        unanswerable = "" if accuracy is None else f", no-answer accuracy {accuracy:.1f} %"
        self._say(
            f"step {step:,} · development part: F1 {figures['f1']:.2f}, EM {figures['exact']:.2f}, "
            f"answerable F1 {figures['answerable_f1']:.2f}{unanswerable}{' · best so far' if is_best else ''}"
        )
        self._last = time.monotonic()

    def close(self) -> None:
        """Close the log."""
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        rounded = {name: float(f"{v:.6g}") if isinstance(v, float) else v for name, v in entry.items()}
        self._file.write(json.dumps(rounded | {"elapsed_s": round(self.elapsed_s, 1)}) + "\n")


def _step_of(line: bytes) -> float:
    """Return the step of a line; infinity for one that was cut off by a kill."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
