"""Redis and Valkey servers for tests, from Debian's packages: unpacked into a cache folder, without root.

``python -m tests.redis_servers.debian`` gets them (``make redis-servers``). With names it prints those that are here.
They come through lists of packages of our own, from the archive that this machine's apt uses. Each brings its
libraries, the C library too, as those of a later release of Debian need a newer one. A machine that is not Debian, or
cannot reach an archive, has none: then it says so, loudly, and the tests run on the bundled server alone.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CACHE = Path.home() / ".cache" / "corelane-tests" / "redis-servers"

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

#: What each of these servers is linked with.
LIBRARIES = ("libatomic1", "libc6", "libcap2", "libgcc-s1", "libjemalloc2", "liblzf1", "libstdc++6", "libsystemd0")
LIBRARIES_LOADED = ("libgcrypt20", "libgpg-error0", "liblz4-1", "liblzma5", "libzstd1", "zlib1g")

START = """#!/bin/sh
here={folder}
libraries=$here/usr/lib/{arch}:$here/lib/{arch}
exec "$here"{loader} --argv0 {binary} --library-path "$libraries" "$here/usr/bin/{binary}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Packaged:
    """A server as a release of Debian has it."""

    name: str
    release: str
    binary: str
    packages: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The command that starts it, once it is there."""
        return CACHE / self.name / self.binary


SERVERS = (
    Packaged("redis-7.0", "bookworm", "redis-server", ("redis-server", "redis-tools", "libssl3")),
    Packaged("redis-8.0", "trixie", "redis-server", ("redis-server", "redis-tools", "libssl3t64")),
    Packaged("valkey-8.1", "trixie", "valkey-server", ("valkey-server", "valkey-tools", "libssl3t64")),
)


def run(*argv: str, cwd: Path = Path("/")) -> str:
    """Run a command; raises CalledProcessError with what it said."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300, cwd=cwd).stdout


def find_archive() -> str:
    """Return the address of the archive of packages that this machine's apt uses."""
    shown = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Identifier: Packages").splitlines()
    found = [line.split()[0] for line in shown if line.split()[1:2] in (["bookworm"], ["trixie"])]
    if not found or not KEYS.exists():
        raise ValueError("apt here has no source of Debian 12 or 13")
    return found[0]


def get(missing: list[Packaged]) -> None:
    """Unpack servers into the cache folder."""
    apt = CACHE / "apt"
    shutil.rmtree(apt, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "sources", "packages"):
        (apt / folder).mkdir(parents=True)
    source = f"Types: deb\nURIs: {find_archive()}\nSuites: bookworm trixie\nComponents: main\nSigned-By: {KEYS}\n"
    (apt / "sources" / "tests.sources").write_text(source)
    own = ["-qq", "-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={apt}/sources"]
    own += ["-o", f"Dir::State::Lists={apt}/lists", "-o", f"Dir::Cache={apt}/cache", "-o", "Debug::NoLocking=1"]
    run("apt-get", *own, "update")
    for server in missing:
        unpack(server, own, apt / "packages" / server.name)
    shutil.rmtree(apt)


def unpack(server: Packaged, options: list[str], packages: Path) -> None:
    """Download a server and its libraries, and write the command that starts it."""
    folder = CACHE / server.name
    shutil.rmtree(folder, ignore_errors=True)
    packages.mkdir()
    names = [f"{name}/{server.release}" for name in (*server.packages, *LIBRARIES, *LIBRARIES_LOADED)]
    run("apt-get", *options, "download", *names, cwd=packages)
    for package in packages.glob("*.deb"):
        run("dpkg", "-x", str(package), str(folder))
    for unused in ("usr/share", "etc", "var"):
        shutil.rmtree(folder / unused, ignore_errors=True)
    patterns = ("lib*/ld-linux*.so.*", "usr/lib*/ld-linux*.so.*")
    loader = next(path for pattern in patterns for path in folder.glob(pattern)).relative_to(folder)
    arch = next(folder.glob("usr/lib/*-linux-gnu*")).name
    server.path.write_text(START.format(folder=folder, binary=server.binary, arch=arch, loader=f"/{loader}"))
    server.path.chmod(0o755)


def main() -> None:
    """Get what is missing, or say loudly that it cannot be had; that fails nobody's build."""
    missing = [server for server in SERVERS if not server.path.exists()]
    try:
        if missing:
            get(missing)
        for server in SERVERS:
            sys.stdout.write(f"{server.name}: {run(str(server.path), '--version')}")
    except (OSError, subprocess.SubprocessError, ValueError, StopIteration) as error:
        said = getattr(error, "stderr", "") or error
        line = "!" * 100
        names = ", ".join(server.name for server in missing)
        sys.stderr.write(f"{line}\nNOT TESTED ON {names}: Debian's packages cannot be had.\n{said}\n{line}\n")


def print_here(names: list[str]) -> None:
    """Print which of the named servers are here; end with an error for an unknown name."""
    if unknown := set(names) - {server.name for server in SERVERS}:
        sys.exit(f"unknown servers: {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in SERVERS)}")
    sys.stdout.write(" ".join(server.name for server in SERVERS if server.name in names and server.path.exists()))


if __name__ == "__main__":
    print_here(sys.argv[1:]) if sys.argv[1:] else main()
