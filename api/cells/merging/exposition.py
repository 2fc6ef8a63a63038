"""The metrics of several cells as one exposition: every sample gets the label ``cell``."""

import re
from collections.abc import Mapping

#: A sample's name, and its labels if it has some.
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+(?: \S+)?)")

#: The beginnings of the lines that describe a family.
ABOUT = ("# HELP ", "# TYPE ")


def expositions(found: Mapping[str, str]) -> str:
    """Return one exposition; a family stands once, with the samples of every cell."""
    families: dict[str, tuple[dict[str, str], list[str]]] = {}
    for cell, text in found.items():
        about: dict[str, str] = {}
        samples: list[str] = []
        for line in text.splitlines():
            if line.startswith(ABOUT):
                kind, name = line[:7], line.split(" ")[2]
                if kind == ABOUT[0]:
                    about, samples = families.setdefault(name, ({}, []))
                about.setdefault(kind, line)
            elif (match := SAMPLE.fullmatch(line)) is not None:
                labels = f'cell="{cell}"' + (f",{match[2]}" if match[2] else "")
                samples.append(f"{match[1]}{{{labels}}} {match[3]}")
    lines = [line for about, samples in families.values() for line in (*about.values(), *samples)]
    return "\n".join(lines) + "\n"
