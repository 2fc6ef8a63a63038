"""The files that a batch's items name: fetched before ``predict``, each once, many at a time."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from corelane.engine.task import Fetch
from corelane.errors import CorelaneError, InputFailed
from corelane.tasks.handler.files import FileUrl

#: Most files that are fetched at a time: a batch of the default size waits no longer than for its slowest.
AT_ONCE = 32


def fetch_all(
    fetch: Fetch | None, items: Sequence[tuple[str, Sequence[FileUrl]]], own_most: int | None
) -> dict[int, Exception]:
    """Fetch what is not here yet of items' files; return the errors, by number, of items whose files are not to be had.

    Each item is its owner and its files: owners share none, as each may name others. ``own_most`` are the most bytes of
    a file by the handler's own bound.
    """
    wanted: defaultdict[tuple[str, str], list[tuple[int, FileUrl]]] = defaultdict(list)
    failed: dict[int, Exception] = {}
    for number, (owner, files) in enumerate(items):
        for file in files:
            if file.fault is not None:
                failed[number] = file.fault
            elif file.fetched is None:
                wanted[owner, file.name].append((number, file))
    if fetch is None:
        none = InputFailed("nothing here fetches the files that items name: the plugin `files` does, in workers")
        return {number: none for asking in wanted.values() for number, _ in asking}
    with ThreadPoolExecutor(AT_ONCE, "fetch") as pool:
        found = [pool.submit(fetch, name, owner, own_most) for owner, name in wanted]
        for future, asking in zip(found, wanted.values(), strict=True):
            for number, file in asking:
                try:
                    file.fetched, file.content_type = future.result()
                except CorelaneError as error:
                    failed[number] = file.fault = error
    return failed
