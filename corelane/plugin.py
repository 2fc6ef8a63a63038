"""What a plugin is, and which plugins are installed.

A plugin is an object of a subclass of ``Plugin``, named by an entry point of the group ``corelane.plugins``. Those that
come with Corelane are in ``corelane/plugins``, or with the one task they serve; any package may declare another.

A package that plugins can extend has a plugin interface, its door: a subclass of ``Plugin`` in its module ``plugin``,
with the methods that the package calls. A plugin is a subclass of the doors that it uses. Core asks for the plugins of
a door and knows none by name: without its entry point, a plugin leaves no trace in the service.
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

    #: The plugin's name, which its entry point, its folder and its extra have too.
    name: str = ""

    #: The plugin's module of Redis keys, if any (``corelane.store.keys``). Its Lua files use the same names of keys.
    keys: str = ""

    def settings(self) -> "type[BaseSettings] | None":
        """Return the class of the plugin's settings; each is an environment variable ``CORELANE_…``, like core's."""
        return None

    def lua(self) -> Sequence[Path]:
        """Return the plugin's files for the Lua library. They are loaded after core's, in this order."""
        return ()


#: A door: the class of plugins that extend one package.
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
