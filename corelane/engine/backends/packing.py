"""Packs weights for this CPU's matrix kernels, once at load.

A file holds plain weights and, before each linear layer, the operation that packs them. The packed form depends on the
CPU and the library, so it cannot be stored in the file. ``settle`` runs those operations and replaces them by their
results. A module that was not settled gives the same logits, but packs on every pass.
"""

from typing import Any

import torch

#: Operations whose result depends only on weights.
PACKING = {"mkldnn::_reorder_linear_weight": torch.ops.mkldnn._reorder_linear_weight}

#: Prefix of the attributes that hold packed weights; a number follows.
PREFIX = "packed_"


def settle(scripted: Any) -> Any:
    """Pack the weights of a frozen module in place, before its first pass. Afterwards the module cannot be saved."""
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
