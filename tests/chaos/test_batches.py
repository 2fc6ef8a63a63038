"""Batches of thousands of lines through a fleet whose engine takes no time, and whose processes are killed."""

import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import orjson
import pytest

from tests.tools.batches import client_of, create, finished, line, lines_of, numbers
from tests.tools.fleet import Fleet
from tests.tools.receivers import receiver
from tests.tools.waiting import eventually


def test_stock_client_sends_5000_lines_of_which_10_are_bad(one_core: Fleet) -> None:
    content = numbers(0, 5000)
    for place in range(10):
        content[place * 500 + 7] = (b"{torn\n", b"\xff\n", line("n0", "?", "twice"), line("x", " ", "blank"))[place % 4]
    content[4507] = content[4000]
    with client_of(one_core) as client:
        batch = create(client, b"".join(content), metadata={"run": "7"})
        assert (batch.object, batch.status) == ("batch", "validating")
        done = finished(client, batch.id)
        assert done.request_counts is not None
        assert (done.status, done.metadata) == ("completed", {"run": "7"})
        assert done.request_counts.to_dict() == {"total": 5000, "completed": 4990, "failed": 10}
        output, errors = lines_of(client, done.output_file_id), lines_of(client, done.error_file_id)
        assert [each["line"] for each in errors] == [place * 500 + 8 for place in range(10)]
        assert len({each["custom_id"] for each in output}) == len(output) == 4990
        assert [each["line"] for each in output] == sorted(each["line"] for each in output)
        assert [each.id for each in client.batches.list(limit=1)][:1] == [batch.id]
        assert {each.purpose for each in client.files.list()} == {"batch", "batch_output"}
        for each in client.files.list():
            assert client.files.delete(each.id).deleted
        assert list(client.files.list()) == []


@pytest.mark.chaos
def test_keeper_killed_again_and_again_answers_each_line_once(one_core: Fleet) -> None:
    killed = set[int]()
    with client_of(one_core, "chaos") as client, receiver() as found:
        hook = {"webhook": {"url": found.url}}
        made = [create(client, b"".join(numbers(0, 3000)) + b"bad\n", extra_body=hook).id for _ in range(2)]
        for _ in range(2):
            killed.add(one_core.pid_of("keeper"))
            one_core.signal("keeper")
            eventually(lambda: one_core.pid_of("keeper") not in killed)
            time.sleep(random.uniform(1, 2))
        for batch in made:
            done = finished(client, batch, 90)
            assert done.request_counts.to_dict() == {"total": 3001, "completed": 3000, "failed": 1}
            output = lines_of(client, done.output_file_id)
            assert [each["custom_id"] for each in output] == [f"n{n}" for n in range(3000)]
        expected = sorted(f"evt_{batch.removeprefix('batch_')}_completed" for batch in made)
        eventually(lambda: sorted(found.ids) == expected)


@pytest.mark.chaos
def test_command_and_service_killed_again_and_again_write_each_line_once(one_core: Fleet, tmp_path: Path) -> None:
    one_core.wait_whole(60)
    questions, output = tmp_path / "q.jsonl", tmp_path / "a.jsonl"
    asked = [
        {"id": n if n % 2 else f"q{n}", "question": "Which?", "context": f"Run {tmp_path.name} {n}."}
        for n in range(8000)
    ]
    for place in (7, 4500, 7999):
        del asked[place]["context"]
    questions.write_bytes(b"\n".join(map(orjson.dumps, asked)))
    command = [sys.executable, "-m", "corelane", "batch", str(questions), "-o", str(output), "--url", one_core.url]

    def beyond(size: int) -> bool:
        return output.exists() and output.stat().st_size > size

    for is_last in (False, True):
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            before = output.stat().st_size if output.exists() else 0
            eventually(partial(beyond, before))
            assert process.poll() is None
            for name in one_core.names:
                one_core.signal(name)
            if not is_last:
                eventually(partial(beyond, output.stat().st_size))
                process.kill()
            _, said = process.communicate(timeout=120)
    assert process.returncode == 2, said
    written = [orjson.loads(line) for line in output.read_bytes().splitlines()]
    assert [(each["index"], each["id"]) for each in written] == [(n, str(each["id"])) for n, each in enumerate(asked)]
    failed = [each for each in written if each["status"] != "succeeded"]
    assert [(each["index"], each["model"]) for each in failed] == [(7, None), (4500, None), (7999, None)]
    assert len({each["model"] for each in written}) == 2
