"""The default model of `corelane serve`: copied from this user's cache of compiled models, or compiled once.

On a CPU, workers and API start while the compiler runs. They import their libraries on a core that it leaves idle. The
workers look for the model when the compiler has ended.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from compile.once import PLAIN, take_kept
from corelane.artifacts.instructions import THIS_CPU, host_kind
from corelane.artifacts.locks import compiling
from corelane.artifacts.manifest import model_name
from corelane.artifacts.remote import RemoteRoot
from corelane.cli.compile import compiled
from corelane.cli.serve_output import PrettyOutput
from corelane.cli.supervisor import LINE_LIMIT, Supervisor
from corelane.errors import CorelaneError, LoadFailed, SetupError
from corelane.settings import Settings
from corelane.store.file_storage import options_for


async def with_default_model(settings: Settings, supervisor: Supervisor, start: Callable[[], Awaitable[None]]) -> None:
    """Call ``start`` once the workers may start: when the default model exists, or while it is compiled.

    Returns when the model exists. Raises SetupError if it cannot be compiled.
    """
    name = model_name(settings.model)
    # A second artifact, for this kind of CPU, only makes it faster: the service starts without it too.
    serves = settings.target == "null" or compiled(settings, name, settings.target) is not None
    if (serves and not lacks_its_own(settings, name)) or await asyncio.to_thread(_is_at_hand, settings, name, serves):
        await start()
        return
    supervisor.say(f"compiling {name}, once")
    with compiling(settings.data_dir) if settings.target == "cpu" else nullcontext(False) as waits:
        compiler = asyncio.create_task(_compile(settings, supervisor, name, serves=serves))
        try:
            if waits:
                await start()
            await compiler
        finally:
            compiler.cancel()
    if supervisor.is_over:
        return
    if waits:
        supervisor.allow_time("core")
    else:
        await start()


def _is_at_hand(settings: Settings, name: str, serves: bool) -> bool:
    """Return whether the model need not be compiled here.

    The remote root has it, or cannot be reached, which workers report; or the user's cache has it, and it was copied.
    """
    if (url := settings.artifacts_url) is not None:
        try:
            if RemoteRoot(url, settings.fetched_root, options_for(url)).newest(name, settings.target) is not None:
                return True
        except LoadFailed:
            return True
    is_local = (settings.models_dir / settings.model).is_dir() or Path(settings.model).is_dir()
    if serves or settings.target != "cpu" or not is_local:
        return False
    # If a model is not found, the compiler reports the error.
    with suppress(CorelaneError, OSError):
        return take_kept(settings.model, name, settings, PLAIN) is not None
    return False


async def _compile(settings: Settings, supervisor: Supervisor, name: str, *, serves: bool) -> None:
    """Compile the default model in its own process, which is ended when the service stops."""
    argv = [sys.executable, "-m", "compile", settings.model, "--target", settings.target]
    argv += ["--cpu-kind", THIS_CPU] if serves else []
    # On a terminal it shows a progress bar of its own.
    piped = None if isinstance(supervisor.output, PrettyOutput) else asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, env=settings.environment(), stdout=piped, stderr=piped and asyncio.subprocess.STDOUT, limit=LINE_LIMIT
    )

    async def show_until_end() -> None:
        while process.stdout is not None and (line := await process.stdout.readline()):
            if text := line.decode(errors="replace").rstrip():
                supervisor.output.show("compile", text)
        await process.wait()

    stop, done = asyncio.create_task(supervisor.wait()), asyncio.create_task(show_until_end())
    try:
        await asyncio.wait((stop, done), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        ended = process.returncode is not None
        if not ended:
            process.terminate()
            await done
    if not ended or process.returncode == 0:
        return
    if not serves:
        raise SetupError(f"the default model {settings.model} could not be compiled; see above")
    supervisor.say(f"{name} could not be compiled for this CPU, see above; the artifact for another kind serves")


def lacks_its_own(settings: Settings, name: str) -> bool:
    """Return whether the settings ask for an artifact for this kind of CPU, and it does not exist."""
    if settings.target != "cpu" or not settings.compile_per_cpu or not host_kind():
        return False
    return compiled(settings, name, settings.target, THIS_CPU) is None
