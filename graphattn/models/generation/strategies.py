"""The next tokens: the likeliest, a random one, or the best of several sequences that grow in parallel."""

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


def beam_search(write: Continuation, prompt: Tensor, number: int, eos: int | None, num_beams: int) -> Tensor:
    """Tokens (B, P + n) of the highest value, the sum of their log-probabilities, among the sequences that end.

    At each step every sequence is extended by every token. Of the best unfinished ones ``num_beams`` are kept; those
    finished among the best ``num_beams`` are candidates. It stops when no unfinished sequence can win.
    """
    B, P = prompt.shape
    fill = 0 if eos is None else eos
    running = prompt[:, None]  # (B, n, length)
    score = torch.zeros(B, 1, device=prompt.device)
    best = prompt.new_full((B, P + number), fill)
    best_value = torch.full((B,), -torch.inf, device=prompt.device)
    new = prompt
    for step in range(1, number + 1):
        gain = write.following(new, eos).log_softmax(-1)  # (B n, V)
        V, n = gain.shape[-1], running.shape[1]
        total = (score[..., None] + gain.view(B, n, V)).flatten(1)
        score, place = total.topk(min(2 * num_beams, n * V))
        parent, token = place // V, (place % V).to(prompt.dtype)
        grown = torch.cat((_of(running, parent), token[..., None]), -1)
        ends = torch.full_like(token, step == number, dtype=torch.bool)
        if eos is not None:
            ends = ends | (token == eos)
        value, rank = score.masked_fill(~ends, -torch.inf)[:, :num_beams].max(1)
        better = value > best_value
        best[better, : P + step] = _of(grown, rank[:, None])[better, 0]
        best[better, P + step :] = fill
        best_value = torch.where(better, value, best_value)
        score, kept = score.masked_fill(ends, -torch.inf).topk(min(num_beams, score.shape[1]))
        if bool((score[:, 0] <= best_value).all()):
            break
        parent, running = parent.gather(1, kept), _of(grown, kept)
        write.reorder((parent + torch.arange(B, device=parent.device)[:, None] * n).flatten())
        new = running[..., -1].reshape(-1, 1)
    return best if eos is None else _cropped(best, P, eos)


def _of(sequences: Tensor, chosen: Tensor) -> Tensor:
    """The chosen (B, m) of sequences (B, n, length)."""
    return sequences.gather(1, chosen[..., None].expand(-1, -1, sequences.shape[-1]))


def _cropped(tokens: Tensor, prompt: int, eos: int) -> Tensor:
    """The sequences without columns after the end of all of them."""
    ended = (tokens[:, prompt:] == eos).cumsum(1) > 1
    return tokens[:, : tokens.shape[1] - int(ended.all(0).sum())]
