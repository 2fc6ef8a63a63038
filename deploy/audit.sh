#!/bin/sh
# audit.sh FOLDER [FILE]: looks for known vulnerabilities of the pinned packages (constraints/cpu.txt) with pip-audit,
# which it installs into an environment of its own in FOLDER. It asks PyPI's advisory data, or with SERVICE=osv that of
# OSV. Exit status: 0 none known, 1 some are, 2 not all could be looked up, which says nothing about the packages. A mirror
# of PyPI without that data knows none of them.
set -u
folder=$1 file=${2:-constraints/cpu.txt}
report=$(mktemp)
trap 'rm -f "$report" "$report.log"' EXIT

not_audited() {
    line=$(printf '%100s' '' | tr ' ' '!')
    printf '%s\nNOT AUDITED: %s\n%s\n' "$line" "$1" "$line" >&2
    exit 2
}

[ -x "$folder/bin/pip-audit" ] || {
    python3 -m venv "$folder" && "$folder/bin/python" -m pip install --quiet -r constraints/audit.txt
} || not_audited "pip-audit could not be installed"
"$folder/bin/pip-audit" --requirement "$file" --disable-pip --no-deps --progress-spinner off --timeout 15 \
    --vulnerability-service "${SERVICE:-pypi}" --format json --output "$report" >"$report.log" 2>&1
# It writes a report whatever it found, and none if it failed.
[ -s "$report" ] || not_audited "the advisory data could not be asked: $(tail -1 "$report.log")"
python3 - "$report" <<'PYTHON'
import json, sys
found = json.load(open(sys.argv[1]))["dependencies"]
for each in found:
    for one in each.get("vulns", []):
        fixed = ", ".join(one["fix_versions"]) or "no release yet"
        print(f"{each['name']} {each['version']}: {one['id']} ({', '.join(one['aliases'])}); fixed in {fixed}")
bad = sum(1 for each in found if each.get("vulns"))
unknown = [each["name"] for each in found if "skip_reason" in each]
print(f"{len(found) - len(unknown)} packages looked up, {bad} with known vulnerabilities; {len(unknown)} not looked up")
sys.exit(1 if bad else 2 if unknown else 0)
PYTHON
status=$?
[ $status -ne 2 ] || not_audited "the advisory data does not know all packages; a mirror of PyPI may lack it"
exit $status
