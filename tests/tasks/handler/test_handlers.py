"""Handlers on a runner: packaged, loaded, answered in batches, failed alone."""

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, read_artifact
from corelane.cli.own_class import local_limits
from corelane.domain.dispatch import LEAST_TOKENS, Core
from corelane.domain.jobs import GivenOptions, Result
from corelane.engine.runner import Runner
from corelane.engine.task import Query, RunnerLimits
from corelane.errors import ArtifactRefused, CorelaneError, LoadFailed, RuntimeLost, TooLarge
from corelane.settings import Settings
from corelane.tasks.forms import forms
from corelane.tasks.handler.engine import source
from corelane.tasks.handler.engine.items import MOST_UNITS
from corelane.tasks.handler.engine.local import try_example
from corelane.tasks.handler.engine.packaging import manifest_of
from corelane.tasks.handler.task import HandlerTask
from corelane.tasks.handler.wire import HandlerItem, HandlerOptions
from corelane.tasks.registry import TASKS, parse_options, stored_options
from corelane.tasks.task import Task
from tests.tools.fakes import FixedBackend

PACKAGES = Path(__file__).parent / "packages"

ALLOWED = ("shop.*", "lone:Lone")

Open = Callable[[str], Runner]


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Copy the package to a folder of the test's own, where it can be changed."""
    folder = Path(shutil.copytree(PACKAGES, tmp_path / "packages"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(source, "_imported", {})
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("shop", "lone")]:
        del sys.modules[name]


def package(handler: str, root: Path, *, in_place: bool = False) -> Artifact:
    manifest = manifest_of(handler, "made", "cpu", ALLOWED, in_place=in_place)
    folder = root / "made" / manifest.version / "cpu"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return read_artifact(folder)


def load(artifact: Artifact, allowed: tuple[str, ...] = ALLOWED, *, frames: bool = True) -> Runner:
    limits = RunnerLimits(handlers=allowed, handler_frames=frames, core=Core("here", 3), max_output_bytes=1_000_000)
    return Runner.open(FixedBackend(), artifact, limits)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    runners: list[Runner] = []

    def open_one(name: str) -> Runner:
        runners.append(load(package(f"shop.models:{name}", tmp_path)))
        return runners[-1]

    yield open_one
    for runner in runners:
        runner.close()


def queries(texts: list[str], **options: Any) -> list[Query]:
    return [Query(None, json.dumps({"text": text}), HandlerOptions(**options)) for text in texts]


def handler_of(runner: Runner) -> Any:
    return runner._task._handler  # type: ignore[attr-defined]


def labels(results: list[dict[str, Any]]) -> list[Any]:
    return [result["error"]["code"] if result["error"] else result["output"]["label"] for result in results]


def test_importing_the_class_imports_nothing_heavy() -> None:
    code = "import sys; from corelane import Handler; print(sorted({'torch', 'redis', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_outputs_come_in_the_order_of_items_in_batches_of_at_most_max_batch(opened: Open) -> None:
    runner = opened("Careful")
    assert handler_of(runner).core.index == 3
    texts = [f"{n} {'rude' if n % 3 else 'kind'}" for n in range(100)]
    assert labels(runner.results_of(queries(texts))) == ["bad" if n % 3 else "good" for n in range(100)]
    assert max(map(len, handler_of(runner).batches)) == 32


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("raise", "predict raised ValueError at models.py:"),
        ("leave", "predict raised SystemExit at models.py:"),
        ("return", "predict gave ValueError; the worker's log says more"),
        ("form", "label: this is required"),
        ("none", "an invalid output"),
        ("shorten", "0 outputs for 1 items"),
        ("object", "gave dict, and must give a list"),
    ],
)
def test_bad_item_fails_alone_and_its_batch_is_halved(opened: Open, text: str, detail: str) -> None:
    runner = opened("Careful")
    results = runner.results_of(queries(["kind"] * 9 + [text] + ["rude"] * 6))
    assert labels(results) == ["good"] * 9 + ["run_failed"] + ["bad"] * 6
    assert detail in results[9]["error"]["detail"]
    assert len(handler_of(runner).batches) in (1, 9), "one batch, or 16, 8, 8, 4, 4, 2, 2, 1 and 1 items"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("huge", "value: a whole number beyond 64 bits"),
        ("surrogate", "value: a text with half a surrogate pair"),
        ("nan", "value.1: nan is no number in JSON"),
        ("infinite", "value.a: -inf is no number in JSON"),
        ("object", "value: object has no form in JSON"),
        ("key", "Output raised UnicodeEncodeError"),
        ("deep", "has more than 100 levels"),
        ("deeper", "has more than 100 levels"),
        ("leave", "predict raised GeneratorExit at models.py:"),
        ("interrupt", "predict raised KeyboardInterrupt at models.py:"),
        ("system", "predict gave SystemExit; the"),
        ("error", "predict gave InvalidInput; the"),
        ("no number", "units raised ValueError"),
        ("no units", "units raised ValueError"),
        ("validator", "Input raised KeyError at models.py:"),
    ],
)
def test_what_cannot_be_stored_fails_its_item_alone_and_names_the_field(opened: Open, text: str, detail: str) -> None:
    with capture_logs() as lines:
        results = opened("Hostile").results_of(queries(["kind"] * 5 + [text] + ["kind"] * 4))
    assert [result["status"] for result in results] == ["succeeded"] * 5 + ["failed"] + ["succeeded"] * 4
    error = results[5]["error"]
    assert (error["code"], detail in error["detail"]) == ("run_failed", True), error
    assert "password" not in error["detail"]
    orjson.dumps(results)
    if "worker's log" in error["detail"]:
        assert any(line["log_level"] == "warning" and line["version"].startswith("made@") for line in lines), lines


