"""Hosts for tests: network namespaces on one switch, each with its own name, address, boot and clock.

A host is cut off by taking its port off the switch: its own side of the cable stays up, so packets vanish as they do in
a real network, and no connection is told. The switch is in a namespace of its own, where no firewall of this machine
looks at what passes.

``python -m tests.hosts.network`` says loudly where there can be none; then the tests that need hosts are skipped.
"""

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

#: Namespaces of tests begin so; the process that made them follows.
PREFIX = "corelane-test-"

#: Gives a process the host's name and boot id, then becomes the command.
AS_HOST = 'hostname "$1"; mount --bind "$2" /proc/sys/kernel/random/boot_id; shift 2; exec "$@"'


def need_namespaces() -> None:
    """Skip the test where this user may not make hosts, with the reason."""
    if reason := missing():
        pytest.skip(f"no network namespaces: {reason}")


def missing() -> str:
    """Return why there can be no hosts on this machine; empty if there can."""
    if os.geteuid() != 0:
        return "this needs root"
    if lacks := [tool for tool in ("ip", "unshare", "mount", "hostname") if shutil.which(tool) is None]:
        return f"there is no {' or '.join(lacks)} (Debian's iproute2, util-linux, mount and hostname)"
    try:
        with Switch():
            return ""
    except subprocess.CalledProcessError as error:
        return f"`{' '.join(error.cmd)}`: {error.stderr.strip()}"


def ip(*arguments: str) -> str:
    """Run the command `ip`; raises CalledProcessError with what it said."""
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


class Host:
    """One host: commands run in its namespace, under its name."""

    def __init__(self, switch: "Switch", name: str, number: int) -> None:
        self.name = name
        self.address = f"{switch.network}.{10 + number}"
        self.space = f"{switch.tag}-{name}"
        self._switch = switch
        self._port = f"clp{switch.number}-{number}"
        self._boot = switch.folder / f"{name}.boot" if switch.folder else None
        if self._boot is not None:
            self._boot.write_text(f"{uuid4()}\n")
        ip("netns", "add", self.space)
        ip("link", "add", self._port, "netns", switch.space, "type", "veth", "peer", "eth0", "netns", self.space)
        ip("-n", self.space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.space, "link", "set", device, "up")
        ip("-n", switch.space, "link", "set", self._port, "master", "switch", "up")

    def command(self, *argv: str) -> list[str]:
        """Return a command that runs on this host, as the process that is started."""
        here = ["ip", "netns", "exec", self.space, "unshare", "--uts"]
        return [*here, "sh", "-c", AS_HOST, "sh", self.name, str(self._boot), *argv]

    def cut(self) -> None:
        """Take the host off the network; what it sends is lost, and nobody tells it."""
        ip("-n", self._switch.space, "link", "set", self._port, "nomaster")

    def heal(self) -> None:
        """Put it back."""
        ip("-n", self._switch.space, "link", "set", self._port, "master", "switch")


class Switch:
    """A network of hosts that this process is on too, inside a ``with``."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.number = random.SystemRandom().randrange(0x1000, 0x10000)
        self.tag = f"{PREFIX}{os.getpid()}-{self.number:x}"
        self.space = f"{self.tag}-switch"
        self.network = f"10.{128 + self.number % 100}.{self.number // 100 % 256}"
        self.address = f"{self.network}.1"
        self._cable = f"clh{self.number}"
        self._hosts: list[Host] = []

    def __enter__(self) -> "Switch":
        remove_forgotten()
        try:
            ip("netns", "add", self.space)
            ip("-n", self.space, "link", "add", "switch", "type", "bridge")
            ip("-n", self.space, "link", "set", "switch", "up")
            ip("link", "add", self._cable, "type", "veth", "peer", "uplink", "netns", self.space)
            ip("-n", self.space, "link", "set", "uplink", "master", "switch", "up")
            ip("addr", "add", f"{self.address}/24", "dev", self._cable)
            ip("link", "set", self._cable, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for space in (*(host.space for host in self._hosts), self.space):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", space)

    def add(self, name: str) -> Host:
        """Add a host."""
        host = Host(self, name, len(self._hosts))
        self._hosts.append(host)
        return host


def remove_forgotten() -> None:
    """Remove the namespaces of test runs that were killed."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and not Path(f"/proc/{owner}").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)


@contextmanager
def cut_off(*hosts: Host) -> Iterator[None]:
    """Keep hosts off the network inside a ``with``."""
    for host in hosts:
        host.cut()
    try:
        yield
    finally:
        for host in hosts:
            host.heal()


def main() -> None:
    """Get the command `ip` where it is missing and this user may; say loudly if there can be no hosts."""
    if shutil.which("ip") is None and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (["update"], ["install", "-y", "--no-install-recommends", "iproute2"]):
            subprocess.run(["apt-get", "-q", *command], check=False, timeout=300)
    if reason := missing():
        line = "!" * 100
        sys.stderr.write(f"{line}\nSEVERAL HOSTS ARE NOT TESTED: no network namespaces here: {reason}\n{line}\n")


if __name__ == "__main__":
    main()
