"""What a plugin is, and which plugins are installed.

A plugin is an object of a subclass of ``Plugin``, named by an entry point of the group ``corelane.plugins``. Those that
come with Corelane are in ``corelane/plugins``, or with the one task they serve; any package may declare another.

Each room that a plugin can add to has a door: a subclass of ``Plugin`` in a module ``plugin`` of that room, with the
methods that it calls. A plugin is a subclass of the doors that it uses. Core asks for the plugins of a door and knows
none by name: without its entry point, no trace of a plugin is left in the service.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

#: The entry points' group.
GROUP = "corelane.plugins"


class Plugin:
    """One plugin: what every process needs to know of it.

    Every process lists the plugins, so a plugin's module must import nothing heavy or optional: each method imports
    what it needs.
    """

    #: Its name: the same for its entry point, its folder and its extra.
    name: str = ""

    #: Its module of Redis keys, if it has any (``corelane.store.keys``). Its Lua files use them by the same names.
    keys: str = ""

    def settings(self) -> "type[BaseSettings] | None":
        """Return the class of its settings' fields; each is an environment variable ``CORELANE_…``, like core's."""
        return None

    def lua(self) -> Sequence[Path]:
        """Return its files for the Lua library, which are loaded after core's, in this order."""
        return ()


#: A door: the plugins that add to one room.
Door = TypeVar("Door", bound=Plugin)


def installed(door: type[Door]) -> tuple[Door, ...]:
    """Return the installed plugins of a door, by name; raise ImportError with a sentence if one cannot be imported."""
    return tuple(each for each in all_plugins() if isinstance(each, door))


@cache
def all_plugins() -> tuple[Plugin, ...]:
    """Return all installed plugins, by name; raise ImportError as ``installed`` does."""
    return tuple(_load(each) for each in sorted(entry_points(group=GROUP), key=lambda each: each.name))


def _load(entry: EntryPoint) -> Plugin:
    """Return the plugin of an entry point."""
    where = f"the plugin {entry.name!r} ({entry.value})"
    try:
        plugin = entry.load()
    except Exception as error:
        raise ImportError(
            f"{where} cannot be imported: {error}; mend or uninstall the package that declares it"
        ) from error
    if not isinstance(plugin, Plugin) or plugin.name != entry.name:
        raise ImportError(f"{where} is not a corelane.plugin.Plugin of that name")
    return plugin
