"""Every fenced block of the documents is of a known kind, and none is left out of the suite without being counted."""

import json
from collections import Counter

import pytest

from tests.tools.snippets import Snippet, snippets

#: Languages that run, those that are read by a test, and those that only show something.
#: tests/api/test_nginx.py and tests/deploy/test_gateway.py run nginx by its snippets.
RUN, READ, SHOWN = {"sh", "python"}, {"json", "js"}, {"text", "mermaid", "nginx"}

#: How many snippets cannot run beside the fleet of the tests, and why. One more needs a reason, and a line here.
ELSEWHERE = {
    "make": 3,  # sets up everything or serves until Ctrl-C: the run on a fresh machine
    "tutorial": 7,  # a folder of one's own: tests/integration/test_tutorial.py
    "handlers": 1,  # a package of handlers: tests/integration/test_handlers.py, test_own_class.py
    "rollout": 2,  # a second model: tests/integration/test_rollout.py
    "pauses": 1,  # a version and an owner of some fleet: tests/integration/test_cores.py
    "backup": 2,  # on a data folder of its own: tests/integration/test_backup.py
    "redis-cli": 1,  # a program of Redis: tests/integration/test_serve.py plays it
    "calibrate": 1,  # half a minute of a model: tests/plugins/quality/test_cli_calibrate.py
    "neuron": 3,  # AWS hardware: tests/plugins/backends/neuron/test_targets.py with the stand-in
    "browser": 2,  # EventSource and fetch
    "containers": 4,  # Docker: read by tests/deploy/test_compose.py, run by `make compose-lab`
    "eval": 1,  # a second version: tests/plugins/quality/test_quality_gate.py
    "load": 1,  # minutes of load: tests/plugins/bench/test_bench.py runs shorter ones
    "cluster": 7,  # Kubernetes: tests/deploy renders and checks every manifest
    "hosts": 4,  # several hosts: tests/hosts; root on Debian: tests/deploy/test_systemd.py
    "aws": 9,  # an AWS account: the files are validated by tests/deploy/test_ecs.py
    "gateway": 2,  # several services: tests/deploy/test_gateway.py
    "S3": 1,  # settings of a bucket: tests/plugins/files/test_references.py
    "hub": 1,  # a download: tests/compile/test_source.py plays the hub
    "package": 2,  # a model from its package: tests/tasks/test_feature_extraction.py
    "tune": 2,  # minutes of training, by a package of others
    "tasks": 4,  # models of other tasks: tests/corelane/test_client_tasks.py, test_cli_run.py and tests/contracts
}


def test_every_snippet_says_what_it_is() -> None:
    for each in snippets():
        assert each.language in RUN | READ | SHOWN, each


def test_snippets_that_do_not_run_here_are_counted() -> None:
    assert Counter(each.elsewhere for each in snippets() if each.elsewhere) == ELSEWHERE


def test_javascript_is_marked_as_running_elsewhere() -> None:
    assert all(each.elsewhere for each in snippets() if each.language == "js")


def test_no_page_hides_a_block_from_this_suite() -> None:
    for each in snippets():
        assert "```" not in each.text, each


@pytest.mark.parametrize("snippet", [each for each in snippets() if each.language == "json"], ids=str)
def test_json_is_json(snippet: Snippet) -> None:
    assert json.loads(snippet.text)
