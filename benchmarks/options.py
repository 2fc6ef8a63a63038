"""The options that benchmarks have in common."""

import argparse
from pathlib import Path

from benchmarks.checkouts import ROOT, add_before
from benchmarks.runs import QUICK, is_quick


def parser_of(description: str | None, rounds: int = 0) -> argparse.ArgumentParser:
    """Return a parser of the file of questions, the data folder, another checkout and a quick run.

    With ``rounds``, as many if none are given, it knows their number and a short run of one.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="questions in SQuAD's format")
    parser.add_argument("--data", type=Path, default=ROOT / ".corelane", help="data folder of this checkout's service")
    parser.add_argument(QUICK, action="store_true", help="seconds, a few questions, and no figures kept")
    add_before(parser)
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds)
        parser.add_argument("--short", action="store_true", help="one round")
    return parser


def rounds_of(options: argparse.Namespace) -> int:
    """Return how many rounds were asked for."""
    rounds: int = options.rounds
    return 1 if is_quick() or options.short else rounds