def test_output_that_is_too_large_fails_alone(opened: Open) -> None:
    small, large = opened("Hostile").results_of(queries(["kind", "large"]))
    assert (small["status"], large["error"]["code"]) == ("succeeded", "output_too_large")
    assert "CORELANE_MAX_OUTPUT_BYTES" in large["error"]["detail"]


def test_units_are_bounded_and_bytes_become_base64(opened: Open) -> None:
    runner = opened("Hostile")
    results = runner.results_of(queries(["many", "negative", "bytes"]))
    assert runner.work.tokens == MOST_UNITS + 2
    assert results[2]["output"]["data"] == "_wA="
    assert handler_of(runner).Output is not None
    facts = manifest_of("shop.models:Hostile", "made", "cpu", ALLOWED).facts
    assert facts["output_schema"]["properties"]["data"]["format"] == "base64url"


def test_error_that_a_handler_gives_or_raises_keeps_its_code(opened: Open) -> None:
    assert labels(opened("Careful").results_of(queries(["refuse", "kind"]))) == ["invalid_input", "good"]
    _, raised = opened("Hostile").results_of(queries(["kind", "unavailable"]))
    assert raised["error"] == {"code": "unavailable", "detail": "the database is away"}


def test_item_of_another_form_fails_alone_and_names_the_field(opened: Open) -> None:
    good, bad = queries(["kind"])[0], Query(None, '{"text": 3}', HandlerOptions())
    assert (results := opened("Careful").results_of([bad, good]))[1]["status"] == "succeeded"
    assert results[0]["error"] == {"code": "invalid_input", "detail": "text: a text is wanted"}


def test_batches_have_one_set_of_options_and_at_most_so_many_units(opened: Open) -> None:
    runner = opened("Translator")
    asked = [each for n in range(6) for each in (*queries([f"{n}abc"], language="fr"), *queries([f"{n}de"]))]
    asked += queries(["longer than ten units"])
    found = labels(runner.results_of(asked))
    assert found == [each for n in range(6) for each in (f"fr:{n}abc", f"de:{n}de")] + ["de:longer than ten units"]
    batches = handler_of(runner).batches
    assert all(len(batch) == 1 or sum(map(len, batch)) <= 10 for batch in batches), batches
    assert all(len({text.endswith("abc") for text in batch if len(text) < 5}) <= 1 for batch in batches), batches
    assert len(batches) == 3 + 2 + 1, batches
    assert runner.work.tokens == 6 * 4 + 6 * 3 + 21


