"""Download a model's files from the Hugging Face hub, as its own library does it.

The library's settings hold here: HF_TOKEN or `hf auth login`, HF_HOME, HF_ENDPOINT for a mirror, HF_HUB_OFFLINE.
"""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from corelane.errors import CompileFailed, ModelRefused, first_line

#: A model's name on the hub, with a revision (branch, tag or commit) behind an @ if not the newest.
HUB_ID = re.compile(r"(?P<model>[A-Za-z0-9][\w.-]*(/[\w.-]+)?)(@(?P<revision>[\w.-]+))?")

MEGABYTE = 1_000_000

#: Told of a download: what is done in words, the megabytes done, and those known so far.
Report = Callable[[str, int, int], None]


def download(name: str, kinds: Sequence[Sequence[str]], endpoint: str | None, report: Report) -> Path:
    """Return the folder of a model's files in the hub's cache; download those that it lacks.

    ``kinds`` are patterns of files, by preference: a later kind is fetched only if there is no file of an earlier one's
    first pattern. Raises ModelRefused for what the hub does not give, CompileFailed if the download does not succeed.
    """
    from httpx2 import HTTPError
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    found = HUB_ID.fullmatch(name)
    model, revision = (found["model"], found["revision"]) if found else (name, None)
    try:
        for kind in kinds:
            folder = Path(
                snapshot_download(
                    model,
                    revision=revision,
                    allow_patterns=[*kind],
                    endpoint=endpoint,
                    tqdm_class=_bar(f"downloading {name}", report),
                )
            )
            if any(folder.glob(kind[0])):
                break
    except GatedRepoError as error:
        raise ModelRefused(
            f"{model} asks for permission: accept its terms on its page, then `hf auth login`, or set HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelRefused(f"{model} has no revision {revision!r} on the Hugging Face hub") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelRefused(
            f"no folder and no model on the Hugging Face hub is called {model}; one that is private needs a token: "
            "`hf auth login`, or set HF_TOKEN"
        ) from error
    except (LocalEntryNotFoundError, HTTPError) as error:
        if constants.HF_HUB_OFFLINE:
            why = "HF_HUB_OFFLINE is set, and the hub's cache lacks it"
        else:
            told = error if isinstance(error, HfHubHTTPError) else error.__cause__
            status = f" ({told.response.status_code})" if isinstance(told, HfHubHTTPError) else ""
            why = f"the Hugging Face hub does not respond{status}"
        raise CompileFailed(
            f"{name} is no folder here and could not be downloaded: {why}; without a network, copy the model's folder "
            "here and give its path"
        ) from error
    except OSError as error:
        raise CompileFailed(f"{name} could not be downloaded: {error.strerror or first_line(error)}") from error
    return folder


def _bar(what: str, report: Report) -> Any:
    """Return a class of bars, as the library draws them, that reports the megabytes of a download instead."""
    from tqdm.auto import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named | {"file": io.StringIO(), "disable": False})

        def display(self, *_: Any, **__: Any) -> None:
            if self.unit == "B" and self.n and self.total:
                report(f"{what} (MB)", int(self.n) // MEGABYTE, int(self.total) // MEGABYTE)

    return Bar
