"""Errors of the Neuron runtime, and the remedy for each. Pure.

The texts and status codes are from AWS' documents (NRT_STATUS) and from public issues; the remedies are our
interpretation. A RuntimeError without a known text is blamed on the request, not on the core.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from corelane.errors import last_line


class DeviceGone(RuntimeError):
    """The device process has died, or did not reply in time."""


class Remedy(StrEnum):
    """The action that an error calls for."""

    REFUSE = "refuse"  #: this request or this artifact can never work here: it fails, and all else goes on
    RETRY = "retry"  #: the same call will succeed in a moment, in this process
    RESTART = "restart"  #: the runtime can no longer be used in this process; a new process can go on
    WAIT = "wait"  #: another process holds the core; a new process tries again, after growing pauses
    RETIRE = "retire"  #: the core has to be taken out of service


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The remedy for an error, a sentence for the operator, and variables for the next process."""

    remedy: Remedy
    reason: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """One NRT_STATUS: its name, its remedy during a load and during a run, and advice."""

    name: str
    load: Remedy
    run: Remedy
    advice: str = ""


REPLACE_IF_REPEATED = "if it comes back, replace the instance"
REPLACE = "terminate the instance, or stop and start it"

#: Every NRT_STATUS that is an error. Statuses of collectives are treated like others: a single core has none.
STATUSES: dict[int, Status] = {
    1: Status("FAILURE", Remedy.RESTART, Remedy.RESTART),
    2: Status(
        "INVALID", Remedy.REFUSE, Remedy.REFUSE, "compiled for another logical core size, or damaged: compile again"
    ),
    3: Status("INVALID_HANDLE", Remedy.RESTART, Remedy.RESTART),
    4: Status(
        "RESOURCE", Remedy.REFUSE, Remedy.RESTART, "the core's memory is full: fewer or smaller buckets or models"
    ),
    5: Status("TIMEOUT", Remedy.RESTART, Remedy.RESTART, REPLACE_IF_REPEATED),
    6: Status("HW_ERROR", Remedy.RETIRE, Remedy.RETIRE, "or a model compiled for another chip; see dmesg"),
    7: Status("QUEUE_FULL", Remedy.RETRY, Remedy.RETRY),
    9: Status("LOAD_NOT_ENOUGH_NC", Remedy.REFUSE, Remedy.REFUSE, "the model needs more cores than its worker has"),
    10: Status("UNSUPPORTED_NEFF_VERSION", Remedy.REFUSE, Remedy.REFUSE, "compile again with this runtime's SDK"),
    11: Status("FAIL_HOST_MEM_ALLOC", Remedy.RESTART, Remedy.RESTART, "the host is out of memory"),
    13: Status("UNINITIALIZED", Remedy.RESTART, Remedy.RESTART),
    14: Status("CLOSED", Remedy.RESTART, Remedy.RESTART),
    15: Status("QUEUE_EMPTY", Remedy.RETRY, Remedy.RETRY),
    101: Status("EXEC_UNIT_UNRECOVERABLE", Remedy.RESTART, Remedy.RESTART, REPLACE_IF_REPEATED),
    1002: Status("EXEC_BAD_INPUT", Remedy.REFUSE, Remedy.REFUSE),
    1003: Status("EXEC_COMPLETED_WITH_NUM_ERR", Remedy.REFUSE, Remedy.REFUSE, "the model computed NaN"),
    1004: Status("EXEC_COMPLETED_WITH_ERR", Remedy.RESTART, Remedy.RESTART, REPLACE_IF_REPEATED),
    1005: Status("EXEC_NC_BUSY", Remedy.RETRY, Remedy.RETRY),
    1006: Status(
        "EXEC_OOB", Remedy.REFUSE, Remedy.REFUSE, "an index is out of range, as a token beyond the vocabulary"
    ),
    1100: Status("COLL_PENDING", Remedy.RETRY, Remedy.RETRY),
    1200: Status("HW_ERR_COLLECTIVES", Remedy.RETIRE, Remedy.RETIRE, REPLACE),
    1201: Status("HW_ERR_HBM_UE", Remedy.RETIRE, Remedy.RETIRE, REPLACE),
    1202: Status("HW_ERR_NC_UE", Remedy.RETIRE, Remedy.RETIRE, REPLACE),
    1203: Status("HW_ERR_DMA_ABORT", Remedy.RESTART, Remedy.RESTART, REPLACE_IF_REPEATED),
    1204: Status("SW_NQ_OVERFLOW", Remedy.RESTART, Remedy.RESTART, "restarted without DGE notifications"),
    1205: Status("HW_ERR_REPAIRABLE_HBM_UE", Remedy.RETIRE, Remedy.RETIRE, "reload the driver or restart the instance"),
    1206: Status("NETWORK_PROXY_FAILURE", Remedy.RESTART, Remedy.RESTART),
}