def test_options_that_a_handler_does_not_know_fail_the_item(opened: Open) -> None:
    [wrong] = opened("Translator").results_of(queries(["a"], language="it"))
    [none] = opened("Sentiment").results_of(queries(["a"], language="it"))
    assert (wrong["error"]["code"], none["error"]["code"]) == ("invalid_input", "invalid_input")
    assert "language" in wrong["error"]["detail"]


def test_run_that_takes_too_long_loses_the_process(opened: Open) -> None:
    runner = opened("Hanging")
    runner.admit(list(enumerate(queries(["hang"]))))
    with pytest.raises(RuntimeLost, match=r"timeout_s"):
        runner.start().finish()


def test_call_that_lets_no_thread_run_ends_its_process() -> None:
    code = (
        "import ctypes; from corelane.tasks.handler.engine import thread; thread.GRACE_S = 0.2;"
        "thread.HandlerThread('made@1').call(lambda: ctypes.PyDLL(None).sleep(600), 0.2)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Timeout" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("allowed", [(), ("shop.models:Slow",), ("shop",), ("sho.*",), ("shop.models.Sentiment",)])
def test_only_what_the_operator_named_is_imported(tmp_path: Path, allowed: tuple[str, ...]) -> None:
    artifact = package("shop.models:Sentiment", tmp_path)
    for name in [name for name in sys.modules if name.startswith("shop")]:
        del sys.modules[name]
    with pytest.raises(ArtifactRefused, match=r"shop.models:Sentiment may not be imported here.*CORELANE_HANDLERS"):
        load(artifact, allowed)
    assert "shop" not in sys.modules


@pytest.mark.parametrize("path", ["os.path", "shop.models:", "../shop:Sentiment", "shop.models:Sentiment; x", ""])
def test_path_of_another_form_names_no_handler(path: str) -> None:
    with pytest.raises(ArtifactRefused, match=r"names no handler"):
        source.require_allowed(path, (path, "shop.*"))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("shop.missing:Lost", "shop.missing:Lost does not import: ModuleNotFoundError.*no_such_library"),
        ("shop.absent:Lost", "does not import.*shop.absent"),
        ("shop.models:Lost", "does not import: AttributeError"),
        ("shop.models:NoHandler", "no subclass of corelane.Handler"),
        ("shop.models:NoSchema", "Input has no JSON schema"),
        ("shop.models:WithId", "no field `id`"),
        ("shop.models:NoPredict", "has no predict: give it one that returns a list"),
        ("shop.models:Greedy", "max_memory_mb is 0, and must be above 0"),
        ("shop.models:Writer", "predict yields its outputs: have it return a list"),
        ("shop.missing:Handler", "does not import"),
        ("lone:Lone", "no package lone is installed"),
    ],
)
def test_handler_that_cannot_be_packaged_says_why(path: str, reason: str) -> None:
    with pytest.raises(ArtifactRefused, match=reason):
        manifest_of(path, "made", "cpu", ALLOWED)


def test_handler_whose_setup_fails_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"shop.models:Broken raised FileNotFoundError at models\.py:\d+; the worker"):
        load(package("shop.models:Broken", tmp_path))


def test_changed_package_is_refused_and_packaged_again_by_a_new_process(tmp_path: Path, packages: Path) -> None:
    artifact = package("shop.models:Sentiment", tmp_path)
    (packages / "shop" / "words.txt").write_text("more")
    with pytest.raises(ArtifactRefused, match=r"package it again with `corelane models package shop.models:Sentiment"):
        load(artifact)
    again = artifact.manifest.facts | {"digest": source.digest_of("shop.models:Sentiment")}
    with pytest.raises(RuntimeLost, match=r"changed since this process imported it"):
        load(Artifact(path=artifact.path, manifest=artifact.manifest.model_copy(update={"facts": again})))


