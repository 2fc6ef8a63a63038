"""The groups of settings that stand in modules of their own, and those of plugins, in one class."""

from corelane.plugin import installed
from corelane.settings.api import ApiFields
from corelane.settings.artifacts import ArtifactFields
from corelane.settings.cache import CacheFields
from corelane.settings.cores import CoreFields
from corelane.settings.redis import RedisFields
from corelane.settings.scaling import ScalingFields

#: What plugins add.
PLUGIN_FIELDS = tuple(fields for plugin in installed() if (fields := plugin.settings()) is not None)


class GroupedFields(
    CoreFields,
    RedisFields,
    ScalingFields,
    ArtifactFields,
    CacheFields,
    ApiFields,
    *PLUGIN_FIELDS,  # type: ignore[misc]
):
    """Part of ``corelane.settings.Settings``: every field that is not in the package itself."""
