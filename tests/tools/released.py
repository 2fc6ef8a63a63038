"""The newest release that is an ancestor of ``HEAD``, as source that runs; without a tag it is ``HEAD`` itself."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: What a service runs from, and its pages.
PARTS = ("api", "compile", "corelane", "docs", "workers", "pyproject.toml", "README.md", "LICENSE")

#: Writes the source's own metadata beside it, which names its plugins.
DESCRIBE = "from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel('.')"


@dataclass(frozen=True)
class Source:
    """A folder of source that Python and Celery run: each of them looks into the working folder first."""

    folder: Path

    def command(self, *argv: str) -> list[str]:
        return ["env", f"--chdir={self.folder}", *argv]

    def output(self, *arguments: str, **settings: str) -> str:
        """Return what Python prints there; raise CalledProcessError if it fails."""
        env, argv = os.environ | settings, self.command(sys.executable, *arguments)
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=120).stdout


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, timeout=60).stdout


def unpack_release(folder: Path) -> Source:
    """Write the source of the newest release into a folder, and return it."""
    tags = git("tag", "--merged", "HEAD", "--sort=-v:refname").decode().split()
    newest = next((tag for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)), "HEAD")
    subprocess.run(["tar", "-x", "-C", folder], input=git("archive", newest, *PARTS), check=True, timeout=60)
    source = Source(folder)
    source.output("-c", DESCRIBE)
    return source