def test_package_that_is_written_is_loaded_beside_its_earlier_state(tmp_path: Path, packages: Path) -> None:
    file = packages / "shop" / "models.py"
    before = load(package("shop.models:Sentiment", tmp_path, in_place=True))
    file.write_text(file.read_text().replace('"good" if', '"fine" if'))
    after = load(package("shop.models:Sentiment", tmp_path, in_place=True))
    asked = queries(["kind"])
    assert (labels(before.results_of(asked)), labels(after.results_of(asked))) == (["good"], ["fine"])
    file.write_text("import no_such_library\n")
    with capture_logs() as lines, pytest.raises(ArtifactRefused, match=r"does not import: ModuleNotFoundError"):
        package("shop.models:Sentiment", tmp_path, in_place=True)
    assert [(line["call"], line["log_level"]) for line in lines] == [("import", "warning")]
    assert sys.modules["shop.models"] is sys.modules[type(handler_of(after)).__module__]
    (packages / "shop" / ".models.py.swp").write_text("an editor's")
    assert labels(after.results_of(asked)) == ["fine"]
    for runner in (before, after):
        runner.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Sentiment", "its example was answered"),
        ("Parallel", "Input gives no example, so predict was not tried"),
        ("Short", 'fails with its own example {"text":"The room was clean."}: predict gave 0 outputs for 1 items'),
    ],
)
def test_example_of_a_class_is_tried_when_it_is_packaged(tmp_path: Path, name: str, said: str) -> None:
    manifest = package(f"shop.models:{name}", tmp_path).manifest
    try:
        found = try_example(manifest, tmp_path, local_limits(f"shop.models:{name}", Settings()))
    except ArtifactRefused as error:
        found = error.detail
    assert said in found


def test_callers_see_the_type_alone_and_the_log_has_the_rest(tmp_path: Path) -> None:
    runner = load(package("shop.models:Careful", tmp_path), frames=False)
    asked = [replace(query, job="job_1", index=n) for n, query in enumerate(queries(["kind", "raise", "return"]))]
    with capture_logs() as lines:
        results = runner.results_of(asked)
    runner.close()
    details = [result["error"] and result["error"]["detail"] for result in results]
    says = "; the worker's log says more"
    assert details == [None, f"predict raised ValueError{says}", f"predict gave ValueError{says}"]
    failed = {line.get("item"): line for line in lines if line["event"] == "handler_failed"}
    assert failed["1"].items() >= {"core": "here/3", "job": "job_1", "error": "ValueError", "call": "predict"}.items()
    assert str(failed["1"]["exc_info"]) == "no such thing"
    assert str(failed["2"]["exc_info"]) == "this one alone"
    assert failed[None]["items"] == "2", "the last batch that was cut in halves"


def test_module_without_a_package_is_a_handler_too(tmp_path: Path, packages: Path) -> None:
    (packages / "lone.py").write_text("from shop.models import Sentiment\nclass Lone(Sentiment): pass\n")
    runner = load(package("lone:Lone", tmp_path))
    assert labels(runner.results_of(queries(["kind"]))) == ["good"]
    runner.close()


def test_version_follows_from_code_and_forms(packages: Path) -> None:
    first = manifest_of("shop.models:Sentiment", "made", "cpu", ALLOWED)
    assert manifest_of("shop.models:Sentiment", "made", "cpu", ALLOWED).version == first.version
    assert manifest_of("shop.models:SecondSentiment", "made", "cpu", ALLOWED).version != first.version
    assert first.facts["example"] == {"text": "The room was clean."}
    assert first.task == "handler"


@pytest.fixture
def bound() -> HandlerTask:
    return HandlerTask().of_version(
        "made@1", {"facts": manifest_of("shop.models:Translator", "m", "cpu", ALLOWED).facts}
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"items": [{"text": "a"}, {}]}, '"text" is a required property; made@1 takes {"text": string}'),
        ({"items": [{"text": 3}]}, "text: 3 is not of type"),
        ({"text": 3}, 'such as {"text":"The room was clean."}'),
        ({"text": "a", "options": {"language": "it"}}, "language"),
        ({"items": [{"text": "a", "txt": "b"}]}, "('txt' was unexpected); made@1 takes"),
        ({"text": "a", "options": {"langauge": "fr"}}, "('langauge' was unexpected); these are its options"),
        ({}, "one item's fields in place"),
    ],
)
def test_job_of_another_form_is_refused_at_the_api(bound: HandlerTask, body: dict[str, Any], said: str) -> None:
    with pytest.raises((ValidationError, CorelaneError)) as refused:
        forms(bound).request.model_validate(body)
    assert said in str(refused.value)


