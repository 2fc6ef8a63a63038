"""``corelane models package``: a Python class as a version of a model, for workers to load."""

from typing import Annotated

import typer

from corelane.artifacts.manifest import artifact_path
from corelane.cli.fleet import models
from corelane.cli.folders import DataOption, writable_folder
from corelane.cli.options import choice
from corelane.cli.output import print_sentence
from corelane.cli.service import JsonOption
from corelane.engine.backends.plugin import all_targets
from corelane.settings import read_settings
from corelane.tasks.handler.engine.packaging import manifest_of


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
    from compile.publish import building, publish_artifact

    manifest = manifest_of(handler, name, target, settings.handlers)
    root = writable_folder(settings.artifact_root)
    with building(root, 0) as aside:
        place = artifact_path(root, name, manifest.version, target)
        artifact = publish_artifact(aside, place, manifest, root)
    shown = {"id": manifest.version_id, "path": str(artifact.path), "handler": handler}
    sentence = (
        f"{manifest.version_id} is kept in {artifact.path}; a service serves it after: corelane models load {name}"
    )
    print_sentence(shown, as_json, sentence)
