#!/bin/sh
# install.sh FOLDER EXTRA [PYTHON]: makes a virtual environment in FOLDER with Corelane and the pinned versions of
# constraints/cpu.txt. It installs the CPU build of PyTorch, from pip's own sources if they have it, else from PyTorch's
# own CPU index. Where no CPU build exists (macOS) it installs the plain one. It never installs the CUDA build, which is
# gigabytes.
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

if ! "$folder/bin/python" -c 'import torch' 2>/dev/null; then
    echo "installing PyTorch $torch (CPU build)"
    case $(uname -s) in
        Linux)
            pip install --quiet -c constraints/cpu.txt "torch==$torch+cpu" 2>/dev/null ||
                pip install --quiet -c constraints/cpu.txt --extra-index-url "$cpu_index" "torch==$torch+cpu"
            ;;
        *) pip install --quiet -c constraints/cpu.txt "torch==$torch" ;;
    esac
fi
echo "installing Corelane ($extra)"
pip install --quiet -c constraints/cpu.txt -e ".[$extra]"
