"""Fixtures: a real Redis, compiled artifacts, settings; and what is run beside what.

Nothing is mocked; what cannot start is an error, not a skip.
"""

import gc
import os
import random
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest import mock
from uuid import uuid4

import hypothesis
import pytest
import redis
import structlog

from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import Artifact
from corelane.broker.app import bell_envelope, make_celery
from corelane.cli.redis_server import server_argv
from corelane.settings import Settings
from tests.tools import cpu_kinds
from tests.tools.artifacts import keep_built_in, keep_tiny_artifact, keep_tiny_model
from tests.tools.neuron import save_neuron_artifact, save_neuron_python
from tests.tools.redis import USER, admin_url, client_of, server_binary, service_url, users_file
from tests.tools.released import Source, unpack_release
from tests.tools.s3 import S3Server, serving
from tests.tools.waiting import eventually

if TYPE_CHECKING:
    from tests.tools.fleet import Fleet

# A setting in the environment of those who run the tests is none of a test, nor of a process that one starts; a trace
# would go to their collector.
for name in list(os.environ):
    if name.lstrip("_").upper().startswith(("CORELANE_", "OTEL_")) and not name.startswith("CORELANE_TEST_"):
        del os.environ[name]

ROOT = Path(__file__).parents[1]

#: For a test whose fixtures may have to compile the built-in model first: 40 s, on a busy machine several times that.
COMPILE_TIMEOUT_S = 600

#: Files whose tests share what a run has one of, by the fixture that starts it; and folders whose tests mostly wait for
#: processes.
SHARED = {
    "fleet": (
        *("integration/test_bad_input.py", "integration/test_batches.py", "integration/test_client_package.py"),
        *("integration/test_big_jobs.py", "integration/test_calibrated.py", "integration/test_cores.py"),
        *("integration/test_jobs.py", "integration/test_main_job.py", "integration/test_monitoring.py"),
        *("integration/test_readme.py", "integration/test_typescript.py", "integration/test_webhooks.py"),
        *("plugins/bench/test_bench.py", "plugins/quality/test_quality_gate.py", "chaos/test_killed_workers.py"),
        *("browser/test_ask.py", "browser/test_models.py"),
    ),
    "one_core": ("chaos/test_batches.py", "chaos/test_forged.py", "chaos/test_resumption.py"),
}
#: Linux gives connections without a port of their own one from here on.
LOWEST_EPHEMERAL = 32_768

SLOW = ("chaos", "integration", "hosts")

#: What starts processes or compiles, and so is left out with ``--fast``: whole folders; what a file imports for it; and
#: fixtures. The one Redis of a run is allowed.
STARTING_FOLDERS = {
    *("benchmarks", "browser", "chaos", "compile", "contracts", "deploy", "failover", "families", "hosts"),
    *("integration", "lab", "monitoring", "scaling", "soak", "quality"),
}
STARTING_IMPORTS = {"subprocess", "Popen", "multiprocessing", "start_fleet", "running_service", "server_argv"}
STARTING_FIXTURES = {"built_in_data", "fleet", "neuron_python", "released", "s3_server", "tiny_artifact", "tiny_model"}

#: What a file imports that starts a Redis of its own, and what starts a whole service.
REDIS_IMPORTS, SERVICE_IMPORTS = {"server_argv", "server_binary"}, {"start_fleet", "running_service"}

