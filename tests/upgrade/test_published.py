"""What the newest release published is still there and fits, or a new version and CHANGELOG.md say that it does not."""

import copy
import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.tools.released import Source
from tests.upgrade.names import in_tables, promises
from tests.upgrade.wire import broken

GONE = object()
RESULTS, ALIASES = "/v1/jobs/{job_id}/results", "/v1/aliases/{alias}"
PAGE, ALIAS = f"GET {RESULTS} replies 200 application/json", f"PUT {ALIASES} takes application/json"
TEXT = {"type": "string"}

#: Made-up changes, as places in the document with what is put there; and where each must be found.
CHANGES: dict[str, tuple[list[tuple[str, str | int, Any]], str]] = {
    "a route added": ([("paths", "/v1/new", {})], ""),
    "a field of a reply added": ([("ResultList properties", "new", TEXT)], ""),
    "an optional field added": ([("AliasRequest properties", "new", TEXT)], ""),
    "another description": ([("Answer properties text", "description", "New.")], ""),
    "a route gone": ([("paths", RESULTS, GONE)], PAGE),
    "a status gone": ([(f"paths {RESULTS} get responses", "410", GONE)], f"GET {RESULTS} replies 410"),
    "a field of a reply gone": ([("ResultList properties", "has_more", GONE), ("ResultList required", 1, GONE)], PAGE),
    "a field of a request gone": ([("AliasRequest properties", "force", GONE)], ALIAS),
    "a field required": ([("AliasRequest properties", "new", TEXT), ("AliasRequest", "required", ["new"])], ALIAS),
    "a value of an enum gone": ([("Priority enum", 2, GONE)], "POST /v1/jobs takes application/json"),
    "a type changed": ([("ResultList properties has_more", "type", "integer")], PAGE),
    "a parameter required": ([(f"paths {RESULTS} get parameters 1", "required", True)], f"GET {RESULTS} parameters"),
}


def version(source: Source) -> str:
    return source.output("-c", "import corelane; print(corelane.__version__)").strip()


def require_said(lost: Iterable[str], before: str, now: str, changelog: str) -> None:
    """Fail with a sentence if no new version and no line of the changelog announces a loss."""
    (major, minor, _), (new_major, new_minor, _) = (map(int, each.split(".")) for each in (before, now))
    may_break = new_major > major or (major == 0 and new_minor > minor)
    names = {each: re.sub(r"^(?:[A-Z]+ |corelane\.client )?`?([^ `]+).*", r"\1", each) for each in lost}
    unsaid = sorted(each for each, name in names.items() if not may_break or name not in changelog)
    assert not unsaid, (
        f"gone or changed since {before}: {'; '.join(unsaid)}. Bring it back, or raise the "
        f"{'major' if major else 'minor'} version and name it in CHANGELOG.md (docs/upgrade.md)"
    )


def test_api_and_names_of_the_release_are_kept(released: Source) -> None:
    before, now = (json.loads((folder / "docs/openapi.json").read_bytes()) for folder in (released.folder, ROOT))
    lost = {*broken(before, now), *(promises(released) - promises(Source(ROOT)))}
    require_said(lost, version(released), version(Source(ROOT)), (ROOT / "CHANGELOG.md").read_text())


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_the_api_that_break_callers_are_found(name: str) -> None:
    changes, place = CHANGES[name]
    before = json.loads((ROOT / "docs/openapi.json").read_bytes())
    now = copy.deepcopy(before)
    for where, key, value in changes:
        at = now if where.startswith("paths") else now["components"]["schemas"]
        for step in where.split():
            at = at[int(step) if isinstance(at, list) else step]
        if value is GONE:
            del at[key]
        else:
            at[key] = value
    assert broken(before, now) == [] if not place else place in broken(before, now)


def test_names_that_are_gone_or_mean_something_else_are_found() -> None:
    page = (ROOT / "docs/reference.md").read_text()
    changed = page.replace("| `CORELANE_PORT` | `8000` ", "| `CORELANE_PORT` | `8001` ").replace("`--callers` ", "")
    lost = {*in_tables(page)} - {*in_tables(re.sub(r"\| `(130|unknown_model|jobs watch JOB)` .*\n", "", changed))}
    gone = {"`130`", "`bench FILE` `--callers`", *(f"`jobs watch JOB`{each}" for each in ("", " `--json`", " `--url`"))}
    assert lost == gone | {"`CORELANE_PORT` `8000`", "`unknown_model`", "`unknown_model` 422", "`unknown_model` -"}


def test_a_loss_passes_only_with_a_new_version_and_a_line_of_the_changelog() -> None:
    lost, said = ["`CORELANE_PORT` `8000`", PAGE], f"`CORELANE_PORT` is 9000; {RESULTS} says 404."
    require_said(lost, "0.1.2", "0.2.0", said)
    for now, changelog in (("0.1.3", said), ("0.2.0", "`CORELANE_PORT`")):
        with pytest.raises(AssertionError, match="Bring it back, or raise the minor version"):
            require_said(lost, "0.1.2", now, changelog)
