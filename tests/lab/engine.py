"""A project of Docker Compose, made of a fresh clone: its commands, and what is left of it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import free_port

ROOT = Path(__file__).parents[2]

#: A build on a busy machine takes minutes, in seconds.
LONGEST_S = 3600

PROJECT = "com.docker.compose.project"


class Project:
    """A clone of this repository's last commit, with ports of its own. Its project's name is that of its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.ports = {name: free_port() for name in ("CORELANE_PORT", "CORELANE_FLOWER_PORT", "PROMETHEUS_PORT")}
        self.ports["GRAFANA_PORT"] = free_port()
        self.url = f"http://127.0.0.1:{self.ports['CORELANE_PORT']}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("CORELANE_", "COMPOSE_"))}
        self.environment = clean | {name: str(port) for name, port in self.ports.items()} | wheels()

    def clone(self) -> None:
        self.run("git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(self.folder), cwd=ROOT)

    def configure(self, **settings: str) -> None:
        """Add settings to the clone's `.env`, which containers read."""
        with (self.folder / ".env").open("a") as file:
            file.writelines(f"CORELANE_{name.upper()}={value}\n" for name, value in settings.items())

    def run(self, *argv: str, cwd: Path | None = None, check: bool = True) -> str:
        """Run a command in the clone; return what it said, or raise SystemExit with it."""
        done = subprocess.run(
            argv, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True, timeout=LONGEST_S
        )
        if check and done.returncode:
            raise SystemExit(f"{' '.join(argv)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def compose(self, *arguments: str, check: bool = True) -> str:
        return self.run("docker", "compose", *arguments, check=check)

    def container(self, service: str) -> str:
        """Return the id of the container of a service, running or not."""
        return self.compose("ps", "--all", "--quiet", service).strip()

    def state(self, service: str) -> tuple[str, str, int]:
        """Return whether it runs, its health, and how often the engine started it again."""
        [found] = json.loads(self.run("docker", "inspect", self.container(service)))
        state = found["State"]
        return state["Status"], state.get("Health", {}).get("Status", ""), found["RestartCount"]

    def leftovers(self) -> list[str]:
        """Return every container, volume and network of this project."""
        found = []
        for kind, listing in (
            ("container", ["ps", "--all"]),
            ("volume", ["volume", "ls"]),
            ("network", ["network", "ls"]),
        ):
            names = self.run("docker", *listing, "--quiet", "--filter", f"label={PROJECT}={self.name}")
            found += [f"{kind} {name}" for name in names.split()]
        return found

    def remove(self) -> None:
        """Remove all of it, whatever is left, and the clone."""
        if self.folder.exists():
            self.compose("down", "--volumes", "--remove-orphans", check=False)
            shutil.rmtree(self.folder)


def wheels() -> dict[str, str]:
    """Return the folder of wheels that builds look at first, where this machine has one for pip."""
    folder = os.environ.get("CORELANE_WHEELS") or os.environ.get("PIP_FIND_LINKS", "")
    return {"CORELANE_WHEELS": folder} if folder and Path(folder).is_dir() else {}


def engine() -> str:
    """Return what engine there is; raise SystemExit where none can be reached."""
    if shutil.which("docker") is None:
        raise SystemExit("there is no `docker` on PATH: this needs Docker Engine with its compose plugin")
    done = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise SystemExit(f"no Docker engine can be reached: {done.stderr.strip()}")
    compose = subprocess.run(["docker", "compose", "version", "--short"], capture_output=True, text=True, timeout=60)
    return f"Docker {done.stdout.strip()}, Compose {compose.stdout.strip()}"
