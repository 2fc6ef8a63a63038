"""API keys of several owners, whose secrets a test knows before they are made."""

from corelane.domain.api_keys import Scope, key_digest
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.api_keys import ApiKeyStore
from corelane.store.link.blocking import Link
from tests.tools.redis import admin_url, client_of


def secret_of(owner: str) -> str:
    """Return the key of an owner."""
    return f"clk_{owner:x<43}"


def as_owner(owner: str) -> dict[str, str]:
    """Return the header by which an owner sends its key."""
    return {"X-API-Key": secret_of(owner)}


def add_keys(settings: Settings, *owners: str) -> Settings:
    """Make a key that may send and read for each owner; return settings that check keys."""
    with client_of(admin_url(settings.redis_url)) as admin:
        for owner in owners:
            _, secret = ApiKeyStore(Link(settings.redis_url)).create(owner, [Scope.SUBMIT, Scope.READ], owner=owner)
            admin.copy(keys.api_key(key_digest(secret)), keys.api_key(key_digest(secret_of(owner))))
    return settings.model_copy(update={"auth": "required"})
