"""What steers the service is done in every cell: models loaded and unloaded, aliases moved. May be repeated.

If some cells refuse or are away, the answer is the problem of the first of them, which says where it was done.
"""

from collections.abc import Mapping

import orjson

from api.cells.calls import Reply


def steer(replies: Mapping[str, Reply]) -> Reply:
    """Return the answer to a change that was asked of every cell. Pure.

    A core is in one cell: that others do not know it is no failure.
    """
    done = {cell: reply for cell, reply in replies.items() if reply.status < 300}
    refused = {cell: reply for cell, reply in replies.items() if cell not in done}
    if done and all(reply.status == 404 for reply in refused.values()):
        refused = {}
    if not refused:
        return next(iter(done.values()))
    # Of a core that no cell knows, and of a caller who may not do this, all say the same.
    cell, first = next(
        ((cell, reply) for cell, reply in refused.items() if reply.status != 404), next(iter(refused.items()))
    )
    if not done and all(reply.status == first.status for reply in refused.values()):
        return first
    where = f"done in {_named(done)}" if done else "done nowhere"
    said = first.json()
    problem = said | {"detail": f"cell {cell}: {said['detail']} ({where}, not in {_named(refused)}; send it again)"}
    body = orjson.dumps(problem)
    headers = [(name, value) for name, value in first.headers if name.lower() != b"content-length"]
    return Reply(first.status, [*headers, (b"content-length", str(len(body)).encode())], body)


def _named(cells: Mapping[str, Reply]) -> str:
    return f"cell{'s' if len(cells) > 1 else ''} {', '.join(cells)}"
