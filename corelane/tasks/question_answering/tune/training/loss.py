"""The loss of logits: the marginal loss over all reference spans, and the distance to teachers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from corelane.tasks.question_answering.tune.training.dataset import Span

#: The span of a row without an answer: start and end at [CLS].
NULL: Span = (0, 0)


def readable(width: int, context_at: Tensor, last: Tensor) -> Tensor:
    """Return which tokens of each row an answer may have: [CLS] and the passage, as in the search for answers."""
    position = torch.arange(width, device=context_at.device)
    inside = (position >= context_at[:, None]) & (position < last[:, None])
    return inside | (position == 0)


def log_shares(logits: Tensor, allowed: Tensor) -> Tensor:
    """Return the log probability of each allowed token; other tokens get the smallest value of fp32."""
    least = torch.finfo(torch.float32).min
    return torch.log_softmax(logits.float().masked_fill(~allowed, least), dim=-1)


def marginal_loss(starts: Tensor, ends: Tensor, spans: Sequence[Sequence[Span]]) -> Tensor:
    """Return the mean of -log Σ P(span) over the rows; a row without spans has the null span.

    ``starts`` and ``ends`` are log probabilities, rows × length. All reference spans are right, so they add up.
    """
    wanted = [list(row) or [NULL] for row in spans]
    most = max(map(len, wanted))
    padded = [row + [row[0]] * (most - len(row)) for row in wanted]
    at = torch.tensor(padded, device=starts.device)
    counts = torch.tensor([len(row) for row in wanted], device=starts.device)
    extra = torch.arange(most, device=starts.device) >= counts[:, None]
    chances = starts.gather(1, at[:, :, 0]) + ends.gather(1, at[:, :, 1])
    return -torch.logsumexp(chances.masked_fill(extra, -torch.inf), dim=1).mean()


def distance(student: Tensor, teacher: Tensor, allowed: Tensor, temperature: float) -> Tensor:
    """Return the mean Kullback-Leibler distance of logits to a teacher's, both softened by a temperature.

    Multiplying by the square of the temperature keeps its gradient as large as the marginal loss's (Hinton et al.,
    2015).
    """
    wanted = log_shares(teacher / temperature, allowed)
    found = log_shares(student / temperature, allowed)
    gap = torch.where(allowed, wanted.exp() * (wanted - found), 0.0)
    return gap.sum(dim=1).mean() * temperature**2