# On a busy machine any example may take a second, and that says nothing.
# Its examples are the same in each run.
hypothesis.settings.register_profile(
    "corelane", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("corelane")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", type=int, default=0, help="faults of each chaos round; 0 is one of each kind")
    parser.addoption("--seed", type=int, default=1, help="seed of what tests draw, and of the first chaos round")
    parser.addoption("--only", default="", help="kinds of chaos faults, as kill_child,kill_parent; all if empty")
    parser.addoption("--rounds", type=int, default=1, help="chaos rounds, each with the next seed and a new fleet")
    parser.addoption("--chaos-model", action="store_true", help="chaos with the built-in model, not the null engine")
    parser.addoption("--hours", type=float, default=0, help="hours of a soak run; 0 is its short form of two minutes")
    parser.addoption("--fuzz", type=int, default=4, help="examples a route of the fuzzed API")
    parser.addoption("--families", action="store_true", help="each architecture, rare ones too")
    parser.addoption("--fast", action="store_true", help="only tests that start no process and compile nothing")
    parser.addoption("--redis", action="store_true", help="only tests that talk to a Redis, and start no service")
    parser.addoption("--cpu-kind", choices=cpu_kinds.KINDS, help="play a kind of CPU that this machine has or exceeds")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(cpu_kinds)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('seed')}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have each test draw the same in each run."""
    random.seed(item.config.getoption("seed"))


def is_in(item: pytest.Item, files: tuple[str, ...]) -> bool:
    return item.path.as_posix().endswith(files)


def starts_processes(item: pytest.Item) -> bool:
    """Return whether a test, or what its file has, starts a process or compiles."""
    imported = vars(item.module).keys() if isinstance(item, pytest.Function) else set()
    return bool(
        STARTING_FOLDERS & set(item.path.parts)
        or STARTING_IMPORTS & imported
        or STARTING_FIXTURES & set(getattr(item, "fixturenames", ()))
    )


def talks_to_redis(item: pytest.Item) -> bool:
    """Return whether a test talks to a Redis of the tests, and starts no service."""
    imported, fixtures = vars(getattr(item, "module", item)).keys(), set(getattr(item, "fixturenames", ()))
    is_asked = "redis_url" in fixtures or REDIS_IMPORTS & imported
    return bool(is_asked) and not (SERVICE_IMPORTS & imported or STARTING_FIXTURES & fixtures)


def select(config: pytest.Config, items: list[pytest.Item], is_wanted: Callable[[pytest.Item], bool]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = [item for item in items if is_wanted(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests of the built-in model the time to compile it. With ``-n`` what waits for processes comes first: the
    rest fills the time that leaves free.
    """
    if config.getoption("--fast"):
        select(config, items, lambda item: not starts_processes(item))
    if config.getoption("--redis"):
        select(config, items, talks_to_redis)
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        for shared, files in SHARED.items():
            if shared in fixtures and fixtures[shared][-1].scope == "session" and not is_in(item, files):
                raise pytest.UsageError(f"{item.path} shares the fixture {shared}: name it in SHARED")
        if "built_in_data" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COMPILE_TIMEOUT_S))
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: (
                [not is_in(item, files) for files in SHARED.values()],
                item.path.parent.name not in SLOW,
            )
        )


def pytest_sessionstart() -> None:
    """Collect no garbage while tests are collected: what is imported stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what was imported: otherwise it takes a fifth of the run's CPU time."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let go of what a failed test left open: the test that the garbage collector came by in would fail for it."""
    failures = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failures:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kept in ("last_type", "last_value", "last_traceback", "last_exc"):
                vars(sys).pop(kept, None)
            gc.collect()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """With ``-n`` end a shared fleet after the last of its tests: an idle one takes CPU time from all others."""
    yield
    if nextitem is not None and hasattr(item.config, "workerinput"):
        for shared, files in SHARED.items():
            if is_in(item, files) and not is_in(nextitem, files):
                for started in item.session._fixturemanager.getfixturedefs(shared, item) or ():
                    started.finish(cast(Any, item)._request)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run half as many files again at a time as there are CPUs: a third of their time, tests wait."""
    cpus = len(os.sched_getaffinity(0))
    return cpus + cpus // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n`` a file stays in one process, as do all files that share a fleet: there is one of it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((shared for shared, files in SHARED.items() if file.endswith(files)), file)

    return ByFile(config, log)


def free_port() -> int:
    """Return a port that nobody listens on, and that no connection is given soon."""
    for _ in range(100):
        port = random.SystemRandom().randint(10_000, LOWEST_EPHEMERAL - 1)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


@pytest.fixture(scope="session", autouse=True)
def _plain_tracebacks() -> None:
    """Have logs of this process show tracebacks as they are: with the values of all variables each takes a second."""
    *processors, _ = structlog.get_config()["processors"]
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, renderer])


@pytest.fixture(scope="session", autouse=True)
def _no_telemetry() -> Iterator[None]:
    """Keep OpenVINO's converter from calling home: it forks this process at each call, unless it runs in CI."""
    with mock.patch.dict(os.environ, {"CI": "true"}):
        yield


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Redis of our own, with its append-only file, for the whole run."""
    port, folder = free_port(), tmp_path_factory.mktemp("redis")
    argv = server_argv(server_binary(), folder, port, users_file(folder))
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    url = service_url(port)
    client = client_of(admin_url(url))
    eventually(client.ping)
    client.execute_command("ACL", "LOG", "RESET")
    yield url
    # What the tests themselves have refused, they do as users of their own.
    refused = [entry for entry in client.execute_command("ACL", "LOG", 1000) if entry["username"] == USER]
    client.close()
    server.terminate()
    if refused:
        raise RuntimeError(f"Redis refused what the service sent: {refused}")
    server.wait(60)


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """Yield a plain client on an empty Redis; it looks where no product code should. Redis is empty after it too."""
    client = redis.Redis.from_url(admin_url(redis_url), decode_responses=True)
    client.flushall()
    yield client
    client.flushall()
    client.close()


@pytest.fixture(scope="session")
def read_once(redis_url: str) -> Iterator[Settings]:
    """Read the settings of all tests, as that takes 10 ms: long leases for busy machines, claims of several slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corelane.store.upkeep.BELL_GRACE_S", 0.2)
        yield Settings(redis_url=redis_url, core_host="test", lease_s=60, claim_tokens=16_384)


