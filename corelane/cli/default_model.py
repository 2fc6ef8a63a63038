"""The default model of `corelane serve`: compiled once, before the workers start."""

import asyncio
import sys

from corelane.artifacts.manifest import model_name
from corelane.artifacts.remote import RemoteRoot
from corelane.cli.compile import compiled
from corelane.cli.supervisor import Supervisor
from corelane.errors import LoadFailed, SetupError
from corelane.settings import Settings
from corelane.store.file_storage import options_for


async def compile_default_model(settings: Settings, supervisor: Supervisor) -> None:
    """Compile the default model if it is missing, in a process that ends when the service is stopped.

    Raises SetupError if it cannot be compiled.
    """
    if not await asyncio.to_thread(_is_missing, settings):
        return
    supervisor.say(f"compiling {model_name(settings.model)}, once")
    argv = [sys.executable, "-m", "corelane", "compile", settings.model, "--target", settings.target]
    argv += ["--json"] if settings.log_format == "json" else []
    status, _ = await supervisor.run(argv, settings.environment())
    if status and not supervisor.is_over:
        raise SetupError(f"the default model {settings.model} could not be compiled; see above")


def _is_missing(settings: Settings) -> bool:
    """Return whether neither the artifact folder nor the remote root has the model."""
    name, url = model_name(settings.model), settings.artifacts_url
    if settings.target == "null" or compiled(settings, name, settings.target) is not None:
        return False
    if url is None:
        return True
    try:
        return RemoteRoot(url, settings.fetched_root, options_for(url)).newest(name, settings.target) is None
    except LoadFailed:
        return False  # it cannot be reached, as the workers report
