"""``corelane models package``: a Python class as a version of a model, for workers to load."""

import os
import sys
from typing import Annotated

import orjson
import typer

from corelane.artifacts.manifest import Artifact, artifact_path
from corelane.cli.fleet import models
from corelane.cli.folders import DataOption, writable_folder
from corelane.cli.options import choice
from corelane.cli.output import print_sentence
from corelane.cli.service import JsonOption
from corelane.engine.backends.plugin import all_targets
from corelane.errors import CorelaneError
from corelane.settings import Settings, read_settings


@models.command()
def package(
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="Its class, as package.module:Class.")],
    name: Annotated[str, typer.Option(help="Name to serve it under.")],
    target: Annotated[str, choice(all_targets(), "The cores that it runs on.")] = "cpu",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a version of a handler: a Python class that CORELANE_HANDLERS names, as it is installed here."""
    settings = read_settings(data_dir=data)
    artifact, example = publish(handler, name, target, settings)
    version = artifact.manifest.version_id
    shown = {"id": version, "path": str(artifact.path), "handler": handler, "example": example}
    sentence = (
        f"{version} is kept in {artifact.path}; {example}. A service serves it after: corelane models load {name}"
    )
    print_sentence(shown, as_json, sentence)


def publish(path: str, name: str, target: str, settings: Settings, *, in_place: bool = False) -> tuple[Artifact, str]:
    """Publish a handler as it is now; return its artifact, and what became of its example. Raises ArtifactRefused.

    ``in_place`` lets a process that runs an earlier state of its package load it too.
    """
    from compile.publish import building, publish_artifact
    from corelane.cli.own_class import local_limits
    from corelane.log import configure_logging
    from corelane.tasks.handler.engine.local import try_example
    from corelane.tasks.handler.engine.packaging import manifest_of
    from corelane.tasks.handler.engine.source import look_here

    configure_logging(settings.log_level, settings.log_format)
    look_here()
    manifest = manifest_of(path, name, target, settings.handlers, in_place=in_place)
    root = writable_folder(settings.artifact_root)
    with building(root, 0) as aside:
        example = try_example(manifest, aside, local_limits(path, settings))
        place = artifact_path(root, name, manifest.version, target)
        return publish_artifact(aside, place, manifest, root), example


def publish_for_serve(path: str, name: str) -> None:
    """Publish a handler in a process of its own, which ``serve`` starts; print the version, or the refusal, as JSON."""
    settings = read_settings()
    # What the class prints by itself, and its processes, must not get hold of the pipe.
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        artifact, example = publish(path, name, settings.target, settings, in_place=True)
        said = {"version": artifact.manifest.version_id, "example": example}
    except CorelaneError as error:
        said = {"refused": error.detail}
    os.write(output, orjson.dumps(said))
