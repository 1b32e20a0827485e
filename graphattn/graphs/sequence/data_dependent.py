"""Graphs from the values of a layer: scores, hashes."""

from typing import Literal

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph import runs as _runs
from ...graph.expression import builder
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ..arguments import call, flag, integers, one_of, stored, whole


@builder
def top_k(scores: Tensor, k: int) -> AttentionGraph:
    r"""Every target reads the ``k`` sources of highest score.

    .. math:: \mathcal{N}(t) = \{ \text{the first } k \text{ sources by } (-a_{ts}, s), \; a_{ts} > -\infty \}

    Args:
        scores: (T, S) numbers; -inf is never an edge, so a target may have fewer than ``k``.
        k: Sources of every target, at most S.
    Returns:
        Listed edges on the device of ``scores``, by target, then from the highest score; of equal scores the lowest
        source wins. The choice has no gradient: run attention on the graph with differentiable scores.
        ``top_k(scores.T, k).reverse()`` lets every source choose its targets (expert choice).
    Raises:
        GraphError: If ``scores`` is not a (T, S) tensor of real numbers, holds a NaN, or ``k`` exceeds S.
    Source:
        Zhao et al. 2019 (Explicit Sparse Transformer); as a mixture of experts, Shazeer et al. 2017.
        *What differs* from ``sparse_topk`` of x-transformers: it keeps all scores equal to the k-th.
    Example:
        >>> print(top_k(torch.tensor([[0.3, 0.1, 0.9], [0.5, 0.5, 0.5]]), 2))
        AttentionGraph(top_k(<(2, 3)>, 2): 3 sources -> 2 targets, 4 edges, density 0.667, listed)
        █ · █
        █ █ ·
    """
    if stored(scores, "scores").dim() != 2:
        raise GraphError(f"scores must have shape (T, S), got {tuple(scores.shape)}; build a graph for each head")
    if scores.dtype == torch.bool or scores.is_complex():
        raise GraphError(f"scores must be real numbers, got {str(scores.dtype).removeprefix('torch.')}")
    k, (T, S) = whole(k, "k"), scores.shape
    if k > S:
        raise GraphError(f"k must be at most the number of sources, got k={k} of {S}")
    scores = scores.detach()
    if bool((bad := scores.isnan()).any()):
        target, source = torch.nonzero(bad)[0].tolist()
        raise GraphError(f"scores must not be NaN, got NaN at [{target}, {source}]")
    source = _highest(scores, k)
    target = torch.arange(T, device=scores.device)[:, None].expand_as(source)
    keep = scores.gather(1, source) != -torch.inf
    edges = listed(target[keep], source[keep], T, S, has_repeats=False)
    return AttentionGraph(edges, call("top_k", scores, k), scores.device)


def _highest(scores: Tensor, k: int) -> Tensor:
    """The sources (T, k) of the highest scores, highest first; of equal ones the lowest source first."""
    if k == 0:
        return torch.empty(len(scores), 0, dtype=torch.int64, device=scores.device)
    least = scores.topk(k, dim=1).values[:, -1:]
    above, equal = scores > least, scores == least  # topk may return any of the equal ones
    first = equal.cumsum(1) <= k - above.sum(1, keepdim=True)
    source = torch.nonzero(above | (equal & first))[:, 1].view(-1, k)
    order = torch.sort(scores.gather(1, source), dim=1, descending=True, stable=True).indices
    return source.gather(1, order)


