#!/bin/sh
# install.sh [PYTHON]: makes the virtual environments of the peers that need their own, in .corelane/peers, with the
# versions in benchmarks/peers/requirements. PyTorch is the CPU build of constraints/cpu.txt, from pip's own sources if
# they have it, else from PyTorch's own CPU index. An environment is made again when its file of versions changes. A
# peer without wheels for this machine is left out, and the page names it.
set -eu
python=${1:-python3}
cpu_index=$(sed -n 's/^cpu_index=//p' deploy/install.sh)

for versions in benchmarks/peers/requirements/*.txt; do
    name=$(basename "$versions" .txt)
    folder=.corelane/peers/$name
    cmp -s "$versions" "$folder/installed.txt" && continue
    echo "installing $name"
    rm -rf "$folder"
    "$python" -m venv "$folder"
    if "$folder/bin/python" -m pip install --quiet --only-binary :all: -r "$versions" 2>/dev/null ||
        "$folder/bin/python" -m pip install --quiet --only-binary :all: --extra-index-url "$cpu_index" -r "$versions"; then
        cp "$versions" "$folder/installed.txt"
    else
        echo "$name could not be installed" >&2
        rm -rf "$folder"
    fi
done
