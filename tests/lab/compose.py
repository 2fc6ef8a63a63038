"""``make compose-lab``: the compose file in a real Docker engine, from a fresh clone of the last commit.

It comes up for two cores and answers a question by curl. Each container is killed in the middle of a job: it is
restarted, and the job ends with every answer. Then `down` leaves nothing. The second half is the monitoring: every
query of the boards has data. It prints a line for each thing shown, and ends with status 1 at the first that is not so.
"""

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.engine import Project, engine, wheels
from tests.lab.monitoring import show_monitoring
from tests.tools.passages import PASSAGES

QUESTION = {"question": "Who wrote it?", "context": "Ada wrote it in 1843."}

#: Items of the job in whose middle a worker dies: many claims for two cores.
ITEMS = 2200

#: On a busy machine each step takes minutes, in seconds.
PATIENCE_S = 1200

STARTED = time.monotonic()


def say(line: str) -> None:
    sys.stdout.write(f"{time.monotonic() - STARTED:7.1f} s  {line}\n")
    sys.stdout.flush()


def show(what: str, is_so: bool) -> None:
    """Say that something is so; raise SystemExit where it is not."""
    if not is_so:
        raise SystemExit(f"NOT SO: {what}")
    say(f"ok: {what}")


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"NOT SO after {PATIENCE_S} s: {what}")
        time.sleep(0.5)
    say(f"ok: {what}")


def ask(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def show_the_files(project: Project) -> None:
    """Show that Compose takes each file that is added to the first."""
    first = ("-f", "docker-compose.yml")
    for files in (
        ("compose/neuron",),
        ("compose/cuda",),
        ("compose/neuron", "compose/core-each"),
        ("monitoring/compose",),
    ):
        added = [word for file in files for word in ("-f", f"deploy/{file}.yml")]
        project.compose(*first, *added, "config", "--quiet")
        show(f"Compose takes {' and '.join(files)}", True)


def show_rights(project: Project) -> None:
    """Show that no container runs as root, holds a capability or writes its root."""
    script = "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)' /proc/1/status; touch /new 2>&1 || touch /tmp/new"
    for service in project.compose("ps", "--services").split():
        said = project.compose("exec", "-T", service, "sh", "-c", script)
        fields = dict(line.split(None, 1) for line in said.splitlines() if ":" in line.split()[0])
        none = {fields["CapEff:"].strip("0"), fields["CapBnd:"].strip("0")} == {""}
        is_user, is_bound = not fields["Uid:"].startswith("0"), fields["NoNewPrivs:"] == "1"
        is_fixed = "Read-only file system" in said
        show(f"{service}: a user, no capabilities, a read-only root", is_user and none and is_bound and is_fixed)


def show_kills(project: Project) -> None:
    """Show that each container that is killed in the middle of a job comes back by itself, and the job is done."""
    items = [{"question": question, "context": context} for question, context in PASSAGES.values()]
    for service in ("workers", "keeper", "deliveries", "flower", "api", "redis"):
        job = ask(f"{project.url}/v1/jobs", {"items": (items * (ITEMS // len(items) + 1))[:ITEMS]})["id"]
        wait_for("a job runs", lambda job=job: state_of(project, job)["status"] == "running")  # type: ignore[misc]
        before = project.state(service)[2]
        # All its processes but the first die, and that one ends with them: as at a crash.
        project.compose("exec", "-T", service, "sh", "-c", "kill -9 -1", check=False)
        wait_for(f"{service} is started again", lambda s=service, n=before: project.state(s)[2] > n)  # type: ignore[misc]
        wait_for("its job is done", lambda job=job: state_of(project, job)["status"] == "succeeded")  # type: ignore[misc]
        found = state_of(project, job)["counts"]
        show(f"every item was answered: {found}", found["succeeded"] == ITEMS)
        wait_for(f"{service} is healthy", lambda s=service: project.state(s)[:2] == ("running", "healthy"))  # type: ignore[misc]
    # `docker kill` counts as a stop by hand for the restart policy: Compose brings it back.
    project.run("docker", "kill", "--signal", "KILL", project.container("workers"))
    project.compose("up", "--detach", "--wait")
    show("workers after `docker kill` and `up` are healthy", project.state("workers")[:2] == ("running", "healthy"))


def state_of(project: Project, job: str) -> Any:
    """Return a job; nothing of it while the API is away."""
    try:
        return ask(f"{project.url}/v1/jobs/{job}")
    except OSError:
        return {"status": None}


def main() -> None:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="Leave it running.")
    keep = parser.parse_args().keep
    say(engine())
    if wheels():
        say(f"wheels are taken from {wheels()['CORELANE_WHEELS']} first")
    project = Project(Path(tempfile.mkdtemp(prefix="corelane-lab-")))
    try:
        project.clone()
        project.configure(cores="2")
        project.environment["REVISION"] = project.run("git", "rev-parse", "HEAD").strip()
        say(f"cloned {project.run('git', 'log', '-1', '--format=%h %s').strip()}")
        show_the_files(project)
        # All parts run one image, so one of them is built.
        project.compose("build", "api")
        size = project.run("docker", "image", "inspect", "corelane", "--format", "{{.Size}}")
        show(f"the image is built: {int(size) / 1e9:.2f} GB", True)
        project.compose("up", "--detach", "--wait")
        show("`docker compose up -d --wait`", True)
        curl = ("curl", "--silent", "--fail", "-H", "content-type: application/json", "-d", json.dumps(QUESTION))
        answer = json.loads(project.run(*curl, f"{project.url}/v1/answers"))["answer"]
        show(f"a question by curl: {answer['text']!r}", answer["text"] == "Ada")
        show_rights(project)
        show_kills(project)
        show_monitoring(project, say, show, wait_for)
        if not keep:
            project.compose("down")
            left = {line.split()[0] for line in project.leftovers()}
            show("`docker compose down` leaves the volumes alone", left == {"volume"})
            monitoring = project.environment.pop("COMPOSE_FILE")
            project.compose("up", "--detach", "--wait")
            show("it comes up again with them", True)
            project.environment["COMPOSE_FILE"] = monitoring
            project.compose("down", "--volumes")
            show("`docker compose down -v` leaves nothing", project.leftovers() == [])
    finally:
        if not keep:
            project.remove()
    say("all of it was shown")


if __name__ == "__main__":
    main()
