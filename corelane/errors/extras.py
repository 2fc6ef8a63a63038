"""The command that installs an optional part of Corelane. No package index has Corelane."""

import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "corelane"

#: The folder that holds this package: a checkout, or a folder of installed packages.
HOME = Path(__file__).resolve().parents[2]


def install_command(extra: str) -> str:
    """Return the command that installs an extra into this interpreter's environment."""
    checkout = _checkout()
    if checkout is not None:
        wanted = ["-e", f"{_near(checkout)}[{extra}]"]
    else:
        wanted = sorted(set(requirements(_requires(), extra))) or [f"{NAME}[{extra}]"]
    python = _near(Path(sys.executable))
    install = [python, "-m", "pip", "install"] if find_spec("pip") else ["uv", "pip", "install", "--python", python]
    return shlex.join([*install, *wanted])


def requirements(requires: Iterable[str], extra: str) -> Iterator[str]:
    """Yield what an extra needs, from a distribution's requirements; an extra may include others."""
    requires = list(requires)
    for each in requires:
        requirement, _, marker = (part.strip() for part in each.partition(";"))
        if not re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", marker):
            continue
        if own := re.fullmatch(rf"{NAME}\[([^\]]+)\]", requirement.replace(" ", "")):
            for other in own[1].split(","):
                yield from requirements(requires, other)
        else:
            yield requirement


def _checkout() -> Path | None:
    """Return the checkout that this package runs from, or was installed from; None if it does not exist any more."""
    if (HOME / "pyproject.toml").is_file():
        return HOME
    found = _distribution()
    try:
        origin = json.loads((found and found.read_text("direct_url.json")) or "{}")
    except ValueError:
        return None
    url = urlsplit(origin.get("url", ""))
    folder = Path(unquote(url.path))
    return folder if url.scheme == "file" and (folder / "pyproject.toml").is_file() else None


def _requires() -> list[str]:
    found = _distribution()
    return (found and found.requires) or []


def _distribution() -> Distribution | None:
    """Return what this package was installed by: the service, or its client alone."""
    for name in (NAME, f"{NAME}-client"):
        with suppress(PackageNotFoundError):
            return distribution(name)
    return None


def _near(path: Path) -> str:
    """Return a path relative to the working folder, if it is below that."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
