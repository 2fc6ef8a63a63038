"""Count the files outside the tasks' folders that name what question answering is made of.

A product file (Python, Lua, HTML, JavaScript; none of others') counts if it has one of the words question, context,
answer and span, or its plural: in code, in comments or in text. Names are split at underscores and at capitals, so
``ask_question`` and ``SquadQuestion`` count, and an import from ``question_answering`` does. ``answered`` and
``answering`` do not, nor do words that a language or a library gives: ``NOT_MEANT``.

``python -m tests.names`` lists the files; ``make check`` runs it, and it fails for more of them than ``MOST``, which
only goes down. ``ALLOWED`` is what may stay, each with its reason.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping

from tests.house import PACKAGES, ROOT, TASKS

#: The kinds of files that count, and the folders of files that others wrote.
KINDS = (".py", ".lua", ".html", ".js")
OTHERS = ("/static/vendor/", "api/docs/static/")

#: A word in a sentence or in a name: before it no letter, or a capital at its own beginning; after it no small letter.
WORDS = re.compile(
    r"(?<![A-Za-z])(?:question|context|answer|span)s?(?![a-z])"
    r"|(?<![A-Z])(?:Question|Context|Answer|Span)s?(?![a-z])"
    r"|(?<![A-Za-z])(?:QUESTION|CONTEXT|ANSWER|SPAN)S?(?![A-Za-z])"
)

#: Words of Python, Jinja, HTML and libraries.
NOT_MEANT = re.compile(
    r"</?span\b|createElement\(.span.\)|\.span\(|with context|context[ -]managers?|contextlib|contextvars"
    r"|\w*contextmanager|Abstract(?:Async)?ContextManager|nullcontext|enter_(?:async_)?context|get_context\b"
    r"|create_default_context|getContext|spanGaps|SSLContext|ContextVar|context is destroyed|typer\.Context"
    r"|click\.Context"
)

#: Most files that name one of the words, besides those allowed.
MOST = 0

#: Most files allowed.
MOST_ALLOWED = 24

#: The files that may, each with its reason.
ALLOWED: Mapping[str, str] = {
    "corelane/domain/jobs.py": "the task of a job that names none",
    "corelane/domain/batches.py": "the endpoint /v1/answers of a batch",
    "corelane/errors/__init__.py": "codes of problems",
    "workers/core/drain.py": "a log event that the guide to hosts names",
    "corelane/tasks/registry.py": "lists the tasks, by their folders",
    "corelane/cli/app.py": "the commands of question answering",
    "corelane/settings/fields.py": "names of settings",
    "corelane/metrics/definitions.py": "names of metrics",
    "corelane/store/keys.py": "names of keys in Redis",
    "corelane/artifacts/manifest.py": "fields of stored manifests",
    "corelane/artifacts/calibration.py": "the stored form of a calibration",
    "corelane/plugins/files/references/reading.py": "the field `contexts` of an input's head",
    "corelane/client/methods.py": "the client's methods for questions",
    "corelane/client/endpoints.py": "the field `contexts` of a job, and the route POST /v1/answers",
    "corelane/plugins/accounting/traces/otel.py": "spans of a trace",
    "corelane/cli/compile.py": "corelane compile --questions",
    "api/routes/fleet.py": "fields of models' calibration and threshold",
    "compile/manifests.py": "fields of stored manifests",
    "corelane/plugins/backends/neuron/compiling/on_device.py": "fields of stored manifests",
    "compile/model/source.py": "the field of a model's corelane.json",
    "compile/model/template.py": "fields of stored manifests",
    "corelane/plugins/backends/neuron/device_process.py": "the package's function neuron_cores_context",
}


def files_that_name_them() -> dict[str, Counter[str]]:
    """Return the files that name one of the words, each with the words and how often."""
    found = {}
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.suffix in KINDS):
        name = path.relative_to(ROOT).as_posix()
        is_task = any(
            len(path.relative_to(ROOT / each).parts) > 1 for each in TASKS if path.is_relative_to(ROOT / each)
        )
        if is_task or any(other in name for other in OTHERS):
            continue
        words = Counter(word.lower() for word in WORDS.findall(NOT_MEANT.sub(" ", path.read_text())))
        if words:
            found[name] = words
    return found


def main() -> int:
    """Print the files that are not allowed; return 1 for too many, or for a file that is allowed without need."""
    found = files_that_name_them()
    others = {name: words for name, words in found.items() if name not in ALLOWED}
    idle = [name for name in ALLOWED if name not in found]
    for name, words in others.items():
        sys.stdout.write(f"{name}: {', '.join(f'{word} {count}' for word, count in words.items())}\n")
    for name in idle:
        sys.stdout.write(f"{name} is allowed and names none: take it out of ALLOWED\n")
    sys.stdout.write(f"{len(others)} files name the words, limit {MOST}; {len(ALLOWED)} more may\n")
    return int(len(others) > MOST or len(ALLOWED) > MOST_ALLOWED or bool(idle))


if __name__ == "__main__":
    sys.exit(main())
