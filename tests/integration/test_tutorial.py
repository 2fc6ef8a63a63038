"""The first hour of docs/handlers.md, followed word for word: its files are written, its commands run, in order."""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import free_port
from tests.tools.fleet import Fleet, launch_fleet, running
from tests.tools.snippets import ROOT, Snippet, snippets

PAGE, END = "docs/handlers.md", "## The class"


def steps() -> list[Snippet]:
    """Return the blocks of the page before its reference begins."""
    text = (ROOT / PAGE).read_text()
    last = text.count("\n", 0, text.index(END))
    return [each for each in snippets() if each.page == PAGE and each.line < last]


class Reader:
    """Someone at a terminal in a folder of their own, with `corelane` and `python` on the PATH."""

    def __init__(self, folder: Path, data: Path, stack: ExitStack) -> None:
        self.folder, self._data, self._stack = folder, data, stack
        self.said = ""
        programs = folder / "bin"
        programs.mkdir()
        for name, command in (("corelane", f"{sys.executable} -m corelane"), ("python", sys.executable)):
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod((programs / name).stat().st_mode | stat.S_IXUSR)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        self.env = dict(os.environ) | {"PATH": path, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
        self.names = {"9000": str(free_port())}

    def serve(self, command: str, **env: str) -> None:
        """Run `corelane serve`, on free ports, until the end."""
        options = shlex.split(command.partition("2>&1")[0])[2:]
        artifacts = shutil.copytree(self._data / "artifacts", self.folder / "artifacts", copy_function=os.link)
        launched = launch_fleet(self.folder / "data", artifacts, *options, PYTHONPATH=self.env["PYTHONPATH"], **env)
        fleet: Fleet = self._stack.enter_context(running(launched))
        (self.folder / "serve.log").symlink_to(fleet.log)
        self.names["http://127.0.0.1:8000"] = self.env["CORELANE_URL"] = fleet.url

    def type(self, text: str) -> None:
        """Run commands; what they say is kept."""
        for shown, here in self.names.items():
            text = text.replace(shown, here)
        argv = ["bash", "-ec", text]
        done = subprocess.run(argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=200)
        self.said = done.stdout + done.stderr
        assert done.returncode == 0, f"{text}\n{self.said}"

    def see(self, shown: str) -> None:
        """Find the lines that the page shows; … is anything."""
        for name, here in self.names.items():
            shown = shown.replace(name, here)
        for line in shown.splitlines():
            assert re.search(".*".join(map(re.escape, line.split("…"))), self.said), f"{line} is not in {self.said}"


@pytest.fixture
def reader(built_in_data: Path, tmp_path: Path) -> Iterator[Reader]:
    with ExitStack() as stack:
        yield Reader(tmp_path, built_in_data, stack)


def test_the_first_hour_goes_as_the_page_says(reader: Reader) -> None:
    kinds = []
    for step in steps():
        kinds.append(step.language)
        if step.language == "python":
            name, _, code = step.text.removeprefix("# ").partition("\n")
            (reader.folder / name).parent.mkdir(exist_ok=True)
            (reader.folder / name).write_text(step.text)
            assert code
        elif step.language == "text":
            reader.see(step.text)
        elif step.text.startswith("corelane serve"):
            reader.serve(step.text)
        else:
            reader.type(step.text)
    assert kinds.count("python") == 2
    assert kinds.count("text") >= 4
