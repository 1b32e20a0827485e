"""Beam search: the best of several sequences that grow side by side."""

import torch
from torch import Tensor

from .choose import wide
from .continuation import Continuation


def beam_search(write: Continuation, prompt: Tensor, number: int, eos: int | None, num_beams: int) -> Tensor:
    """Tokens (B, P + n) of the highest sum of log-probabilities among the sequences that were kept.

    At each step every sequence grows by every token and the ``num_beams`` best are kept; those that end compete for
    the result and grow no more. What is left out for them is less likely than they are, and so cannot win. It stops
    when no sequence that grows can win.
    """
    B, P = prompt.shape
    running = prompt[:, None]  # (B, n, length)
    score = torch.zeros(B, 1, device=prompt.device)
    best = prompt.new_full((B, P + number), 0 if eos is None else eos)
    best_score = torch.full((B,), -torch.inf, device=prompt.device)
    new = prompt
    for length in range(P + 1, P + number + 1):
        gain = wide(write(new)[:, -1]).log_softmax(-1)  # (B n, V)
        V, n = gain.shape[-1], running.shape[1]
        total = (score[..., None] + gain.view(B, n, V)).flatten(1)
        score, place = total.topk(min(num_beams, n * V))
        parent, token = place // V, (place % V).to(prompt.dtype)
        running = torch.cat((_of(running, parent), token[..., None]), -1)
        ends = torch.full_like(token, length == P + number, dtype=torch.bool)
        if eos is not None:
            ends = ends | (token == eos)
        final, rank = score.masked_fill(~ends, -torch.inf).max(1)
        better = final > best_score
        best[better, :length] = _of(running, rank[:, None])[better, 0]
        best[better, length:] = 0 if eos is None else eos
        best_score = torch.maximum(best_score, final)
        score = score.masked_fill(ends, -torch.inf)
        if bool((score.amax(1) <= best_score).all()):
            break
        write.reorder((parent + torch.arange(B, device=parent.device)[:, None] * n).flatten())
        new = running[..., -1].reshape(-1, 1)
    return best if eos is None else _cropped(best, P, eos)


def _of(sequences: Tensor, chosen: Tensor) -> Tensor:
    """Of sequences (B, n, length) those that are chosen (B, m)."""
    return sequences.gather(1, chosen[..., None].expand(-1, -1, sequences.shape[-1]))


def _cropped(tokens: Tensor, prompt: int, eos: int) -> Tensor:
    """Without the columns in which every sequence has ended before."""
    ended = (tokens[:, prompt:] == eos).cumsum(1) > 1
    return tokens[:, : tokens.shape[1] - int(ended.all(0).sum())]