def test_items_and_options_are_kept_as_they_came(bound: HandlerTask) -> None:
    many = {"text": "a", **{f"field{n}": [n, None] for n in range(40)}}
    for task, given in ((bound, {"text": "a"}), (HandlerTask(), many)):
        job = forms(task).request.model_validate({"items": [{"id": 1, **given}], "options": {"language": "fr"}})
        [item] = cast(list[HandlerItem], job.items)
        assert (item.id, task.fields(*task.parts(item))) == ("1", given)
        assert parse_options(stored_options(job.options)).by_name() == {"language": "fr"}
        assert job.options.model_dump() == {"language": "fr"}
    single = forms(bound).request.model_validate({"text": "a"})
    assert [item.text for item in cast(list[HandlerItem], single.items)] == ['{"text":"a"}']


#: Attributes of the classes that bodies are read into: names that callers may use too.
NAMES = sorted(
    {*dir(GivenOptions), "_text", "class", "id"}.union(
        *(dir(each) for task in TASKS.values() for each in (task.item, task.options, forms(task).request, type(task)))
    )
)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_callers_may_use_any_name_in_items_and_options(task: Task) -> None:
    for name, value in itertools.product(NAMES, ("x", 1, ["x"], {"x": 1})):
        item, options = dict(task.example), {name: value}
        for body in ({"items": [item | {name: value}]}, {"items": [item], "options": options}, item | {name: value}):
            try:
                job: Any = forms(task).request.model_validate(body)
            except ValidationError:
                assert task.name != "handler" or name == "id" or "items" not in body, body
                continue
            if "options" in body:
                found = parse_options(stored_options(job.options)).by_name()
                shown = GivenOptions.model_validate(found).model_dump(mode="json")
                assert job.options.task == task.name
                assert shown[name] == value or task.name != "handler", body
            elif task.name == "handler" and name != "id":
                [row] = [task.row(each, {}) for each in job.items]
                text: Any = row[2]
                assert task.fields(None, text, None) == item | {name: value}
                assert task.parts(task.item_of(row))[1] == text


@pytest.mark.parametrize("levels", [50, 200, 900])
@pytest.mark.parametrize("where", ["items", "options"])
def test_what_is_nested_too_deep_is_refused(where: str, levels: int) -> None:
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    body = {"items": [{"text": deep}]} if where == "items" else {"items": [{"text": "a"}], "options": {"deep": deep}}
    if levels == 50:
        assert forms(HandlerTask()).request.model_validate(body)
        return
    with pytest.raises(ValidationError, match="more than 100 levels of lists and objects"):
        forms(HandlerTask()).request.model_validate(body)


def test_result_is_that_of_a_handler() -> None:
    found = Result.model_validate({"index": 0, "status": "succeeded", "output": {"label": "a"}, "windows": 1})
    assert found.output == {"label": "a"}
    assert type(found) is HandlerTask.result


def test_item_is_bounded_by_the_smaller_of_setting_and_handler() -> None:
    settings, task = Settings(max_item_bytes=4000), HandlerTask()
    with pytest.raises(TooLarge, match=r"5,011 bytes as JSON, and at most 4,000 are taken \(CORELANE_MAX_ITEM_BYTES\)"):
        task.check(settings, "", task.item.model_validate({"text": "x" * 5000}))
    own = task.of_version("made@1", {"facts": manifest_of("shop.models:Bounded", "m", "cpu", ALLOWED).facts})
    own.check(settings, "", own.item.model_validate({"text": "x" * 80}))
    with pytest.raises(TooLarge, match=r"111 bytes.*at most 100.*the handler's max_item_bytes"):
        own.check(settings, "", own.item.model_validate({"text": "é" * 50}))
    assert task.tokens(None, "x" * 100_000_000, None) > 90_000 > LEAST_TOKENS == task.tokens(None, "x" * 60_000, None)
