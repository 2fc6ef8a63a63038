"""Weights laid out for this CPU's matrix kernels, once at load.

A file holds plain weights and, before each linear layer, the operation that packs them: the packed form depends on the
CPU and the library, and cannot be written to a file. ``settle`` runs those operations and puts their results in place
of them; a module that was not settled gives the same logits and packs on every pass.
"""

from typing import Any

import torch

#: Operations whose result depends on weights alone.
PACKING = {"mkldnn::_reorder_linear_weight": torch.ops.mkldnn._reorder_linear_weight}

#: Attributes that hold packed weights, numbered.
PREFIX = "packed_"


def settle(scripted: Any) -> Any:
    """Pack the weights of a frozen module in place, before its first pass; it cannot be saved from then on."""
    graph = scripted.graph
    owner = next(iter(graph.inputs()))
    packed: dict[str, str] = {}
    for operation, pack in PACKING.items():
        for node in graph.findAllNodes(operation):
            weight = node.inputsAt(0)
            name = packed.get(weight.debugName())
            if name is None:
                name = packed[weight.debugName()] = f"{PREFIX}{len(packed)}"
                with torch.no_grad():
                    scripted._c._register_attribute(name, torch._C.TensorType.get(), pack(weight.toIValue()))
            attribute = graph.create("prim::GetAttr", [owner], 1)
            attribute.s_("name", name)
            attribute.insertBefore(node)
            node.output().replaceAllUsesWith(attribute.output())
            node.destroy()
    torch._C._jit_pass_dce(graph)
    return scripted
