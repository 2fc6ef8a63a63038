"""Format ``openvino`` of target ``cpu``: a graph in int8, and its weights in a file beside it."""

from typing import TYPE_CHECKING

from corelane.engine.backends.plugin import AddedFormat

if TYPE_CHECKING:
    from corelane.artifacts.manifest import Artifact
    from corelane.engine.backends.protocol import Pass


class OpenVinoFormat(AddedFormat):
    """Graphs for OpenVINO."""

    name = library = "openvino"

    def open(self, artifact: "Artifact", file: str) -> "Pass":
        """Load a graph and its weights."""
        from corelane.plugins.backends.openvino.graph import open_graph

        return open_graph(artifact, file)
