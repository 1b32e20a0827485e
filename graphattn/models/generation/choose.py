"""The choice of the next token: the likeliest, or a random one."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .continuation import Continuation


@dataclass(frozen=True)
class Sample:
    """Draw from softmax(logits / temperature)."""

    temperature: float = 1.0
    generator: torch.Generator | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """Tokens (B,) for logits (B, V)."""
        logits = logits - logits.amax(-1, keepdim=True)  # so that none overflows
        share = (logits / self.temperature).softmax(-1)
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
