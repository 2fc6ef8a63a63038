"""Whatever an installation brings in stands in constraints/, so that two made on different days are the same."""

import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: Part of the environment, and nothing that Corelane itself asks for.
LEFT_OUT = {"corelane", "setuptools"}


def pinned(name: str) -> set[str]:
    lines = (ROOT / "constraints" / f"{name}.txt").read_text().splitlines()
    return {canonicalize_name(line.partition("==")[0].strip()) for line in lines if "==" in line}


def brought_in(extra: str) -> set[str]:
    """Every package that `pip install corelane[extra]` would install, by what stands in this environment."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [("corelane", (extra,))]
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += wanted(*place)
    return {name for name, _ in found} - LEFT_OUT


def wanted(name: str, extras: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if name == "corelane":
        optional = PROJECT["optional-dependencies"]
        texts = PROJECT["dependencies"] + [each for extra in extras for each in optional[extra]]
    else:
        try:
            texts = distribution(name).requires or []
        except PackageNotFoundError:  # of an extra that is not installed here: judged by its own name
            texts = []
    for needed in map(Requirement, texts):
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield canonicalize_name(needed.name), tuple(sorted(needed.extras))


def test_all_that_is_installed_is_pinned() -> None:
    assert brought_in("dev") - pinned("cpu") == set()


def test_neurons_image_pins_all_that_the_service_needs_but_torch() -> None:
    assert (brought_in("api") | brought_in("remote")) - pinned("neuron") == set()
