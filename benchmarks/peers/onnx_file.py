"""A checkpoint's network as an ONNX file, as fastembed reads it."""

import warnings
from pathlib import Path
from typing import Any

#: The inputs that fastembed gives, and the output that it pools.
INPUTS, OUTPUT = ("input_ids", "attention_mask", "token_type_ids"), "last_hidden_state"


def write(checkpoint: Path) -> None:
    """Write ``model.onnx`` in fp32 into a checkpoint's folder."""
    import torch
    import transformers
    from torch.onnx._internal.torchscript_exporter import onnx_proto_utils

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = transformers.AutoModel.from_pretrained(checkpoint, attn_implementation="eager").eval()

        def forward(self, *given: Any) -> Any:
            return self.inner(**dict(zip(INPUTS, given, strict=True))).last_hidden_state

    # Only functions of onnxscript need the package onnx, and this network has none.
    onnx_proto_utils._add_onnxscript_fn = lambda model, _: model
    ones, shape = torch.ones(2, 8, dtype=torch.int64), {0: "rows", 1: "length"}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Network(),
            (ones, ones, torch.zeros_like(ones)),
            str(checkpoint / "model.onnx"),
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_axes=dict.fromkeys((*INPUTS, OUTPUT), shape),
            dynamo=False,
        )
