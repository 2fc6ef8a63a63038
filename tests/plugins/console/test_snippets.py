"""What "as curl / Python" shows can be pasted, whatever was asked."""

import ast
import json
import subprocess

import pytest

from corelane.plugins.console.pages.snippets import Service, ask_snippets, job_snippets, jobs_snippets

ODD = 'What\'s "it"?\n$HOME `id` \\ 👩🏽‍🚀\nJSON\n<b>\x07'

BODY = {"question": ODD, "context": ODD * 2, "model": "default", "options": {"top_k": 3, "no_answer": True}}


@pytest.mark.parametrize("requires_keys", [True, False])
def test_curl_sends_exactly_what_was_asked(requires_keys: bool) -> None:
    command = ask_snippets(Service("http://host:8000", requires_keys), BODY).curl
    script = f'curl() {{ printf "%s\\n" "$@" >&2; cat; }}\n{command}'
    done = subprocess.run(["bash", "-c", script], env={"CORELANE_API_KEY": "k1"}, capture_output=True, check=True)
    assert json.loads(done.stdout) == BODY
    words = done.stderr.decode().splitlines()
    assert ("Authorization: Bearer k1" in words) == requires_keys
    assert "http://host:8000/v1/answers" in words


@pytest.mark.parametrize("requires_keys", [True, False])
def test_python_asks_exactly_the_same(requires_keys: bool) -> None:
    tree = ast.parse(ask_snippets(Service("http://host:8000", requires_keys), BODY).python)
    [call] = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "client.ask"]
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    assert given == {"question": ODD, "context": ODD * 2, "model": "default", "top_k": 3, "no_answer": True}
    assert ("api_key" in ast.unparse(tree)) == requires_keys


def test_no_snippet_names_a_method_that_curl_implies() -> None:
    assert "-X" not in ask_snippets(Service("http://h", False), BODY).curl
    assert Service("http://h", False).curl("/v1/x", "POST").startswith("curl -sS -X POST ")


def test_job_and_list_can_be_read_as_python() -> None:
    service = Service("http://h", True)
    ast.parse(job_snippets(service, "job_0").python)
    snippets = jobs_snippets(service, {"label": ["a", "b"], "status": ["failed"], "limit": 20})
    ast.parse(snippets.python)
    assert 'label=["a", "b"]' in snippets.python
    assert "label=a&label=b" in snippets.curl
