"""Show how to make a call outside the console: with curl and with the Python client. Pure.

The API key never appears: both read it from the environment variable ``CORELANE_API_KEY``.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from corelane.tasks.presenting import ItemCall
from corelane.tasks.task import Task

KEY_VARIABLE = "CORELANE_API_KEY"

#: The line that ends curl's body. Indented JSON never has a line with just this word.
BODY_END = "JSON"


@dataclass(frozen=True, slots=True)
class Snippets:
    """The same call in two forms."""

    curl: str
    python: str


@dataclass(frozen=True, slots=True)
class Service:
    """The address of the service, and whether it requires a key."""

    url: str
    requires_keys: bool

    def curl(self, path: str, method: str = "GET", params: Mapping[str, Any] | None = None, body: Any = None) -> str:
        """Return a command that makes one request; ``params`` may hold lists."""
        query = f"?{urlencode(params, doseq=True)}" if params else ""
        implied = "GET" if body is None else "POST"
        words = ["curl", "-sS", *([] if method == implied else ["-X", method]), shlex.quote(self.url + path + query)]
        lines = [" ".join(words)]
        if self.requires_keys:
            lines.append(f'-H "Authorization: Bearer ${KEY_VARIABLE}"')
        if body is None:
            return " \\\n  ".join(lines)
        lines += ["-H 'Content-Type: application/json'", f"--data-binary @- <<'{BODY_END}'"]
        return " \\\n  ".join(lines) + f"\n{orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()}\n{BODY_END}\n"

    def python(self, *statements: str) -> str:
        """Return a script that runs statements with a ``client``."""
        given = f', api_key=os.environ["{KEY_VARIABLE}"]' if self.requires_keys else ""
        head = (["import os", ""] if self.requires_keys else []) + ["from corelane.client import Client", ""]
        inside = "\n".join(statements).splitlines()
        opened = f"with Client({quoted(self.url)}{given}) as client:"
        return "\n".join([*head, opened, *(f"    {line}" if line else "" for line in inside)]) + "\n"


def quoted(text: str) -> str:
    """Return a readable Python literal in double quotes; only ASCII control characters are escaped."""
    return orjson.dumps(text).decode()


def literal(value: Any) -> str:
    """Return a JSON value as a Python literal."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(name)}: {literal(each)}" for name, each in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(literal(each) for each in value) + "]"
    return repr(value)


def task_snippets(service: Service, call: ItemCall) -> Snippets:
    """Return the call that sends one item."""
    written = "".join(f"    {name}={literal(value)},\n" for name, value in call.arguments.items())
    python = service.python(f"{call.returns} = client.{call.method}(\n{written})", *call.after)
    return Snippets(service.curl(call.path, "POST", body=call.body), python)


def job_snippets(service: Service, job_id: str, task: Task) -> Snippets:
    """Return the calls that read a job and its results."""
    path = f"/v1/jobs/{job_id}"
    return Snippets(
        service.curl(path) + "\n" + service.curl(f"{path}/results"),
        service.python(
            f"job = client.get({quoted(job_id)})",
            "print(job.status, job.counts)",
            f"for result in client.iter_results({quoted(job_id)}):",
            f"    print(result.index, result.status, result.{task.present.attribute or task.result.mark})",
        ),
    )


def jobs_snippets(service: Service, filters: Mapping[str, Any]) -> Snippets:
    """Return the call that lists the jobs of a filter."""
    arguments = ", ".join(f"{name}={literal(value)}" for name, value in filters.items())
    return Snippets(
        service.curl("/v1/jobs", params=filters),
        service.python(f"for job in client.iter_jobs({arguments}):", "    print(job.id, job.status, job.counts)"),
    )
