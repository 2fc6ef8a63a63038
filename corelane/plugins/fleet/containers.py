"""``corelane logs`` and ``corelane down``: what Docker Compose started from this folder's file, and nothing else.

Docker Compose marks each container with its project and with the files that the project was made of. A project is ours
if all of its containers were made of our file.
"""

import json
import shutil
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from corelane.cli.output import error_console
from corelane.errors import InvalidInput, SetupError

#: The labels that Compose sets on containers.
PROJECT, FILES, SERVICE = (f"com.docker.compose.{name}" for name in ("project", "project.config_files", "service"))

#: The output format for `docker ps`: a line for each container, with tabs.
FORMAT = "\t".join(f'{{{{.Label "{label}"}}}}' for label in (PROJECT, FILES, SERVICE))

#: Longest wait for a reply of the engine, in seconds: with many containers it is slow.
ENGINE_TIMEOUT_S = 60

FileOption = Annotated[Path, typer.Option("--file", "-f", help="The compose file that the containers were made of.")]

DEFAULT_FILE = Path("docker-compose.yml")


@dataclass(frozen=True, slots=True)
class Container:
    """A container of any project."""

    project: str
    files: tuple[str, ...]
    service: str


def logs(
    parts: Annotated[list[str] | None, typer.Argument(metavar="[PART]...", help="As api, worker, worker-0.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as lines come.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="So many lines from the end of each.")] = None,
    since: Annotated[str | None, typer.Option(help="Since a time, or for so long: 10m.")] = None,
    file: FileOption = DEFAULT_FILE,
) -> None:
    """Show what the containers of this folder's compose file print."""
    own = find_project(_containers(), _path(file))
    if not own:
        raise InvalidInput(f"no containers of {_path(file)}: start them with `docker compose up`")
    services = services_of(parts or [], {each.service for each in own})
    options = [
        *(["--follow"] if follow else []),
        *(["--tail", str(tail)] if tail is not None else []),
        *(["--since", since] if since else []),
    ]
    _compose(own[0].project, "logs", *options, *services)


def down(
    volumes: Annotated[
        bool, typer.Option("--volumes", help="Delete the volumes too: jobs, results, compiled models.")
    ] = False,
    file: FileOption = DEFAULT_FILE,
) -> None:
    """Stop and remove the containers of this folder's compose file, and their network."""
    path, containers = _path(file), _containers()
    own = find_project(containers, path)
    project = own[0].project if own else _name_in(path)
    refuse_foreign(containers, project, path)
    if not own and not (volumes and _run("volume", "ls", "--quiet", "--filter", f"label={PROJECT}={project}")):
        error_console().print(f"nothing of {path} is there")
        return
    _compose(project, "down", *(["--volumes"] if volumes else []))


def _path(file: Path) -> Path:
    if not file.is_file():
        raise InvalidInput(f"{file} is not here: go to the folder that has it, or give --file")
    return file.resolve()


def _containers() -> list[Container]:
    return read_containers(_run("ps", "--all", "--filter", f"label={PROJECT}", "--format", FORMAT))


def _name_in(file: Path) -> str:
    """Return the name that Compose gives to the project of a file."""
    name: str = json.loads(_run("compose", "--file", str(file), "config", "--format", "json"))["name"]
    return name


def _run(*arguments: str) -> str:
    """Return the output of docker; raise SetupError if it fails."""
    try:
        done = subprocess.run(  # noqa: S603  # a command of our own
            [_docker(), *arguments], capture_output=True, text=True, timeout=ENGINE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"docker does not respond: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        raise SetupError(f"docker cannot do this: {said[0]}")
    return done.stdout


def _docker() -> str:
    if found := shutil.which("docker"):
        return found
    raise SetupError("there is no `docker` on PATH: install Docker Engine with its compose plugin")


def _compose(project: str, *arguments: str) -> None:
    """Run Compose on a project by its name only, so that it uses the labels of containers and not a file."""
    _run("compose", "version")
    done = subprocess.run([_docker(), "compose", "--project-name", project, *arguments], check=False)  # noqa: S603
    if done.returncode:
        raise typer.Exit(done.returncode)


def read_containers(text: str) -> list[Container]:
    """Read the lines of `docker ps` in our format; containers that Compose did not make are left out."""
    found = []
    for line in text.splitlines():
        project, files, service = [*line.split("\t"), "", ""][:3]
        if project:
            found.append(Container(project, tuple(files.split(",")), service))
    return found


def find_project(containers: Iterable[Container], file: Path) -> list[Container]:
    """Return the containers of the project that was made from a file; an empty list if there is none.

    Raise SetupError if there are several projects, or if the project also has containers of another file: both have the
    same project name, so Compose would treat all of them as its own.
    """
    containers, path = list(containers), str(file)
    projects = sorted({each.project for each in containers if path in each.files})
    if len(projects) > 1:
        raise SetupError(f"{path} runs as several projects ({', '.join(projects)}): use `docker compose -p NAME`")
    own = [each for each in containers if each.project in projects]
    for each in own:
        if path not in each.files:
            raise SetupError(
                f"the project {each.project} has containers of {', '.join(each.files)} too, which are not ours; "
                "give each a name of its own: COMPOSE_PROJECT_NAME"
            )
    return own


def refuse_foreign(containers: Iterable[Container], project: str, file: Path) -> None:
    """Raise SetupError if a project of this name was made from another file."""
    for each in containers:
        if each.project == project and str(file) not in each.files:
            raise SetupError(f"the project {project} runs from {', '.join(each.files)}, not from {file}")


def services_of(parts: Sequence[str], services: Collection[str]) -> list[str]:
    """Return the services of parts, as `api` or `worker`, or all; raise InvalidInput for a part that does not run."""
    chosen: list[str] = []
    for part in parts:
        found = [each for each in sorted(services) if each == part or each.startswith(f"{part}-")]
        if not found:
            raise InvalidInput(f"{part}: no such part runs; there are {', '.join(sorted(services))}")
        chosen += found
    return chosen
