"""The secret with which `corelane serve` signs webhooks where none is set: made once, kept in the data folder."""

import os
from contextlib import suppress
from pathlib import Path

from pydantic import SecretStr

from corelane.domain.webhook_secrets import new_secret
from corelane.errors import SetupError

FILE = "webhook-secret"


def kept_secret(data_dir: Path) -> SecretStr | None:
    """Return the secret in the data folder, if there is one."""
    path = data_dir / FILE
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"the webhook secret in {path} cannot be read: {error}") from None
    if not text.startswith("whsec_") or len(text) < len("whsec_") + 24:
        raise SetupError(f"{path} holds no webhook secret (`whsec_…`); put it back, or remove the file for a new one")
    return SecretStr(text)


def make_secret(data_dir: Path) -> SecretStr:
    """Keep a new secret, readable by this user alone, and return it; or the one of a process that was first."""
    secret = new_secret()
    beside = data_dir / f"{FILE}.{os.getpid()}"
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secret}\n")
        with suppress(FileExistsError):
            os.link(beside, data_dir / FILE)
    finally:
        beside.unlink(missing_ok=True)
    return kept_secret(data_dir) or SecretStr(secret)
