"""``corelane logs`` and ``down``: which containers are ours, and what they say without an engine."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.errors import InvalidInput, SetupError
from corelane.plugins.fleet.containers import Container, find_project, read_containers, refuse_foreign, services_of

HERE = "/srv/corelane/docker-compose.yml"


def test_containers_are_read_with_their_marks() -> None:
    listing = f"corelane\t{HERE},/srv/corelane/plan.yml\tapi\n\t\t\nother\t/srv/other/compose.yml\tweb\n"
    assert read_containers(listing) == [
        Container("corelane", (HERE, "/srv/corelane/plan.yml"), "api"),
        Container("other", ("/srv/other/compose.yml",), "web"),
    ]


def test_only_the_project_of_our_file_is_ours() -> None:
    ours, theirs = Container("corelane", (HERE,), "api"), Container("shop", ("/srv/shop/docker-compose.yml",), "api")
    assert find_project([ours, theirs], Path(HERE)) == [ours]
    assert find_project([theirs], Path(HERE)) == []


def test_two_projects_of_one_file_or_two_files_of_one_project_are_left_alone() -> None:
    ours = Container("corelane", (HERE,), "api")
    with pytest.raises(SetupError, match=r"several projects \(blue, corelane\)"):
        find_project([ours, Container("blue", (HERE,), "api")], Path(HERE))
    copy = Container("corelane", ("/home/me/corelane/docker-compose.yml",), "worker-0")
    with pytest.raises(SetupError, match="has containers of /home/me/corelane"):
        find_project([ours, copy], Path(HERE))
    with pytest.raises(SetupError, match="runs from /home/me"):
        refuse_foreign([copy], "corelane", Path(HERE))


def test_a_part_is_a_service_or_all_of_its_numbers() -> None:
    services = ["worker-0", "worker-1", "api", "keeper"]
    assert services_of(["worker", "api"], services) == ["worker-0", "worker-1", "api"]
    assert services_of([], services) == []
    with pytest.raises(InvalidInput, match="web: no such part runs; there are api, keeper, worker-0, worker-1"):
        services_of(["web"], services)


def run(file: Path, *arguments: str, path: str) -> Result:
    return CliRunner(env={"PATH": path}).invoke(make_cli(), [*arguments, "--file", str(file)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "docker-compose.yml"
    file.write_text("services: {}\n")
    return file


def test_a_machine_without_docker_is_told_so(file: Path) -> None:
    for command in ("logs", "down"):
        done = run(file, command, path=str(file.parent))
        assert (done.exit_code, done.stderr.strip()) == (
            1,
            "there is no `docker` on PATH: install Docker Engine with its compose plugin",
        )
    done = run(file.parent / "other.yml", "down", path=str(file.parent))
    assert "other.yml is not here" in done.stderr


def stand_in(folder: Path, script: str) -> str:
    """Put a `docker` into a folder, and return a PATH that finds it first."""
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_what_docker_refuses_is_told(file: Path) -> None:
    path = stand_in(file.parent, "echo 'Cannot connect to the Docker daemon at unix:///x.' >&2; exit 1")
    done = run(file, "logs", path=path)
    assert (done.exit_code, done.stderr.strip()) == (
        1,
        "docker cannot do this: Cannot connect to the Docker daemon at unix:///x.",
    )


def test_compose_is_asked_for_our_project_alone(file: Path) -> None:
    asked = file.parent / "asked"
    listing = rf"printf 'corelane\t{file}\tworker-0\ncorelane\t{file}\tapi\nshop\t/srv/shop.yml\tapi\n'"
    path = stand_in(file.parent, f'case $1 in ps) {listing};; compose) echo "$@" >> {asked};; esac')
    assert run(file, "logs", "worker", "--tail", "5", path=path).exit_code == 0
    assert run(file, "down", "--volumes", path=path).exit_code == 0
    assert asked.read_text().splitlines() == [
        "compose version",
        "compose --project-name corelane logs --tail 5 worker-0",
        "compose version",
        "compose --project-name corelane down --volumes",
    ]


def test_nothing_is_done_where_nothing_is(file: Path) -> None:
    path = stand_in(file.parent, """case "$*" in *config*) echo '{"name": "corelane"}';; esac""")
    assert "no containers of" in run(file, "logs", path=path).stderr
    for volumes in ((), ("--volumes",)):
        done = run(file, "down", *volumes, path=path)
        assert (done.exit_code, done.stderr.strip()) == (0, f"nothing of {file} is there")
