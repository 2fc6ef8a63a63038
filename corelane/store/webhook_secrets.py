"""Secrets with which owners sign their webhooks: made, rotated with an overlap, removed."""

from collections.abc import Mapping

from corelane.domain.ids import new_id
from corelane.domain.webhook_secrets import MOST_SECRETS, NewWebhookSecret, OwnedSecret, new_secret
from corelane.errors import CorelaneError, NotFound, SecretInUse
from corelane.store.deliveries.sending import read_secrets
from corelane.store.link.link import CommonLink

#: Why no secret was made, by the library's reply.
REFUSALS: Mapping[str, tuple[type[CorelaneError], str]] = {
    "taken": (SecretInUse, "there is a webhook secret already: rotate it, so that receivers can change, or remove it"),
    "none": (NotFound, "there is no webhook secret to be rotated: create one"),
    "full": (SecretInUse, f"{MOST_SECRETS} secrets sign already: remove one that ends, or wait until one has ended"),
}


class WebhookSecrets:
    """The secrets of an owner."""

    def __init__(self, link: CommonLink, owner: str) -> None:
        self._link, self.owner = link, owner

    async def read(self) -> list[OwnedSecret]:
        """Return the secrets that sign the owner's webhooks now, the newest first."""
        return await read_secrets(self._link, self.owner)

    async def add(self, overlap_s: int, *, is_rotation: bool) -> NewWebhookSecret:
        """Make a secret and return its value, this once; earlier ones end after ``overlap_s``.

        Raise SecretInUse if the owner has one and this is no rotation, or if it has too many. Raise NotFound for a
        rotation without an earlier one.
        """
        made, value, most = new_id("whs"), new_secret(), MOST_SECRETS
        ask = {"owner": self.owner, "id": made, "overlap_ms": 1000 * overlap_s, "most": most}
        reply = (await self._link.run("add_secret", value, is_rotation=is_rotation, **ask)).decode()
        if reply in REFUSALS:
            error, why = REFUSALS[reply]
            raise error(why)
        newest = next(each for each in await self.read() if each.id == made)
        return NewWebhookSecret(**newest.describe().model_dump(), secret=value)

    async def remove(self, secret: str) -> None:
        """Remove a secret at once. Raise NotFound, or SecretInUse if it is the newest and older ones would be left."""
        reply = (await self._link.run("remove_secret", owner=self.owner, id=secret)).decode()
        if reply == "newest":
            raise SecretInUse(
                f"{secret} is the newest, and the others end: rotate with an overlap of 0 to end them all, or remove "
                "the others first"
            )
        if reply == "none":
            raise NotFound(f"no webhook secret {secret[:64]!r} signs now; it never did, was removed, or has ended")
