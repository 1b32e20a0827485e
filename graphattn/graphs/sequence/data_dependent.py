"""Graphs from the values of a layer: scores, hashes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from ...arguments import check_shape, shown
from ...errors import GraphError
from ...graph import AttentionGraph, need_nodes
from ...graph import runs as _runs
from ...graph.deferred.choice import with_sources_moved
from ...graph.deferred.chosen import Content
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.forms import partition
from ...graph.limits import refuse_over
from ...graph.listed import listed
from ...graph.modes import keep, without_autocast
from ..arguments import call, integers, one_of, tensor, whole
from .basic import documents
from .bipartite import cross

_AT_ONCE = 1 << 24  # scores whose highest are found together
ScoreOfNodes = Callable[[Tensor, Tensor], Tensor]


@sizable
@builder
def top_k(
    scores: Tensor,
    k: int,
    *,
    blocks: int | AttentionGraph | None = None,
    within: AttentionGraph | None = None,
    score: ScoreOfNodes | None = None,
) -> AttentionGraph:
    r"""Every target reads its ``k`` sources, or blocks of sources, of highest score.

    .. math:: \mathcal{N}(t) = \{ \text{the first } k \text{ sources by } (-a_{ts}, s), \; a_{ts} > -\infty \}

    With ``...`` for the scores, ``top_k(..., 8, within=causal(...))``, it is a pattern for layers,
    ``attention`` and ``ga.patch``: each example and head chooses, in every call, by
    :math:`a_{ts} = \langle q_t, k_s \rangle`, or by the mean of the keys of each block. Algebra
    adds what is always read: ``top_k(...) | sliding_window(..., 16, causal=True)``.

    Args:
        scores: (T, S) numbers; -inf is never an edge, so a target may have fewer than ``k``. (T, C)
            for C blocks.
        k: Sources of every target, or blocks, at most as many as there are.
        blocks: Sources that are chosen together: a number b for blocks of b consecutive ones, of
            which the last may be cut, or a graph from S sources to C blocks, such as
            :func:`~graphattn.graphs.clusters`.
        within: The edges that may be chosen, T x S; a block, only if all its members are. All by
            default.
        score: In place of the product, for open scores: ``score(query, key)`` of (B, T, H, D) and
            (B, S, H_kv, D) returns (B, h, T, S), or (B, h, T, C) with blocks, for h choices that
            ``H / h`` heads share.
    Returns:
        Listed edges on the device of ``scores``, by target, then from the highest score; of equal
        scores the lowest source wins. The choice has no gradient; queries and keys get theirs from
        the attention along its edges, and a
        ``score`` of its own gets none: multiply outputs by a gate, or train it by another loss.
        ``top_k(scores.T, k).reverse()`` lets every source choose its targets (expert choice).
    Raises:
        GraphError: If ``scores`` is not a (T, S) tensor of real numbers, holds a NaN, or ``k``
            exceeds S; or another argument does not fit.
    Source:
        Zhao et al. 2019 (Explicit Sparse Transformer); as a mixture of experts, Shazeer et al.
        2017; blocks by the mean of their keys, Lu et al. 2025 (MoBA), whose ``moba_topk`` counts
        the own block, too. *What differs* from ``sparse_topk`` of x-transformers: it keeps all
        scores equal to the k-th. A NaN in a query or key is chosen first, and so is seen in the
        output.
    Example:
        >>> print(top_k(torch.tensor([[0.3, 0.1, 0.9], [0.5, 0.5, 0.5]]), 2))
        AttentionGraph(top_k(<(2, 3)>, 2): 3 sources -> 2 targets, 4 edges, density 0.667, listed)
        █ · █
        █ █ ·
        >>> top_k(..., 2, blocks=16)  # of the keys of a call
        Pattern(top_k(..., 2, blocks=16))
    """
    k = whole(k, "k")
    if isinstance(scores, Content):
        return _of_content(scores, k, blocks, within, score)
    if score is not None:
        raise GraphError("score computes open scores, top_k(..., k, score=score); these are given")
    check_shape(scores, "scores", ("T", "S"), "build a graph for each head", GraphError)
    whole(k, "k", below=scores.shape[1] + 1, of=", one more than the sources")
    scores = scores.detach()
    _refuse_nan(scores, "scores")
    if isinstance(blocks, int) and within is None:
        raise GraphError(
            "blocks of a number need within, which says how many sources there are; or give a graph"
        )
    groups, readable = _groups(blocks, within, getattr(within, "num_sources", scores.shape[1]))
    if readable is not None:
        mask = _mask_of(readable, (len(scores), scores.shape[1]), scores.device)
        scores = scores.masked_fill(~mask, -torch.inf)
    graph = _chosen(scores[None], k)
    if groups is not None:
        graph = graph @ groups
    name = call("top_k", scores, k)
    if groups is not None or within is not None:
        name = call("top_k", scores, k, blocks=blocks, within=within)
    return replace(graph, name=name)


def _of_content(
    content: Content,
    k: int,
    blocks: int | AttentionGraph | None,
    within: AttentionGraph | None,
    score: ScoreOfNodes | None,
) -> AttentionGraph:
    """The edges that the heads of all examples choose, side by side.

    Without queries, all edges that they may choose.
    """
    T = content.num_targets
    S = content.num_sources
    query = content.query
    key = content.key
    groups, readable = _groups(blocks, within, S)
    size = (T, S)
    if groups is not None:
        size = (T, groups.num_targets)
    possible = readable
    if possible is None:
        possible = cross(*size)
    _mask_of(possible, size, None)
    if query is None or key is None:
        if groups is None:
            return possible
        return possible @ groups
    B, _, H, _ = query.shape
    if score is None:
        pooled = key
        if groups is not None:
            pooled = _means(key, groups)
        scores = _products(query, pooled)
    else:
        scores = score(query, key)
        _check_scores(scores, (B, H, *size))
        scores = scores.detach().flatten(0, 1).nan_to_num(torch.inf, torch.inf, -torch.inf)
    if readable is not None:
        is_hidden = ~_mask_of(readable, size, query.device)
        scores = scores.masked_fill_(is_hidden, -torch.inf)  # nobody else holds them
    graph = _chosen(scores, min(k, size[1]), B * H // max(1, len(scores)))
    if groups is not None:
        graph = graph @ groups
    start = torch.arange(B * H, device=graph.device).repeat_interleave(T)
    return with_sources_moved(graph, start * S, B * H * S)


def _products(query: Tensor, key: Tensor) -> Tensor:
    """Products of queries (B, T, H, D) and keys (B, S, H_kv, D): (B * H, T, S), infinite for NaN."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    of_query = query.movedim(2, 1).to(dtype)
    of_key = key.movedim(2, 1).to(dtype)
    of_key = of_key.repeat_interleave(query.shape[2] // max(1, of_key.shape[1]), 1)
    with without_autocast(of_query.device.type):
        products = (of_query @ of_key.mT).flatten(0, 1)
    if not bool(products.sum().isfinite()):  # a pass that writes nothing
        products.nan_to_num_(torch.inf, torch.inf, -torch.inf)
    return products


def _check_scores(scores: Tensor, shape: tuple[int, int, int, int]) -> None:
    """Refuse other scores than (B, h, T, C), where ``h`` divides the H of ``shape``."""
    B, H, T, C = shape
    hint = f"h divides {H} heads"
    check_shape(scores, "the result of score", (B, "h", T, C), hint, GraphError)
    if scores.shape[1] == 0 or H % scores.shape[1]:
        raise GraphError(f"score must return scores of heads that divide {H}, got {shown(scores)}")


def _refuse_nan(x: Tensor, argument: str) -> None:
    if bool(x.isnan().any()):
        raise GraphError(f"{argument} must be without NaN, got {shown(x)}")


def _groups(
    blocks: int | AttentionGraph | None,
    within: AttentionGraph | None,
    num_sources: int,
) -> tuple[AttentionGraph | None, AttentionGraph | None]:
    """The graph from sources to blocks, and the choices: sources, or blocks that are readable."""
    if blocks is None:
        return None, within
    if isinstance(blocks, AttentionGraph):
        groups = blocks
    else:
        size = whole(blocks, "blocks", 1)
        of_source = torch.arange(num_sources) // size
        groups = AttentionGraph(partition(torch.arange(-(-num_sources // size)), of_source))
    if not bool(groups.in_degree.all()):
        raise GraphError(
            f"blocks must have members, block {int(groups.in_degree.argmin())} has none; renumber "
            "them"
        )
    if within is None:
        return groups, None
    return groups, keep(within._memo, ("blocks", blocks), lambda: ~(~within @ groups.reverse()))


def _mask_of(graph: AttentionGraph, size: tuple[int, int], device: torch.device | None) -> Tensor:
    """bool (T, C), cached; for no device, a check of the size alone."""
    need_nodes(graph, "within, or blocks,", *size)
    if device is None:
        return torch.empty(0)
    return keep(graph._memo, ("mask", device), lambda: graph.mask().to(device))


def _means(key: Tensor, groups: AttentionGraph) -> Tensor:
    """The mean of the keys (B, S, H, D) of each block, (B, C, H, D)."""
    if groups.num_targets == 0:
        return key[:, :0]
    edges = groups._listed().to(key.device)
    dtype = torch.promote_types(key.dtype, torch.float32)
    members = key.movedim(1, 0).to(dtype).index_select(0, edges.source[edges.order])  # by block
    sizes = groups.in_degree.to(key.device)
    return torch.segment_reduce(members, "mean", lengths=sizes).movedim(0, 1)


def _chosen(scores: Tensor, k: int, heads: int = 1) -> AttentionGraph:
    """The best of scores (G, T, C), as a graph of ``G * heads * T`` targets.

    ``heads`` heads share a choice.
    """
    G, T, C = scores.shape
    few = max(1, _AT_ONCE // max(1, T * C))
    parts = [torch.empty(0, k, dtype=torch.int64, device=scores.device)]
    parts += [_highest(part.flatten(0, 1), k) for part in scores.split(few)]
    source = torch.cat(parts)
    keep = scores.flatten(0, 1).gather(1, source) != -torch.inf
    source, keep = (
        x.view(G, T, k).repeat_interleave(heads, 0).flatten(0, 1) for x in (source, keep)
    )
    target = torch.arange(len(source), device=scores.device)[:, None].expand_as(source)
    edges = listed(target[keep], source[keep], len(source), C, has_repeats=False)
    return AttentionGraph(edges, "top_k", scores.device)


def _highest(scores: Tensor, k: int) -> Tensor:
    """The sources (T, k) of the highest scores, highest first; ties by the lowest source."""
    # topk may return any of equal scores
    value, source = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    tied = ((value[:, 1:] == value[:, :-1]) & (value[:, 1:] > -torch.inf)).any(1)
    source = source[:, :k]
    if bool(tied.any()):
        scores = scores[tied]
        value = value[tied]
        least = value[:, k - 1 : k]
        above = scores > least
        equal = scores == least
        first = equal.cumsum(1) <= k - above.sum(1, keepdim=True)
        best = torch.nonzero(above | (equal & first))[:, 1].view(-1, k)
        order = torch.sort(scores.gather(1, best), dim=1, descending=True, stable=True).indices
        source[tied] = best.gather(1, order)
    return source


@sizable
@builder
def routed(features: Tensor, centroids: Tensor) -> AttentionGraph:
    r"""A target reads the sources in its cluster, that of the centroid of highest product.

    .. math:: \mathcal{N}(t) = \{ s : r(x_s) = r(x_t) \}, \quad r(x) = \operatorname{argmax}_c \langle x, \mu_c \rangle

    With ``...`` for the features it is a pattern: each example and head routes its queries and keys
    in every call, and a target reads the keys in the cluster of its query:
    ``routed(..., centroids) & causal(...)``.

    Args:
        features: (N, D) numbers.
        centroids: (C, D) numbers; for an open pattern also (H, C, D), for each head its own. Rows
            of a random matrix and their negatives are the hash of Reformer.
    Returns:
        A rule on the device of ``features``; of equal products the lowest centroid wins. Routes
        have no gradient: queries and keys get theirs from the attention along the edges, centroids
        none.
    Raises:
        GraphError: If the shapes do not fit, or given features or centroids hold a NaN.
    Source:
        Roy et al. 2021 (Routing Transformer). *What differs:* there every centroid takes its w best
        tokens, and is then moved to their mean; clusters here have any size, and move when a new
        pattern is made.
    Example:
        >>> print(routed(torch.tensor([[2.0], [-1.0], [3.0]]), torch.tensor([[-1.0], [1.0]])))
        AttentionGraph(routed(<(3, 1)>, <(2, 1)>): 3 nodes, 5 edges, density 0.556, rule)
        █ · █
        · █ ·
        █ · █
    """
    tensor(centroids, "centroids")
    if not isinstance(features, Content):
        _refuse_nan(tensor(features, "features"), "features")
        _refuse_nan(centroids, "centroids")
        routes = _routes(features, centroids, "(N, D)")
        return replace(documents(routes, causal=False), name=call("routed", features, centroids))
    query = features.query
    key = features.key
    if query is None or key is None:
        return cross(features.num_targets, features.num_sources)
    of_query = query.movedim(2, 1)
    of_key = key.movedim(2, 1)
    of_key = of_key.repeat_interleave(of_query.shape[1] // max(1, of_key.shape[1]), 1)
    copy = torch.arange(features.copies).unsqueeze(-1) * centroids.shape[-2]
    labels = [
        (_routes(x, centroids, "(H, N, D)").flatten(0, 1).cpu() + copy).flatten()
        for x in (of_query, of_key)
    ]
    return AttentionGraph(partition(*labels), "routed", query.device)


def _fits(x: Tensor, centroids: Tensor) -> bool:
    """True for centroids (C, D), or (H, C, D) for heads, of features (..., N, D)."""
    if x.dim() < 2 or centroids.dim() < 2:
        return False
    if centroids.shape[-2] == 0 or centroids.shape[-1] != x.shape[-1]:
        return False
    heads = centroids.shape[:-2]
    return heads in ((), x.shape[-3:-2])


def _routes(x: Tensor, centroids: Tensor, expected: str) -> Tensor:
    """The centroid of each node, int64 (..., N)."""
    if not _fits(x, centroids):
        got = f"{tuple(centroids.shape)} for features {tuple(x.shape)}"
        raise GraphError(
            f"centroids must be (C, D), or (H, C, D) for heads, for features {expected}, got {got}"
        )
    dtype = torch.promote_types(x.dtype, torch.float32)
    with without_autocast(x.device.type):
        return (x.detach().to(dtype) @ centroids.to(x.device, dtype).mT).argmax(-1)


@builder
def lsh_buckets(
    buckets: Tensor,
    chunk: int,
    *,
    look_back: int = 1,
    causal: bool,
    same_bucket: bool = True,
    wrap: bool = False,
    self_loops: Literal["alone", "always"] = "alone",
) -> AttentionGraph:
    r"""Reformer: tokens sorted by bucket and cut into chunks; a token reads its bucket nearby.

    .. math::
        \mathcal{N}(t) = \{ s : 0 \le \lfloor p_t / m \rfloor - \lfloor p_s / m \rfloor \le l, \;
        b_s = b_t, \; s \le t \}, \quad p = \text{place by } (b, t)

    Args:
        buckets: (N,) integers, the hash of each token.
        chunk: m, tokens in a chunk of the sorted sequence; the last one is cut where m does not
            divide N.
        look_back: l, number of chunks before its own that a target reads.
        causal: Read up to the target only, in the order of the text.
        same_bucket: Read the token's bucket only; ``False`` reads whole chunks.
        wrap: The chunk before the first is the last one.
        self_loops: ``"alone"``: a token reads itself only if it reads nothing else, as Reformer's
            shared queries and keys need; ``"always"``: like any other token.
    Returns:
        Listed edges on the device of ``buckets``, by target, then by source; for several rounds of
        hashes join one graph for each by ``|``.
    Raises:
        GraphError: If ``buckets`` is not integer (N,), ``chunk < 1``, or ``wrap`` would meet a
            chunk twice.
    Source:
        Kitaev et al. 2020 (Reformer), section 2. *What differs:* the authors' last code (trax) and
        Hugging Face's ``LSHSelfAttention`` have ``same_bucket=False, wrap=True``, and their
        self-score of -1e5 is ``"alone"`` after softmax. Reformer mixes rounds by their log-sum-exp, so that an edge
        counts once for each of its rounds; a union counts it once.
    Example:
        >>> print(lsh_buckets(torch.tensor([0, 1, 0, 1, 0, 0]), 2, causal=True))
        AttentionGraph(lsh_buckets([0, 1, 0, 1, ...], 2, causal=True): 6 nodes, 9 edges, density 0.25, listed)
        █ · · · · ·
        · █ · · · ·
        █ · · · · ·
        · █ · · · ·
        █ · █ · · ·
        █ · █ · █ ·
    """
    ids = integers(buckets, "buckets")
    chunk = whole(chunk, "chunk", 1)
    look_back = whole(look_back, "look_back")
    one_of(self_loops, "self_loops", ("alone", "always"))
    labels = ids.cpu()
    N = ids.numel()
    num_chunks = -(-N // chunk)
    if wrap and 0 < num_chunks <= look_back:
        raise GraphError(
            f"wrap needs more than look_back={look_back} chunks, got {num_chunks} for {N} "
            "tokens; lower look_back"
        )
    order = torch.argsort(labels, stable=True)
    refuse_over(
        64 * N * chunk * (look_back + 1),
        f"chunks of {chunk:,} for {N:,} tokens",
        "use smaller ones",
    )
    sorted_labels = None
    if same_bucket:
        sorted_labels = labels[order]
    place, near = _runs.expand(_chunks(sorted_labels, N, chunk, look_back, wrap))
    target = order[place]
    source = order[near]
    keep = torch.ones_like(target, dtype=torch.bool)
    if causal:
        keep &= source <= target
    if self_loops == "alone":
        keep &= source != target
    target = target[keep]
    source = source[keep]
    if self_loops == "alone":
        alone = torch.nonzero(torch.bincount(target, minlength=N) == 0).flatten()
        target = torch.cat((target, alone))
        source = torch.cat((source, alone))
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


def _chunks(
    labels: Tensor | None,
    size: int,
    chunk: int,
    look_back: int,
    wrap: bool,
) -> _runs.Runs:
    """The positions that each position reads, by chunks, and by labels (N,) if given."""
    place = torch.arange(size)
    first = (place // chunk - look_back) * chunk
    lo = first.clamp(min=0)
    hi = (place // chunk * chunk + chunk).clamp(max=size)
    runs = _runs.Runs(place, lo, hi)
    if wrap:  # the chunks before the first are the last ones; the very last may be cut
        low = torch.where(first < 0, first + -(-size // chunk) * chunk, size)
        runs = _runs.Runs(
            torch.cat((place, place)),
            torch.cat((lo, low)),
            torch.cat((hi, torch.full_like(hi, size))),
        )
    if labels is None:
        return runs
    begin, end = (
        torch.searchsorted(labels, labels, right=side)[runs.row] for side in (False, True)
    )
    lo = torch.maximum(runs.lo, begin)
    return _runs.Runs(runs.row, lo, torch.maximum(lo, torch.minimum(runs.hi, end)))
