"""What a calibration is fitted on: the best candidate of each query, before any calibration."""

from collections.abc import Sequence
from typing import Any

from corelane.engine.decode.answers import ReadWindow, best_candidates
from corelane.engine.decode.candidates import Candidate
from corelane.engine.runner import Runner
from corelane.engine.text.tokenize import Query, Reading


class WitnessRunner(Runner):
    """A runner that tells what it saw in place of results; open it with ``calibrated=False``."""

    def testify(self, queries: Sequence[Query]) -> list[Candidate | None]:
        """The best candidate of each query by its margin, in order; None where there is none or the query failed."""
        return [result.get("best") for result in self.answer(queries)]

    def _respond(self, reading: Reading, found: Sequence[ReadWindow]) -> dict[str, Any]:
        best = best_candidates(reading.query, reading.context, found, None)
        return {"best": best[0] if best else None}
