"""The choice of next tokens: greedy, sampling, and beam search."""

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
        is_excluded = share.cumsum(-1) - share >= top_p  # the tokens before it suffice
        logits = logits.masked_fill(
            torch.zeros_like(is_excluded).scatter(-1, order, is_excluded), -torch.inf
        )
    return logits


@dataclass(frozen=True)
class Sampling:
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
    write: Continuation,
    prompt: Tensor,
    number: int,
    eos: int | None,
    choose: Callable[[Tensor], Tensor],
) -> Tensor:
    """Tokens (B, P + n), each chosen from the logits of those before it; n <= ``number``."""
    tokens = prompt
    new = prompt
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


def beam_search(
    write: Continuation,
    prompt: Tensor,
    number: int,
    eos: int | None,
    num_beams: int,
    length_penalty: float = 0.0,
) -> Tensor:
    """Tokens (B, P + n) of the highest value among the sequences that end.

    The value of n tokens is the sum of their log-probabilities over n to the power
    ``length_penalty``. At each step every sequence is extended by every token. Of the best
    unfinished ones ``num_beams`` are kept; those finished among the best ``num_beams`` are
    candidates. It stops when no unfinished sequence can win.
    """
    B, P = prompt.shape
    if eos is None:
        fill = 0
    else:
        fill = eos
    running = prompt[:, None]  # (B, n, length)
    score = torch.zeros(B, 1, device=prompt.device)
    best = prompt.new_full((B, P + number), fill)
    best_value = torch.full((B,), -torch.inf, device=prompt.device)
    new = prompt
    for step in range(1, number + 1):
        gain = write.following(new, eos).log_softmax(-1)  # (B n, V)
        V = gain.shape[-1]
        n = running.shape[1]
        total = (score[..., None] + gain.view(B, n, V)).flatten(1)
        score, place = total.topk(min(2 * num_beams, n * V))
        parent = place // V
        token = (place % V).to(prompt.dtype)
        extended = torch.cat((_of(running, parent), token[..., None]), -1)
        ends = torch.full_like(token, step == number, dtype=torch.bool)
        if eos is not None:
            ends = ends | (token == eos)
        final, rank = score.masked_fill(~ends, -torch.inf)[:, :num_beams].max(1)
        value = final / step**length_penalty
        better = value > best_value
        best[better, : P + step] = _of(extended, rank[:, None])[better, 0]
        best[better, P + step :] = fill
        best_value = torch.where(better, value, best_value)
        score, selection = score.masked_fill(ends, -torch.inf).topk(min(num_beams, score.shape[1]))
        # the length of the highest value of an unfinished sequence
        if length_penalty > 0:
            most = number
        else:
            most = step
        if bool((score[:, 0] / most**length_penalty <= best_value).all()):
            break
        parent = parent.gather(1, selection)
        running = _of(extended, selection)
        write.reorder((parent + torch.arange(B, device=parent.device)[:, None] * n).flatten())
        new = running[..., -1].reshape(-1, 1)
    if eos is None:
        return best
    # without columns after the end of all sequences
    ended = (best[:, P:] == eos).cumsum(1) > 1
    return best[:, : best.shape[1] - int(ended.all(0).sum())]


def _of(sequences: Tensor, indices: Tensor) -> Tensor:
    """The chosen (B, m) of sequences (B, n, length)."""
    return sequences.gather(1, indices[..., None].expand(-1, -1, sequences.shape[-1]))
