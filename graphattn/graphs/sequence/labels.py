"""Graphs by a number for each token: images within a text, ranks, ids on both sides."""

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph.algebra import union
from ...graph.deferred.expression import builder
from ...graph.forms import band, partition, stretch_of_order
from ..arguments import call, integers


@builder
def bidirectional_segments(segments: Tensor) -> AttentionGraph:
    r"""A causal text in which some stretches, such as images, read themselves both ways.

    .. math:: \mathcal{N}(t) = \{ s : s \le t \text{ or } g_s = g_t \ge 0 \}

    Args:
        segments: (N,) integers: the segment of each token, negative for none.
    Returns:
        A rule on the device of ``segments``.
    Raises:
        GraphError: If ``segments`` is not integer (N,).
    Source:
        Gemma 3 (2025), image tokens; Zhou et al. 2024 (Transfusion), section 3: an image reads
        itself both ways.
    Example:
        >>> print(bidirectional_segments(torch.tensor([-1, 0, 0, -1, -1])))
        AttentionGraph(bidirectional_segments([-1, 0, 0, -1, ...]): 5 nodes, 16 edges, density 0.64, rule)
        █ · · · ·
        █ █ █ · ·
        █ █ █ · ·
        █ █ █ █ ·
        █ █ █ █ █
    """
    ids = integers(segments, "segments")
    N = ids.numel()
    on_host = ids.cpu()
    alone = -1 - torch.arange(N)  # a token without a segment forms its own
    edges = union(band(N, N, lo=0), partition(torch.where(on_host < 0, alone, on_host)))
    return AttentionGraph(edges, call("bidirectional_segments", ids), ids.device)


@builder
def causal_by_rank(
    ranks: Tensor,
    source_ranks: Tensor | None = None,
    *,
    strict: bool = False,
) -> AttentionGraph:
    r"""A token reads the tokens whose rank is at most its own: causal in any order.

    .. math:: \mathcal{N}(t) = \{ s : r_s \le r_t \}, \quad r_s < r_t \text{ if strict}

    Args:
        ranks: (T,) integers, the rank of each target in the order, or its time. Equal ranks read
            each other.
        source_ranks: (S,) the same for the sources, if these are other nodes.
        strict: Only lower ranks: a token does not read itself.
    Returns:
        A rule on the device of ``ranks``. A permutation gives the content stream of XLNet, and with
        ``strict=True`` its query stream; the numbers of frames give a block-causal graph of frames
        of any lengths; times on both sides give a stream that reads another one up to the same
        time.
    Raises:
        GraphError: If ranks are not integer (T,) and (S,).
    Source:
        Yang et al. 2019 (XLNet), section 2.3.
    Example:
        >>> print(causal_by_rank(torch.tensor([2, 0, 3, 1])))
        AttentionGraph(causal_by_rank([2, 0, 3, 1]): 4 nodes, 10 edges, density 0.625, rule)
        █ █ · █
        · █ · ·
        █ █ █ █
        · █ · █
    """
    of_target = integers(ranks, "ranks")
    of_source = of_target
    sides = [of_target]
    if source_ranks is not None:
        of_source = integers(source_ranks, "source_ranks")
        sides.append(of_source)
    read = of_target.cpu()
    order = torch.argsort(of_source.cpu(), stable=True)
    # number of lower rank
    number = torch.searchsorted(of_source.cpu()[order], read, right=not strict)
    edges = stretch_of_order(torch.zeros_like(number), number, order)
    return AttentionGraph(edges, call("causal_by_rank", *sides, strict=strict), of_target.device)


@builder
def cross_documents(target_ids: Tensor, source_ids: Tensor) -> AttentionGraph:
    r"""Cross-attention of packed pairs: a target reads the sources with its id.

    .. math:: \mathcal{N}(t) = \{ s : d_s = d_t \}

    Args:
        target_ids: (T,) integers, in any order.
        source_ids: (S,) integers, in any order; a target whose id no source has reads nothing.
    Returns:
        A rule on the device of ``target_ids``, which only equality of ids affects.
    Raises:
        GraphError: If ids are not integer (T,) and (S,), or are on two devices, or both have the
            same negative id, which elsewhere means none.
    Source:
        Alayrac et al. 2022 (Flamingo), section 2.3: text reads the last image before it, so its id
        is the number of images before it; the same as FlashAttention's ``cu_seqlens`` with queries
        and keys of different lengths.
    Example:
        >>> print(cross_documents(torch.tensor([0, 1, 1, 2]), torch.tensor([1, 1, 2])))
        AttentionGraph(cross_documents([0, 1, 1, 2], [1, 1, 2]): 3 sources -> 4 targets, 5 edges, density 0.417, rule)
        · · ·
        █ █ ·
        █ █ ·
        · · █
    """
    T = integers(target_ids, "target_ids")
    S = integers(source_ids, "source_ids")
    shared = T[(T < 0) & torch.isin(T, S)]
    if shared.numel():
        raise GraphError(
            f"target_ids and source_ids both have {int(shared[0])}, which would read itself; for "
            "tokens of no document give one side an id that the other lacks"
        )
    return AttentionGraph(partition(T.cpu(), S.cpu()), call("cross_documents", T, S), T.device)
