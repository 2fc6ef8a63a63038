"""Explain what went wrong in a tracing process, in a sentence for the operator. Pure, except for a counter it reads.

The kernel kills a compiler that runs out of memory without a message. The only sign is the exit status −9, of the
compiler (in the text of an error) or of the tracing process itself.
"""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corelane.engine.backends.neuron.chips import NeuronChip
from corelane.engine.backends.neuron.packages import explain_import
from corelane.errors import CompileFailed, SetupError, last_line

#: The kernel's counters of processes killed for lack of memory: in this container, and on the whole machine.
OOM_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))

OOM_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)

COMPILER_FAILED = re.compile(r"neuronx?-cc failed with (-?\d+)")

COMPILER_CODE = re.compile(r"NCC_[A-Z]{1,4}\d{3,4}")

#: SIGKILL, SIGABRT and SIGSEGV, as a process's own status and as a shell reports them.
KILLED, CRASHED = (-9, 137), (-6, -11, 134, 139)

#: The names of the three inputs, in order.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")

#: The largest need of memory on record: BERT-base, 16 rows of 1,024 tokens.
MOST_MEMORY = "BERT-base at 16x1024 takes up to 15 GB"


@dataclass(frozen=True, slots=True)
class TracerEnd:
    """How a tracing process ended.

    ``result`` is None if the process wrote none. ``out_of_memory`` says that the kernel killed a process in the
    meantime. ``printed`` is the end of the output of the process and the compiler.
    """

    status: int
    result: Mapping[str, Any] | None
    out_of_memory: bool = False
    printed: str = ""


def count_oom_kills() -> int:
    """Return how many processes were killed for lack of memory so far; 0 without a counter."""
    total = 0
    for path in OOM_COUNTERS:
        try:
            counts = OOM_COUNT.findall(path.read_text(encoding="ascii"))
        except OSError:
            continue
        total += sum(map(int, counts))
    return total


def explain(outcome: TracerEnd, chip: NeuronChip, what: str, log: Path) -> CompileFailed | SetupError:
    """Return the error to raise; ``what`` names the bucket, ``log`` the file with the whole output."""
    result = outcome.result or {}
    kind, text = str(result.get("error", "")), str(result.get("text", ""))
    failed = COMPILER_FAILED.search(text)
    if kind == "import":
        return explain_import(chip.target, text, result.get("missing"))
    if kind == "unused":
        return _explain_unused(what, int(text))
    if failed and int(failed[1]) in KILLED:
        return _explain_killed(what, chip.compiler, outcome.out_of_memory, log)
    if not result and outcome.status in KILLED:
        return _explain_killed(what, "the tracing process", outcome.out_of_memory, log)
    if (failed and int(failed[1]) in CRASHED) or (not result and outcome.status in CRASHED):
        who = chip.compiler if failed else "the tracing process"
        return CompileFailed(
            f"{what}: {who} crashed ({failed[1] if failed else outcome.status}); try --optlevel 1, other shapes, or "
            f"--report, which tries the operators one by one. Its output: {log}"
        )
    return _explain_text(what, chip, outcome, text, log)


def _explain_unused(what: str, index: int) -> CompileFailed:
    name = INPUTS[index] if 0 <= index < len(INPUTS) else "one of its inputs"
    return CompileFailed(
        f"{what}: the traced graph does not use {name}, so the model would run as if it were not there; this "
        "version of transformers traces the model wrongly: compile with the one of constraints/"
    )


def _explain_killed(what: str, who: str, out_of_memory: bool, log: Path) -> CompileFailed:
    cause = (
        "was killed by the kernel, which had no memory left"
        if out_of_memory
        else "was killed (signal 9), most often for lack of memory, by the kernel or by the container's limit"
    )
    return CompileFailed(
        f"{what}: {who} {cause}. It is no fault of the model ({MOST_MEMORY}): compile with --jobs 1, smaller buckets, "
        f"swap, or with --cpu-backend on a larger machine. Its output: {log}"
    )


def _explain_text(what: str, chip: NeuronChip, outcome: TracerEnd, text: str, log: Path) -> CompileFailed | SetupError:
    seen = f"its output: {log}"
    if "is not installed" in text and chip.compiler in text:
        return SetupError(
            f"{chip.package} is there, but its compiler {chip.compiler} is not: pip install {chip.compiler}"
        )
    if "num_devices > 0" in text:
        return SetupError(
            f"this machine has no {chip.target} device: add --cpu-backend to compile without one, and run `corelane "
            "verify` where it will serve"
        )
    if "Runtime could not be initialized" in text or "not available - Requested" in text:
        return SetupError(
            "the Neuron runtime does not start: this machine has no device, or its cores are taken. Stop the processes "
            "on them, name free ones with NEURON_RT_VISIBLE_CORES, or compile with --cpu-backend"
        )
    if (outcome.result or {}).get("errno") in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return CompileFailed(f"{what}: the disk is full: {last_line(text)}")
    if code := COMPILER_CODE.search(text) or COMPILER_CODE.search(outcome.printed):
        line = next(line for line in [*text.splitlines(), *outcome.printed.splitlines()] if code[0] in line)
        return CompileFailed(f"{what}: {chip.compiler} refused the model with {code[0]}: {line.strip()}; {seen}")
    if failed := COMPILER_FAILED.search(text):
        return CompileFailed(f"{what}: {chip.compiler} failed with status {failed[1]}; {seen}")
    if text:
        return CompileFailed(f"{what}: {last_line(text)}; {seen}")
    return CompileFailed(f"{what}: the tracing process ended with status {outcome.status} and said nothing; {seen}")
