"""The names that a source publishes beside its document of OpenAPI, each with what it promises."""

import json
import re
from collections.abc import Iterator

from tests.tools.released import Source

#: The leading columns of each table that are promised; words behind them may change.
PROMISED = {"Settings": 2, "Error codes": 3, "Commands": 2, "Exit codes": 1, "Metrics": 2}

#: Prints what the page does not tell.
ASK = """
import json; from corelane import client, settings; from corelane.store import schema
promised = settings.Settings.model_json_schema()["properties"], [*client.__all__, *dir(client.Client)], schema.FORMAT
print(json.dumps(promised))
"""


def promises(source: Source) -> set[str]:
    """Return each name with what it promises."""
    settings, of_client, number = json.loads(source.output("-c", ASK))
    found = {f"format {number} of the store", *(f"corelane.client {each}" for each in of_client if each[0] != "_")}
    for name, field in settings.items():
        types = sorted(each.get("type", each.get("$ref", "any")) for each in field.get("anyOf", [field]))
        found.add(f"`CORELANE_{name.upper()}` as {' or '.join(types)}")
    return found.union(in_tables((source.folder / "docs/reference.md").read_text()))


def in_tables(page: str) -> Iterator[str]:
    """Yield what the tables of docs/reference.md promise."""
    for section, columns in PROMISED.items():
        table = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        for row in re.findall(r"^\| (`.*) \|$", table, re.MULTILINE):
            name, *cells = [cell.strip() or "-" for cell in re.split(r"(?<!\\)\|", row)[:columns]]
            # A command may gain options, so each is a promise of its own.
            yield from (
                f"{name} {each}".strip() for each in ("", *(cells[0].split() if section == "Commands" else cells))
            )
