#!/usr/bin/env bash
# restore.sh FILE.tar DATA: put a backup by backup.sh into a new data folder, on which `corelane serve` then starts.
# Each file is compared with its digest first. If one is changed or missing, nothing is restored.
set -euo pipefail
umask 077
fail() { echo "restore.sh: $1" >&2; exit 1; }
[ $# = 2 ] || fail "give the backup and the new data folder, as in restore.sh /backups/corelane.tar new"
[ -f "$1" ] || fail "there is no file $1"
[ ! -e "$2" ] || rmdir "$2" 2>/dev/null || fail "$2 is not empty: name a new folder"

aside=$2.restoring
rm -rf "$aside"
mkdir -p "$aside"
trap 'rm -rf "$aside"' EXIT
tar -C "$aside" -xf "$1" && (cd "$aside" && sha256sum --quiet --strict -c SHA256SUMS) >&2 \
  || fail "$1 is no whole backup: nothing was restored; take another one"
rm "$aside/SHA256SUMS"
sync
mv -T "$aside" "$2"
echo "start it: corelane serve --data $2"
