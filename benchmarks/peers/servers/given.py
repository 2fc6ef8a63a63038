"""What the benchmark gives each peer's server, by environment variables: some peers import the server themselves, so
that no command line reaches it.
"""

import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

PREFIX = "PEER_"


@dataclass(frozen=True, slots=True)
class Given:
    """Where the model lies, where to listen, and the tuning that all peers share."""

    #: The folder of the compiled artifact: a TorchScript file, ``tokenizer.json`` and ``manifest.json``.
    artifact: str
    #: The folder of the checkpoint that the artifact was compiled from.
    checkpoint: str
    port: int
    #: Processes with a model, one a core; each computes with one thread.
    workers: int
    #: Most questions that dynamic batching puts together.
    batch: int
    #: Longest time that dynamic batching waits for a batch to fill, in milliseconds.
    wait_ms: int
    #: A folder for what the peer writes.
    folder: str

    def environment(self) -> dict[str, str]:
        """Return the variables that ``given`` reads."""
        return {PREFIX + name.upper(): str(value) for name, value in asdict(self).items()}


def given() -> Given:
    """Return what this process was given."""
    values = {field.name: os.environ[PREFIX + field.name.upper()] for field in fields(Given)}
    return Given(**{field.name: field.type(values[field.name]) for field in fields(Given)})  # type: ignore[operator]


def tell_loaded() -> None:
    """Leave a file that says that this process has its model and is warm."""
    folder = loaded_folder(Path(given().folder))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(os.getpid())).touch()


def loaded_folder(folder: Path) -> Path:
    """Return where processes say that they are warm."""
    return folder / "loaded"
