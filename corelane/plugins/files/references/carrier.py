"""The carrier: reads the inputs and writes the outputs of jobs by reference, several at a time, in the keeper.

Slow servers delay only the owners that named them: at most two of the transfers at a time are for one owner.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait

from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.plugins.files.references.reading import InputReader
from corelane.plugins.files.references.writing import OutputWriter
from corelane.plugins.files.store.references import ReferenceStore
from corelane.settings import Settings

log = get_logger(__name__)

#: Most transfers (inputs and outputs) at a time: of all owners, and of one owner.
PLACES, OWNER_PLACES = 8, 2

#: Pause between two checks for due jobs, in seconds.
LOOK_S = 0.2

#: Time that transfers in progress get to stop, in seconds. A transfer that continues longer changes nothing.
GRACE_S = 5.0

#: Most jobs whose owners are looked up at a time.
MOST_LOOKED_UP = 200


class Carrier:
    """Reads inputs and writes outputs while it has the lease."""

    def __init__(self, settings: Settings, name: str) -> None:
        """``name`` is unique among the holders of the lease."""
        self._settings, self._name = settings, name
        self._store = ReferenceStore(settings)

    def go_round(self, should_stop: Callable[[], bool]) -> int:
        """Read and write until no transfer waits; return their number. Raise Unavailable if Redis cannot be reached."""
        if not self._store.has_work(self._name):
            return 0
        over, carried = threading.Event(), 0
        running: dict[Future[None], tuple[str, str]] = {}
        try:
            while not should_stop() and self._store.take_turn(self._name):
                for job, owner, is_output in self._choose(list(running.values())):
                    running[self._begin(job, is_output, over.is_set)] = (job, owner)
                if not running and not self._store.has_work(self._name):
                    break
                if not running:
                    time.sleep(LOOK_S)
                    continue
                done, _ = wait(running, LOOK_S, FIRST_COMPLETED)
                for future in done:
                    del running[future]
                    future.result()
                    carried += 1
        finally:
            over.set()
            wait(running, GRACE_S)
        self._store.end_turn(self._name)
        return carried

    def _begin(self, job: str, is_output: bool, is_over: Callable[[], bool]) -> Future[None]:
        """Transfer for one job in its own thread, which does not keep the process from ending."""
        future: Future[None] = Future()

        def run() -> None:
            try:
                self._carry(job, is_output, is_over)
            except BaseException as error:  # raised where the result is asked for
                future.set_exception(error)
            else:
                future.set_result(None)

        threading.Thread(target=run, name="carry", daemon=True).start()
        return future

    def _choose(self, running: list[tuple[str, str]]) -> list[tuple[str, str, bool]]:
        """Choose the transfers to begin now: the jobs that are due first, at most ``OWNER_PLACES`` of each owner."""
        at_work = {job for job, _ in running}
        due = [(job, is_output) for job, is_output in self._store.due() if job not in at_work][:MOST_LOOKED_UP]
        if not due or len(running) >= PLACES:
            return []
        places = Counter(owner for _, owner in running)
        chosen: list[tuple[str, str, bool]] = []
        for (job, is_output), owner in zip(due, self._store.owners([job for job, _ in due]), strict=True):
            if places[owner] < OWNER_PLACES and len(running) + len(chosen) < PLACES:
                places[owner] += 1
                chosen.append((job, owner, is_output))
        return chosen

    def _carry(self, job: str, is_output: bool, is_over: Callable[[], bool]) -> None:
        """Transfer one job's input or output, over its own connection."""
        store = ReferenceStore(self._settings)
        try:
            if is_output:
                OutputWriter(self._settings, store, is_over).write(job)
            else:
                InputReader(self._settings, store, is_over).read(job)
        except Unavailable:
            raise
        except Exception:  # logged here; it stays due, and harms no other
            log.exception("reference_broke_down", job_id=job)
            time.sleep(LOOK_S)
        finally:
            store.close()
