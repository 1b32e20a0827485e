"""The choice of the next token: the likeliest, or a random one."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .continuation import Continuation


def truncated(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Logits (..., V) with -inf for excluded tokens.

    Args:
        logits: Logits of the next token.
        top_k: Keep the ``top_k`` likeliest tokens, ties included.
        top_p: Then keep the fewest of the likeliest whose probabilities sum to at least ``top_p``.

    Source: Fan et al. 2018 (top-k); Holtzman et al. 2020 (nucleus, top-p).
    """
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p is not None and top_p < 1.0:
        values, order = logits.sort(descending=True, stable=True)
        share = values.softmax(-1)
        late = share.cumsum(-1) - share >= top_p  # the tokens before it suffice
        logits = logits.masked_fill(torch.zeros_like(late).scatter(-1, order, late), -torch.inf)
    return logits


@dataclass(frozen=True)
class Sample:
    """Draw from softmax(logits / temperature), truncated."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    generator: torch.Generator | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """Tokens (B,) for logits (B, V)."""
        logits = logits - logits.amax(-1, keepdim=True)  # so that none overflows
        share = truncated(logits / self.temperature, self.top_k, self.top_p).softmax(-1)
        return torch.multinomial(share, 1, generator=self.generator).squeeze(-1)


def likeliest(logits: Tensor) -> Tensor:
    """Tokens (B,) for logits (B, V); the first of equals."""
    return logits.argmax(-1)


def one_by_one(
    write: Continuation, prompt: Tensor, number: int, eos: int | None, choose: Callable[[Tensor], Tensor]
) -> Tensor:
    """Tokens (B, P + n), each chosen from the logits of those before it; n is at most ``number``."""
    tokens, new = prompt, prompt
    ended = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(number):
        chosen = choose(write.following(new, eos)).to(prompt.dtype)
        if eos is not None:
            chosen = chosen.masked_fill(ended, eos)
            ended = ended | (chosen == eos)
        new = chosen[:, None]
        tokens = torch.cat((tokens, new), 1)
        if eos is not None and bool(ended.all()):
            break
    return tokens
