"""``python -m deploy.redis.users``: write the two users of the service into ``users.acl`` again, from the code.

The other lines are written by hand. ``DIGEST`` stands for the SHA-256 of a password: Redis does not start with it.
"""

from collections.abc import Iterable
from pathlib import Path

from corelane.store.acl import service_rules, worker_rules

PATH = Path(__file__).with_name("users.acl")


def renewed(lines: Iterable[str]) -> str:
    """Return the file with the rights that the code needs."""
    rules = {"corelane": service_rules(), "corelane-worker": worker_rules()}
    users = {name: f"user {name} reset on #DIGEST {rights}" for name, rights in rules.items()}
    return "".join(f"{users.get(line.split()[1], line)}\n" for line in lines)


if __name__ == "__main__":
    PATH.write_text(renewed(PATH.read_text().splitlines()))
