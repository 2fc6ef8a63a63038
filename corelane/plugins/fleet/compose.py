"""Files for Docker Compose: a whole one, or an override of ``docker-compose.yml``.

``docker-compose.yml`` in the repository is the file for two CPU cores, as a test checks. The files are templates beside
this module.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from corelane.errors import InvalidInput
from corelane.plugins.fleet.layout import Layout

#: The name of an image that needs no quotes in a file.
IMAGE = re.compile(r"[a-z0-9][\w./:@-]*")

REDIS_IMAGE = "redis:7-alpine"

#: Settings that the template itself sets: fixed inside containers, or with another default there.
GIVEN = frozenset(
    {
        *("redis_url", "data_dir", "models_dir", "host", "port", "flower_host", "flower_port", "core", "url"),
        *("api_key", "health_dir", "core_host", "model", "log_level", "auth"),
    }
)


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices for a file.

    Each worker gets one device, or with ``share_devices`` all devices. With ``workers_alone`` the file has only
    workers, for a host that uses the Redis and the API of another.
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


USUAL = Choices()


def compose_file(layout: Layout, settings: Iterable[str], choices: Choices = USUAL) -> str:
    """Return a whole file, which passes ``settings`` on unless the file itself sets them."""
    given = GIVEN | ({"target"} if layout.on_devices else set()) | ({"instance"} if layout.instance else set())
    passed_on = [f"CORELANE_{name.upper()}" for name in settings if name not in given]
    return _render("compose.yml", layout, choices, passed_on)


def compose_override(layout: Layout, choices: Choices = USUAL) -> str:
    """Return an override that makes docker-compose.yml run this layout."""
    return _render("override.yml", layout, choices, ())


def _render(template: str, layout: Layout, choices: Choices, settings: Sequence[str]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def chips_of(core: int) -> Sequence[int]:
        return range(layout.chips) if choices.share_devices else [core // layout.cores_per_chip]

    environment = Environment(
        autoescape=False,  # noqa: S701  # YAML, and no text of others
        keep_trailing_newline=True,
        loader=PackageLoader(__package__, "."),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals.update(
        layout=layout,
        choices=choices,
        settings=settings,
        default_image=REDIS_IMAGE,
        chips_of=chips_of,
        variables=lambda core: _variables(layout, core),
    )
    return environment.get_template(template).render()


def _variables(layout: Layout, core: int) -> Iterator[tuple[str, object]]:
    yield "CORELANE_CORE", core
    if layout.chips:
        yield "NEURON_RT_VISIBLE_CORES", core
    if layout.target == "trn2":
        # A core there consists of two physical ones. Containers do not inherit this setting.
        yield "NEURON_LOGICAL_NC_CONFIG", 2
