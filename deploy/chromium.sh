#!/usr/bin/env bash
# Installs Debian's chromium for the tests of the console. Where that cannot be done it says so, and the tests of the
# console are skipped; `make test-browser` then fails.
set -uo pipefail
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null && as_root=(sudo -n)
fi
if command -v apt-get >/dev/null; then
  "${as_root[@]}" apt-get -q update && "${as_root[@]}" apt-get -q install -y --no-install-recommends chromium
fi
command -v chromium >/dev/null || echo "chromium is missing and could not be installed: the tests of the console are skipped" >&2
exit 0
