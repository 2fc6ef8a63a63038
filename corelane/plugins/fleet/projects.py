"""Which containers of an engine are those of one compose file. Pure.

Docker Compose marks each container with its project and with the files that the project was made of. A project is ours
if all of its containers were made of our file.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corelane.errors import InvalidInput, SetupError

#: What Compose marks containers with.
PROJECT, FILES, SERVICE = (f"com.docker.compose.{name}" for name in ("project", "project.config_files", "service"))

#: The format that `docker ps` is asked for: a line each, with tabs.
FORMAT = "\t".join(f'{{{{.Label "{label}"}}}}' for label in (PROJECT, FILES, SERVICE))


@dataclass(frozen=True, slots=True)
class Container:
    """A container of some project."""

    project: str
    files: tuple[str, ...]
    service: str


def read_containers(text: str) -> list[Container]:
    """Read the lines of `docker ps` in our format; those that Compose did not make are left out."""
    found = []
    for line in text.splitlines():
        project, files, service = [*line.split("\t"), "", ""][:3]
        if project:
            found.append(Container(project, tuple(files.split(",")), service))
    return found


def find_project(containers: Iterable[Container], file: Path) -> list[Container]:
    """Return the containers of the one project that was made of a file; none if there is none.

    Raise SetupError where there are several projects, or where one has containers of another file too: its name does
    not tell them apart, and so Compose would take them for its own.
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
    """Raise SetupError where a project of this name was made of another file."""
    for each in containers:
        if each.project == project and str(file) not in each.files:
            raise SetupError(f"the project {project} runs from {', '.join(each.files)}, not from {file}")


def services_of(parts: Sequence[str], services: Collection[str]) -> list[str]:
    """Return the services of these parts, as `api`, or `worker` for every worker; all if no part is named.

    Raise InvalidInput for a part that does not run.
    """
    chosen: list[str] = []
    for part in parts:
        found = [each for each in sorted(services) if each == part or each.startswith(f"{part}-")]
        if not found:
            raise InvalidInput(f"{part}: no such part runs; there are {', '.join(sorted(services))}")
        chosen += found
    return chosen
