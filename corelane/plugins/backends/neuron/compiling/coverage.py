"""Read the operator coverage from the output of each compiler. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from corelane.artifacts.manifest import Coverage

PERCENT_COMPILED = re.compile(r"\(post-compilation\) before = (\d+), compiled = (\d+), percent compiled = ([\d.]+)%")

OPERATOR = re.compile(r"=> (\w+::\w+): (\d+)(?: \[([^\]]+)\])?")

COMPILED_HEADING, OTHER_HEADING = "Compiled these operators", "Not compiled operators"

#: What the marks in the log of inf1 mean.
MARKS = {"not supported": "the compiler does not know it", "supported": "it lies outside the compiled part"}

#: torch_neuronx compiles a graph in one piece, or fails.
WHOLE = Coverage(percent=100, found_by="trace")


def read_log(text: str) -> Coverage | None:
    """Return the coverage in torch_neuron's log, or None if the log has none."""
    found = PERCENT_COMPILED.findall(text)
    if not found:
        return None
    compiled: dict[str, int] = {}
    other: dict[str, int] = {}
    reasons: dict[str, str] = {}
    into: dict[str, int] | None = None
    for line in text.splitlines():
        if COMPILED_HEADING in line:
            into = compiled
        elif OTHER_HEADING in line:
            into = other
        elif (match := OPERATOR.search(line)) and into is not None:
            into[match[1]] = int(match[2])
            if into is other and match[3]:
                reasons[match[1]] = MARKS.get(match[3], match[3])
    return Coverage(percent=float(found[-1][2]), found_by="log", compiled=compiled, not_compiled=other, reasons=reasons)


def read_analysis(analysis: Mapping[str, Any]) -> Coverage:
    """Return the coverage that ``torch_neuronx.analyze`` found."""
    compiled = {str(name): int(count) for name, count in dict(analysis.get("supported_operators", {})).items()}
    other: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for each in analysis.get("unsupported_operators", []):
        kind = str(each.get("kind", "?"))
        other[kind] = other.get(kind, 0) + 1
        reasons[kind] = f"fails at {each.get('failureAt') or 'an unknown step'}"
    percent = float(str(analysis.get("support_percentage", "0")).rstrip("%") or 0)
    return Coverage(percent=percent, found_by="analyze", compiled=compiled, not_compiled=other, reasons=reasons)
