"""A container of the manifests, run as in a pod: its command, its settings, not as root, on a root that is read-only.

Mounts stand in for images and volumes: a new root has the machine's folders, which cannot be written, and empty ones
where the manifest mounts volumes. There is no network of its own.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.kubernetes_tools import Object
from tests.tools.waiting import eventually

ROOT = Path(__file__).parent.parent.parent

#: What must be readable inside, wherever it is: this repository with its environment, and the interpreter.
READABLE = (str(ROOT), sys.base_prefix)

#: Makes the root ($1) of a pod with these volumes ($2, separated by blanks), in which some folders ($3) can be read
#: although they may lie in one that is private. Then runs the rest as user $4, without capabilities and without a way
#: to get any.
RUN = """
set -e
root=$1 volumes=$2 readable=$3 user=$4; shift 4
mount -t tmpfs -o mode=755 pod "$root"
for each in /*; do
    case $each in /tmp|/root) continue ;; esac
    if [ -L "$each" ]; then cp -P "$each" "$root$each"
    elif [ -d "$each" ]; then mkdir "$root$each"; mount --rbind "$each" "$root$each"
    fi
done
for each in $volumes; do mkdir -p "$root$each"; mount -t tmpfs -o mode=1777 volume "$root$each"; done
for each in $readable; do mkdir -p "$root$each"; mount --bind "$each" "$root$each"; done
for each in /*; do
    case $each in /proc|/dev|/sys) continue ;; esac
    [ ! -d "$root$each" ] || [ -L "$each" ] || mount -o remount,bind,ro "$root$each" 2>/dev/null || true
done
for each in $volumes; do mount -o remount,bind,rw "$root$each"; done
for each in $readable; do mount -o remount,bind,ro "$root$each"; done
mount -o remount,bind,ro "$root"
cd /
exec chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups --bounding-set=-all --inh-caps=-all \\
    --no-new-privs "$@"
"""


def settings_of(container: Object, objects: Sequence[Object], pod: str) -> dict[str, str]:
    """Return the variables that a container gets from its ConfigMaps and its own list."""
    maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= maps[source["configMapRef"]["name"]] if "configMapRef" in source else {}
    for variable in container.get("env", ()):
        found[variable["name"]] = variable.get("value", pod)
    return found


class Pod:
    """One running container."""

    def __init__(self, container: Object, user: int, folder: Path, variables: Mapping[str, str]) -> None:
        self._container, self._user, self._folder = container, str(user), folder
        #: Of this interpreter, not of an image; nothing else of the tests' environment is there.
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin"
        self._env = {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **variables}
        volumes = " ".join(each["mountPath"] for each in container["volumeMounts"])
        folder.mkdir(parents=True)
        self.log = folder.with_suffix(".log")
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                self._argv(volumes, container["command"]), env=self._env, stdout=out, stderr=subprocess.STDOUT
            )

    def _argv(self, volumes: str, command: Sequence[str]) -> list[str]:
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", RUN, "pod"]
        return [*unshare, str(self._folder), volumes, " ".join(READABLE), self._user, *command]

    def execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as a probe does."""
        inside = ["nsenter", "--target", str(self.process.pid), "--mount", "--root", "--wd=/"]
        rights = ["setpriv", "--reuid", self._user, "--regid", self._user, "--clear-groups"]
        return subprocess.run([*inside, *rights, *command], env=self._env, capture_output=True, text=True, timeout=60)

    def probe(self, name: str) -> str | None:
        """Run one of its probes by a command; return what it says is wrong."""
        done = self.execute(self._container[f"{name}Probe"]["exec"]["command"])
        return None if done.returncode == 0 else done.stdout or done.stderr

    def stop(self) -> int:
        """Ask it to end, as the kubelet does; return its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def run_pod(container: Object, user: int, folder: Path, variables: Mapping[str, str]) -> Iterator[Pod]:
    """Run a container, and end it whatever happens."""
    pod = Pod(container, user, folder, variables)
    try:
        yield pod
    finally:
        if pod.process.poll() is None:
            pod.process.kill()
            pod.process.wait(60)


def need_pods(folder: Path) -> None:
    """Skip the test where such a root cannot be made, or this repository cannot be read from it."""
    if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "setpriv", "chroot"))):
        pytest.skip("a pod's root is made of mounts, which need root, unshare, nsenter and setpriv")
    container: dict[str, Any] = {
        "command": ["python", "-c", "import corelane"],
        "volumeMounts": [{"mountPath": "/tmp"}],
    }
    with run_pod(container, 10001, folder, {}) as pod:
        if pod.process.wait(60) != 0:
            pytest.skip(f"a pod's root cannot be made here: {pod.log.read_text().strip()[-300:]}")


def wait_for_probe(pod: Pod, name: str, seconds: float = 60) -> None:
    """Wait until a probe succeeds."""

    def is_well() -> bool:
        if pod.process.poll() is not None:
            raise RuntimeError(pod.log.read_text()[-3000:])
        fault = pod.probe(name)
        assert fault is None, fault
        return True

    eventually(is_well, seconds, pod.log.read_text)
