"""Files for Docker Compose: a whole one, or an override of ``docker-compose.yml``. Pure.

``docker-compose.yml`` in the repository is the file for two CPU cores, as a test checks. What all files share is in
``compose.yml`` beside this module, with a place for each block that differs. The text is written by hand, so that it
has comments and anchors.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from corelane.errors import InvalidInput
from corelane.plugins.fleet.layout import CUDA, Layout

TEMPLATE = "compose.yml"

#: A place in the template: for a value, or alone in a line for a block of lines.
PLACE = re.compile(r"@\{(\w+)\}")

#: The bounds of lines that a file of workers alone leaves out.
WHOLE_SERVICE, END = "@{if service}", "@{end}"

#: The name of an image: as it may stand in a file without quotes.
IMAGE = re.compile(r"[a-z0-9][\w./:@-]*")

REDIS_IMAGE = "redis:7-alpine"

#: The default model, as the files name it.
MODEL = "${CORELANE_MODEL:-qa-minilm}"

#: Workers in docker-compose.yml, which an override adds to.
BASE_WORKERS = 2

#: Settings that the template itself gives: fixed inside containers, or with another default there.
GIVEN = frozenset(
    {
        *("redis_url", "data_dir", "models_dir", "host", "port", "flower_host", "flower_port", "core", "url"),
        *("api_key", "health_dir", "artifact_cache", "core_host", "model", "log_level", "auth"),
    }
)

#: The file of each image that runs on devices, and the image's name.
DOCKERFILES = {"inf1": "inf1", CUDA: "cuda"}
OTHER_DOCKERFILE = "neuron"

#: What a host that has workers alone must be told.
ELSEWHERE = (
    "# The Redis of the service, and a name for this host that no other host has.",
    "CORELANE_REDIS_URL: ${CORELANE_REDIS_URL:?set it to the URL of the service's Redis}",
    "CORELANE_CORE_HOST: ${CORELANE_CORE_HOST:?set it to a name that no other host has}",
)

#: Parts that are told the target: those that look for artifacts.
TARGET_PARTS = ("compile", "api")


@dataclass(frozen=True, slots=True)
class Choices:
    """How a file is written.

    Each worker gets its own device, or with ``share_devices`` all. With ``workers_alone`` the file has nothing else,
    for a host beside the one where Redis and the API are.
    """

    redis_image: str = REDIS_IMAGE
    share_devices: bool = False
    workers_alone: bool = False

    def __post_init__(self) -> None:
        if not IMAGE.fullmatch(self.redis_image):
            raise InvalidInput(f"{self.redis_image!r} is not the name of an image, as {REDIS_IMAGE} is")

    @property
    def redis_user(self) -> str:
        """Return the user that the image of Redis, or of Valkey, has for its server."""
        return "valkey" if "valkey" in self.redis_image else "redis"


def compose_file(layout: Layout, settings: Iterable[str], choices: Choices | None = None) -> str:
    """Return a whole file, which hands on every one of these settings."""
    choices = choices or Choices()
    given = GIVEN | ({"target"} if layout.on_devices else set()) | ({"instance"} if layout.instance else set())
    blocks = {
        "head": list(_head(layout, choices)),
        "elsewhere": list(_indent(ELSEWHERE)) if choices.workers_alone else [],
        "target": [f"  CORELANE_TARGET: {layout.target}"] if layout.on_devices else [],
        "instance": [f"  CORELANE_INSTANCE: ${{CORELANE_INSTANCE:-{layout.instance}}}"] if layout.instance else [],
        "settings": [f"  CORELANE_{name.upper()}:" for name in settings if name not in given],
        "core": ["x-core: &core", "  <<: *corelane", *_indent(_core(layout)), ""] if layout.on_devices else [],
        "compile": list(_indent(_compile(layout), 2)),
        "workers": list(_workers(layout, choices)),
    }
    values = {
        "base": "core" if layout.on_devices else "corelane",
        "redis_image": choices.redis_image,
        "redis_user": choices.redis_user,
    }
    template = resources.files(__package__).joinpath(TEMPLATE).read_text().splitlines()
    return _filled(_without_service(template) if choices.workers_alone else template, blocks, values)


def compose_override(layout: Layout, about: Sequence[str], choices: Choices | None = None) -> str:
    """Return an override that makes docker-compose.yml run this layout; ``about`` are its comments."""
    choices, count = choices or Choices(), layout.cores
    lines = [*(f"# {line}" for line in about), "services:"]
    if choices.redis_image != REDIS_IMAGE:
        lines += ["  redis:", f"    image: ${{REDIS_IMAGE:-{choices.redis_image}}}"]
        lines += [f"    user: ${{REDIS_USER:-{choices.redis_user}}}"]
    if layout.on_devices:
        lines += ["  compile:", *_indent([*_core(layout), *_compile(layout)], 2)]
        lines += [f"    environment: {{CORELANE_TARGET: {layout.target}}}"]
        lines += ["  api:", f"    environment: {{CORELANE_TARGET: {layout.target}}}"]
    for core in range(max(count, BASE_WORKERS)):
        lines += _indent(_override_worker(layout, core, choices))
    return "\n".join(lines) + "\n"


def _head(layout: Layout, choices: Choices) -> Iterator[str]:
    up = "docker compose --profile neuron up" if layout.chips else "docker compose up"
    if choices.workers_alone:
        yield f"# Workers alone: {_what(layout)}, for the service whose Redis CORELANE_REDIS_URL names."
        yield f"# Run `{up}`."
    elif layout.on_devices:
        yield f"# Corelane on one host: {_what(layout)}."
        yield f"# Run `{up}` and ask at http://127.0.0.1:8000."
    else:
        yield "# Corelane on one machine: run `docker compose up` and ask at http://127.0.0.1:8000."
    yield "# Settings come from the environment or from .env (see .env.example)."
    yield f"# Written by `corelane compose {_options(layout, choices)}`; it belongs in the repository's root."
    yield "# For other numbers of cores, and for accelerators, write another file: docs/18-containers.md."
    if not choices.workers_alone:
        yield "# `docker compose --profile monitoring up` adds Prometheus and Grafana: docs/11-monitoring.md."
    yield ""


def _what(layout: Layout) -> str:
    on = f" on {layout.chips} chip{'s' * (layout.chips > 1)}" if layout.chips else ""
    return f"{layout.cores} core{'s' * (layout.cores > 1)}{on}, target {layout.target}"


def _options(layout: Layout, choices: Choices) -> str:
    options = [f"--instance {layout.instance}"] if layout.instance else []
    options += [f"--cores {layout.cores}", f"--target {layout.target}"]
    options += ["--workers-alone"] if choices.workers_alone else []
    options += ["--share-devices"] if choices.share_devices else []
    return " ".join(options)


def _core(layout: Layout) -> Iterator[str]:
    """Yield what all that runs on devices shares: another image, and the profile of Neuron devices."""
    name = DOCKERFILES.get(layout.target, OTHER_DOCKERFILE)
    if layout.chips:
        yield f"image: ${{CORELANE_NEURON_IMAGE:-corelane-{name}}}"
        yield f"build: {{context: ., dockerfile: deploy/{name}.Dockerfile}}"
        yield "profiles: [neuron]"
    else:
        yield f"image: ${{CORELANE_CUDA_IMAGE:-corelane-{name}}}"
        yield "build:"
        yield "  context: ."
        yield "  additional_contexts:"
        yield "    wheels: ${CORELANE_WHEELS:-./deploy/wheels}"
        yield f'  args: {{PYTHON_IMAGE: "${{PYTHON_IMAGE:-python:3.11-slim}}", TORCH: {name}}}'
        # Each worker takes the GPU of its number, so each must see all.
        yield "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}"


def _compile(layout: Layout) -> Iterator[str]:
    options = ["--target", layout.target] if layout.on_devices else []
    yield f'command: [corelane, compile, "{MODEL}", {", ".join([*options, "--if-missing"])}]'
    if layout.chips:
        # What is compiled is tried on the first device; workers start afterwards.
        yield _devices([0])


def _workers(layout: Layout, choices: Choices) -> Iterator[str]:
    for core in range(layout.cores):
        if core:
            yield ""
        yield f"  worker-{core}:"
        yield "    <<: *worker"
        yield f'    command: [corelane, worker, --core, "{core}"]'
        if layout.chips:
            yield f"    {_devices(_chips(layout, core, choices))}"
        yield "    environment:"
        yield "      <<: *environment"
        yield from _indent((f'{name}: "{value}"' for name, value in _variables(layout, core)), 3)


def _override_worker(layout: Layout, core: int, choices: Choices) -> Iterator[str]:
    yield f"worker-{core}:"
    if core >= layout.cores:
        yield "  scale: 0"
        return
    if core >= BASE_WORKERS:
        yield "  extends: {file: docker-compose.yml, service: worker-0}"
        yield f'  command: [corelane, worker, --core, "{core}"]'
    if layout.on_devices:
        yield from _indent(_core(layout))
    if layout.chips:
        yield f"  {_devices(_chips(layout, core, choices))}"
    target = [("CORELANE_TARGET", layout.target)] if layout.on_devices else []
    variables = ", ".join(f'{name}: "{value}"' for name, value in [*target, *_variables(layout, core)])
    yield f"  environment: {{{variables}}}"
    if core >= BASE_WORKERS:
        yield "  depends_on:"
        yield "    redis: {condition: service_healthy}"
        yield "    compile: {condition: service_completed_successfully}"


def _variables(layout: Layout, core: int) -> Iterator[tuple[str, object]]:
    yield "CORELANE_CORE", core
    if layout.chips:
        yield "NEURON_RT_VISIBLE_CORES", core
    if layout.has_logical_cores:
        # It is not inherited by containers, and says how cores are counted.
        yield "NEURON_LOGICAL_NC_CONFIG", 2


def _chips(layout: Layout, core: int, choices: Choices) -> Sequence[int]:
    return range(layout.chips) if choices.share_devices else [layout.chip_of(core)]


def _devices(chips: Iterable[int]) -> str:
    paths = ", ".join(f'"/dev/neuron{chip}:/dev/neuron{chip}"' for chip in chips)
    return f"devices: [{paths}]"


def _indent(lines: Iterable[str], depth: int = 1) -> Iterator[str]:
    return (f"{'  ' * depth}{line}" for line in lines)


def _without_service(template: Iterable[str]) -> Iterator[str]:
    """Yield the lines that a file of workers alone has."""
    is_left_out = False
    for line in template:
        is_left_out = line == WHOLE_SERVICE or (is_left_out and line != END)
        if not is_left_out:
            yield line


def _filled(template: Iterable[str], blocks: dict[str, list[str]], values: dict[str, str]) -> str:
    lines: list[str] = []
    for line in template:
        if line not in (WHOLE_SERVICE, END):
            alone = PLACE.fullmatch(line)
            lines += blocks[alone[1]] if alone else [PLACE.sub(lambda place: values[place[1]], line)]
    return "\n".join(lines) + "\n"
