"""What each error of the Neuron runtime comes to, by the texts of its documents and of public issues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.plugins.backends.neuron.errors import STATUSES, Remedy, classify

#: NRT_STATUS by what the reference says of it: the worker must not need to know more.
RUN = {
    Remedy.REFUSE: {2, 9, 10, 1002, 1003, 1006},
    Remedy.RETRY: {7, 15, 1005, 1100},
    Remedy.RESTART: {1, 3, 4, 5, 11, 13, 14, 101, 1004, 1203, 1204, 1206, 4711},
    Remedy.RETIRE: {6, 1200, 1201, 1202, 1205},
}

#: As they are seen in Python and on standard error.
TEXTS = {
    "RuntimeError: Could not load the model status=4 message=Allocation Failure": Remedy.REFUSE,
    "Could not load the model status=2 message=Invalid": Remedy.REFUSE,
    "Failed to execute the model status=1003 message=Numerical Error": Remedy.REFUSE,
    "Failed to execute the model status=1006 message=Execution Out-Of-Bounds Memory Access": Remedy.REFUSE,
    "The PyTorch Neuron Runtime could not be initialized. Neuron Driver issues are logged to your system logs.": (
        Remedy.WAIT
    ),
    "Neuron runtime cannot be initialized; cannot determine the number of available NeuronCores": Remedy.WAIT,
    "ERROR NRT:nrt_allocate_neuron_cores  NeuronCore(s) not available - Requested:nc1-nc1 Available:0": Remedy.WAIT,
    "Logical Neuron Core(s) not available - Requested:lnc0-lnc0 Available:0 (cores busy, ret=-16)": (Remedy.WAIT),
    "TDRV:tdrv_get_dev_info No neuron device available": Remedy.RETIRE,
    "Could not open the nd1": Remedy.RETIRE,
    "Neuron cores are not contiguous": Remedy.RETIRE,
    "Unable to determine Neuron Driver version. Please check aws-neuronx-dkms": Remedy.RETIRE,
    "Bad StatusOr access: INVALID_ARGUMENT: PJRT_Client_Create: !(num_devices > 0)": Remedy.RETIRE,
    "Incorrect tensor shape at input #1: received 2, expected 4": Remedy.REFUSE,
    "Unknown builtin op: neuron::forward_1": Remedy.REFUSE,
    "something nobody has seen before": Remedy.REFUSE,
}


@pytest.mark.parametrize(
    ("remedy", "code"), [(remedy, code) for remedy, codes in RUN.items() for code in sorted(codes)]
)
def test_status_of_an_execution(remedy: Remedy, code: int) -> None:
    diagnosis = classify(f"RuntimeError: Failed to execute the model status={code} message=Words")
    assert diagnosis.remedy is remedy
    assert f"status {code} (" in diagnosis.reason
    assert "Words" in diagnosis.reason


def test_every_status_is_tried() -> None:
    assert set().union(*RUN.values()) - {4711} == set(STATUSES)


@pytest.mark.parametrize(("text", "remedy"), TEXTS.items())
def test_text(text: str, remedy: Remedy) -> None:
    assert classify(f"Traceback of TorchScript (most recent call last):\n  forward\n{text}\n").remedy is remedy


def test_queue_overflow_leaves_the_next_process_what_the_documents_ask_for() -> None:
    diagnosis = classify("Failed to execute the model status=1204 message=x")
    assert diagnosis.environment == {"NEURON_RT_ENABLE_DGE_NOTIFICATIONS": "0"}


@given(st.text())
def test_any_text_comes_to_something_with_a_reason(text: str) -> None:
    assert classify(text).reason