@pytest.fixture
def settings(raw: redis.Redis, read_once: Settings, tmp_path: Path) -> Settings:
    """Return settings on an empty Redis, with a data folder of the test's own."""
    return read_once.model_copy(update={"data_dir": tmp_path})


@pytest.fixture(scope="session")
def bell() -> str:
    """Return the envelope of a doorbell."""
    return bell_envelope(make_celery(Settings()))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Start an S3 server for the whole run; a test that kills it starts it again."""
    with serving(tmp_path_factory.mktemp("s3"), free_port()) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the URL of an empty bucket; what this process and its children ask of S3 goes to the server."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{uuid4().hex[:12]}"
    s3_server.make_bucket(bucket)
    yield f"s3://{bucket}"
    # The S3 library drops a connection unclosed, and says so in whichever test collects it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """Return a random QA model in Hugging Face layout, not to be written to."""
    return keep_tiny_model()


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Copy the random model's artifact, the same for the whole run."""
    return copy_artifact(keep_tiny_artifact("torchscript"), tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_openvino(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Copy the random model's artifact for OpenVINO."""
    return copy_artifact(keep_tiny_artifact("openvino"), tmp_path_factory.mktemp("openvino"))


def copy_artifact(data: Path, folder: Path) -> Artifact:
    """Copy a data folder; return its artifact."""
    return find_artifact(shutil.copytree(data, folder, dirs_exist_ok=True) / "artifacts", "tiny-qa", "cpu")


@pytest.fixture(scope="session")
def neuron_artifacts(tiny_artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Save the random model for Neuron, one of each family, as the stand-in runs it, and for a pipeline of four."""
    root = tmp_path_factory.mktemp("neuron") / "artifacts"
    made = {target: save_neuron_artifact(tiny_artifact, root, target) for target in ("inf2", "inf1")}
    return made | {"pipeline": save_neuron_artifact(tiny_artifact, root.parent / "pipelines", "inf1", cores=4)}


@pytest.fixture(scope="session")
def neuron_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save the Python that has torch_neuron's stand-in, if a process is on its machine, and no Corelane."""
    return str(save_neuron_python(tmp_path_factory.mktemp("neuron-python") / "neuron-python"))


@pytest.fixture(scope="session")
def built_in_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy a data folder in which the built-in model is compiled as `serve` would; kept until its makers change."""
    return Path(shutil.copytree(keep_built_in(), tmp_path_factory.mktemp("built-in"), dirs_exist_ok=True))


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Return the source of the newest release."""
    return unpack_release(tmp_path_factory.mktemp("released"))


@pytest.fixture(scope="session")
def fleet(built_in_data: Path, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Fleet]":
    """Start the fleet that tests of several folders share; those that kill parts leave it whole again."""
    from tests.tools.fleet import start_fleet

    # Chaos may strike one item with each of its four faults, and wants it answered.
    fleet = start_fleet(
        tmp_path_factory.mktemp("fleet"),
        built_in_data / "artifacts",
        CORELANE_MAX_ATTEMPTS="5",
        # The handler of docs/handlers.md.
        CORELANE_HANDLERS="sentiment:Sentiment",
        PYTHONPATH=os.pathsep.join(map(str, (ROOT / "examples", ROOT))),
    )
    yield fleet
    with redis.Redis.from_url(fleet.redis_url(), decode_responses=True) as client:
        # Parts of a killed service may still ask for it on the port that this one took: `auth` is about those.
        refused = [entry for entry in client.execute_command("ACL", "LOG") if entry["reason"] != "auth"]
    status = fleet.stop()
    if refused:
        raise RuntimeError(f"Redis refused what a part of the service sent: {refused}")
    if status != 0:
        raise RuntimeError(f"serve ended with {status}:\n" + fleet.log.read_text(errors="replace")[-4000:])
