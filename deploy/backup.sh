#!/usr/bin/env bash
# backup.sh DATA FILE.tar: copy what `corelane serve --data DATA` needs to start again, while it works or stands still.
# Redis holds writes back while it begins its snapshot, and each file of jobs gets a second name, a hard link. So the
# copy has every file that the snapshot names. The archive has the digest of each file, which restore.sh compares.
set -euo pipefail
umask 077
fail() { echo "backup.sh: $1" >&2; exit 1; }
[ $# = 2 ] || fail "give the data folder and the new file, as in backup.sh .corelane /backups/corelane.tar"
data=$(realpath "$1") target=$(realpath "$2")
[ -d "$data/redis" ] || fail "\`corelane serve\` keeps no Redis in $data: back yours up by its own means"
[ ! -e "$target" ] || fail "$target exists: a backup replaces none"

exec 8<"$data" 9>>"$data/serve.lock"
flock -n 8 || fail "another backup of $data is being made: wait for it"
runs=$(flock -n 9 && echo no || echo yes)  # if it stands still, no service starts until the copy is made
noted() { grep -o "\"$1\": *\"[^\"]*\"" "$data/parts.json" | cut -d'"' -f4; }
files=${CORELANE_FILES_DIR:-$data/files}
if [ "$runs" = yes ]; then
  files=$(noted files_dir) && port=$(noted redis | sed 's|.*:\([0-9]*\)/.*|\1|') \
    || fail "the service on $data is starting: try again once it is ready"
fi
redis() {  # send one command with the operator's password
  exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
  printf 'AUTH %s\r\n%s\r\nQUIT\r\n' "$(cat "$data/redis-password")" "$*" >&3
  tr -d '\r' <&3
}
is_so() { local found; found=$(redis info persistence) || fail "Redis does not reply"; grep -q "$1" <<<"$found"; }

mkdir -p "$files"
aside=$files.backup
trap '[ "$runs" = no ] || redis client unpause >/dev/null || true; rm -rf "$aside" "$target.part"' EXIT
rm -rf "$aside"
mkdir -p "$aside/redis/appendonlydir"
link() { cp -alnT "$files" "$aside/files" 2>/dev/null || true; }  # a file may be deleted meanwhile

link
if [ "$runs" = yes ]; then
  while is_so '_in_progress:1'; do sleep 0.05; done
  redis client pause 10000 write >/dev/null
  redis bgsave | grep 'saving started' >/dev/null || fail "Redis began no snapshot: try again; its log says why"
  link
  link  # a file that is renamed while the folder is read is found the second time
  redis client unpause >/dev/null
  while is_so rdb_bgsave_in_progress:1; do sleep 0.05; done
  is_so rdb_last_bgsave_status:ok || fail "Redis could not write its snapshot into $data/redis: make room"
  mv "$data/redis/dump.rdb" "$aside/redis/appendonlydir/appendonly.aof.1.base.rdb"
  echo 'file appendonly.aof.1.base.rdb seq 1 type b' > "$aside/redis/appendonlydir/appendonly.aof.manifest"
else
  cp -aT "$data/redis" "$aside/redis"
fi
for name in webhook-secret redis-password redis/users.acl redis/server.json; do
  [ ! -f "$data/$name" ] || cp -p "$data/$name" "$aside/$name"
done
(cd "$aside" && find . -type f -print0 | xargs -0 sha256sum) > "$target.part"
mv "$target.part" "$aside/SHA256SUMS"
tar -C "$aside" -cf "$target.part" .
sync "$target.part"
mv -n "$target.part" "$target"