#: Environment variables that the next process needs after a status, before it loads the runtime.
ENVIRONMENTS = {1204: {"NEURON_RT_ENABLE_DGE_NOTIFICATIONS": "0"}}

#: Stands for a status that is not in the table: the process is not trusted any more.
UNKNOWN = Status("unknown status", Remedy.RESTART, Remedy.RESTART)

STATUS = re.compile(r"(Could not load|Failed to execute) the model status=(\d+)(?: message=([^\n]*))?")

NO_DEVICE = "no Neuron device can be used: look for the driver, and for --device=/dev/neuron0 where this is a container"

#: Error texts without a status, by a part of the text; the first match counts.
TEXTS: tuple[tuple[str, Remedy, str], ...] = (
    ("Neuron cores are not contiguous", Remedy.RETIRE, "the cores of a worker must be neighbours"),
    ("no Neuron device", Remedy.RETIRE, NO_DEVICE),
    ("No neuron device available", Remedy.RETIRE, NO_DEVICE),
    ("Could not open the nd", Remedy.RETIRE, NO_DEVICE),
    ("Unable to determine Neuron Driver version", Remedy.RETIRE, NO_DEVICE),
    ("Please check /dev/neuron", Remedy.RETIRE, NO_DEVICE),
    ("!(num_devices > 0)", Remedy.RETIRE, NO_DEVICE),
    ("Neuron Core(s) not available", Remedy.WAIT, "another process holds the core"),
    ("NeuronCore(s) not available", Remedy.WAIT, "another process holds the core"),
    ("cores busy", Remedy.WAIT, "another process holds the core"),
    ("Neuron Runtime could not be initialized", Remedy.WAIT, "the runtime does not start: as a rule another process "
     "holds the core"),
    ("Neuron runtime cannot be initialized", Remedy.WAIT, "the runtime does not start: as a rule another process holds "
     "the core"),
    ("NOT CALCULATED", Remedy.RETIRE, NO_DEVICE),
    ("Incorrect tensor", Remedy.REFUSE, "the model was compiled for other shapes or types"),
    ("Unknown builtin op: neuron::", Remedy.REFUSE, "the model was compiled by the other family of Neuron chips"),
    ("Unknown type name '__torch__.torch.classes.neuron", Remedy.REFUSE, "the model was compiled by the other family "
     "of Neuron chips"),
)  # fmt: skip


def classify(text: str) -> Diagnosis:
    """Return the diagnosis on an error's text."""
    if (found := STATUS.search(text)) is not None:
        return _of_status(found[1] == "Could not load", int(found[2]), (found[3] or "").strip())
    for part, remedy, reason in TEXTS:
        if part in text:
            return Diagnosis(remedy, reason)
    return Diagnosis(Remedy.REFUSE, last_line(text))


def _of_status(loading: bool, code: int, message: str) -> Diagnosis:
    status = STATUSES.get(code, UNKNOWN)
    what = f"status {code} ({status.name}{f': {message}' if message else ''})"
    reason = f"{what}; {status.advice}" if status.advice else what
    return Diagnosis(status.load if loading else status.run, reason, dict(ENVIRONMENTS.get(code, {})))