@builder
def lsh_buckets(
    buckets: Tensor,
    chunk: int,
    *,
    look_back: int = 1,
    causal: bool = True,
    same_bucket: bool = True,
    wrap: bool = False,
    self_loops: Literal["alone", "always"] = "alone",
) -> AttentionGraph:
    r"""Reformer: tokens sorted by bucket and cut into chunks; a token reads its bucket in its chunk and the one before.

    .. math::
        \mathcal{N}(t) = \{ s : 0 \le \lfloor p_t / m \rfloor - \lfloor p_s / m \rfloor \le l, \;
        b_s = b_t, \; s \le t \}, \quad p = \text{place by } (b, t)

    Args:
        buckets: (N,) integers, the hash of each token.
        chunk: m, tokens in a chunk of the sorted sequence; the last one is cut where m does not divide N.
        look_back: l, number of chunks before its own that a target reads.
        causal: Read up to the target only, in the order of the text.
        same_bucket: Read the token's bucket only; ``False`` reads whole chunks.
        wrap: The chunk before the first is the last one.
        self_loops: ``"alone"``: a token reads itself only if it reads nothing else, as Reformer's shared queries and
            keys need; ``"always"``: like any other token.
    Returns:
        Listed edges on the device of ``buckets``, by target, then by source; for several rounds of hashes join one
        graph for each by ``|``.
    Raises:
        GraphError: If ``buckets`` is not integer (N,), ``chunk < 1``, or ``wrap`` would meet a chunk twice.
    Source:
        Kitaev et al. 2020 (Reformer), section 2. *What differs:* Hugging Face's ``LSHSelfAttention`` has
        ``same_bucket=False, wrap=True``, and its self-score of -1e5 is ``"alone"`` after softmax. Reformer mixes rounds
        by their log-sum-exp, so that an edge counts once for each of its rounds; a union counts it once.
    Example:
        >>> print(lsh_buckets(torch.tensor([0, 1, 0, 1, 0, 0]), 2))
        AttentionGraph(lsh_buckets([0, 1, 0, 1, ...], 2): 6 nodes, 9 edges, density 0.25, listed)
        █ · · · · ·
        · █ · · · ·
        █ · · · · ·
        · █ · · · ·
        █ · █ · · ·
        █ · █ · █ ·
    """
    ids, causal, same_bucket = integers(buckets, "buckets"), flag(causal, "causal"), flag(same_bucket, "same_bucket")
    chunk, look_back, wrap = whole(chunk, "chunk", 1), whole(look_back, "look_back"), flag(wrap, "wrap")
    one_of(self_loops, "self_loops", ("alone", "always"))
    labels, N = ids.cpu(), ids.numel()
    if wrap and N and look_back >= -(-N // chunk):
        raise GraphError(
            f"wrap needs more than look_back={look_back} chunks, got {-(-N // chunk)} for {N} tokens; lower look_back"
        )
    order = torch.argsort(labels, stable=True)
    refuse_over(64 * N * chunk * (look_back + 1), f"chunks of {chunk:,} for {N:,} tokens", "use smaller ones")
    place, near = _runs.expand(_chunks(labels[order] if same_bucket else None, N, chunk, look_back, wrap))
    target, source = order[place], order[near]
    if causal:
        target, source = target[source <= target], source[source <= target]
    if self_loops == "alone":
        target, source = target[source != target], source[source != target]
        alone = torch.nonzero(torch.bincount(target, minlength=N) == 0).flatten()
        target, source = torch.cat((target, alone)), torch.cat((source, alone))
    key = torch.sort(target * N + source).values
    edges = listed(key // max(1, N), key % max(1, N), N, N).to(ids.device)
    name = call(
        "lsh_buckets",
        ids,
        chunk,
        look_back=look_back,
        causal=causal,
        same_bucket=same_bucket,
        wrap=wrap,
        self_loops=self_loops,
    )
    return AttentionGraph(edges, name, ids.device)


def _chunks(labels: Tensor | None, size: int, chunk: int, look_back: int, wrap: bool) -> _runs.Runs:
    """The positions that each position reads, by chunks, and only of equal labels if sorted labels (N,) are given."""
    place = torch.arange(size)
    first = (place // chunk - look_back) * chunk
    lo, hi = first.clamp(min=0), (place // chunk * chunk + chunk).clamp(max=size)
    runs = _runs.Runs(place, lo, hi)
    if wrap:  # the chunks before the first are the last ones; the very last may be cut
        low = torch.where(first < 0, first + -(-size // chunk) * chunk, size)
        runs = _runs.Runs(torch.cat((place, place)), torch.cat((lo, low)), torch.cat((hi, torch.full_like(hi, size))))
    if labels is None:
        return runs
    begin, end = (torch.searchsorted(labels, labels, right=side)[runs.row] for side in (False, True))
    lo = torch.maximum(runs.lo, begin)
    return _runs.Runs(runs.row, lo, torch.maximum(lo, torch.minimum(runs.hi, end)))
