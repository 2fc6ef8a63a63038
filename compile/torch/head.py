"""The head: the last linear layer, which makes two logits of each token. On CPU and GPU it stays in fp32.

Logits of 4 to 16 are 1/32 to 1/16 apart in bf16. The best result then ties with another (for about 1 % of the items of
SQuAD), and the first of them wins. Two outputs cost nothing in fp32.
"""

import torch
from torch import Tensor, nn

#: The names that the architectures of transformers give the head.
HEADS = ("qa_outputs", "classifier", "score")


class PlainHead(nn.Linear):
    """A head that the compiler's passes do not treat as a linear layer.

    oneDNN would keep a kernel of it, half a megabyte, for each number of tokens. A layer with two outputs does not need
    one.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the logits."""
        return torch.matmul(input, self.weight.t()) + self.bias


def find_head(network: nn.Module) -> nn.Linear | None:
    """Return a network's head; None if it is not a single layer."""
    for name in HEADS:
        head = getattr(network, name, None)
        if isinstance(head, nn.Linear):
            return head
    return None


def unpack_head(network: nn.Module) -> None:
    """Make a network compute its head without packed kernels, in place."""
    head = find_head(network)
    if head is not None and head.bias is not None:
        head.__class__ = PlainHead


def cast_body(network: nn.Module, dtype: torch.dtype) -> None:
    """Cast everything but the head, in place; the head then takes its inputs in fp32.

    A network whose head has several layers (Splinter, BigBird) is cast as a whole.
    """
    head = find_head(network)
    if head is None or dtype == torch.float32:
        network.to(dtype)
        return
    weights = head.state_dict()
    network.to(dtype)
    head.to(torch.float32).load_state_dict(weights)
    head.register_forward_pre_hook(lambda _, arguments: (arguments[0].float(), *arguments[1:]))
