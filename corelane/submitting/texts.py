"""Stored texts in submissions: which ones items name, whether they exist, and how the job carries them.

A job names a stored text by its digest, and each core fetches the text once. A text never changes, so
what is known of it is cached here.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import replace

from corelane.domain.jobs import Item, JobHead
from corelane.domain.texts import Known, is_text_id, unknown
from corelane.store.jobs.submission import Submission
from corelane.store.texts import TextStore
from corelane.tasks.registry import task_named

#: Most texts that one process caches.
REMEMBERED = 4096


class StoredTexts:
    """Finds the stored texts that submissions name."""

    def __init__(self, store: TextStore) -> None:
        self._store = store
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()

    async def resolve(self, submission: Submission) -> Submission:
        """Return a submission with what is known of its texts; raise UnknownText naming missing ones."""
        wanted = stored_ids(submission.head, submission.items)
        if not wanted:
            return submission
        return replace(
            submission, known=await self.find(submission.owner, wanted, held=submission.retry_of is not None)
        )

    async def find(
        self, owner: str, wanted: Collection[str], *, held: bool = False, afresh: bool = False
    ) -> dict[str, Known]:
        """Return what is known of texts, without the cache if ``afresh``; raise UnknownText."""
        found: dict[str, Known] = {}
        if not afresh:
            found = {each: self._known[owner, each] for each in wanted if (owner, each) in self._known}
        if asked := [each for each in wanted if each not in found]:
            found |= await self._store.known(owner, asked, held=held)
            if missing := [each for each in asked if each not in found]:
                self.forget(owner, missing)
                raise unknown(missing)
            for each in asked:
                self._known[owner, each] = found[each]
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found

    async def find_some(self, owner: str, wanted: Collection[str]) -> dict[str, Known]:
        """Return what is known of texts; missing ones are left out."""
        return await self._store.known(owner, wanted)

    def forget(self, owner: str, texts: Iterable[str]) -> None:
        """Remove texts from the cache, because they are gone."""
        for each in texts:
            self._known.pop((owner, each), None)


def stored_ids(head: JobHead, items: Iterable[Item]) -> list[str]:
    """Return the ids of stored texts that items name, each once; the job's own texts are excluded."""
    task = task_named(head.options.task)
    if task.shares is None:
        return []
    ids = {text_id: None for item in items if (text_id := task.parts(item)[2]) is not None}
    return [each for each in ids if is_text_id(each) and each not in head.shared_texts]
