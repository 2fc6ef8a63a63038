#!/usr/bin/env bash
# Installs a package of Debian for some tests: deploy/debian.sh chromium "the tests of the console". Where that cannot be
# done it says so, and these tests are skipped.
set -uo pipefail
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null && as_root=(sudo -n)
fi
if command -v apt-get >/dev/null; then
  "${as_root[@]}" apt-get -q update && "${as_root[@]}" apt-get -q install -y --no-install-recommends "$1"
fi
PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null || echo "$1 is missing and could not be installed: $2 are skipped" >&2
exit 0
