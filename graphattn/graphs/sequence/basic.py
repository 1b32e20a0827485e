"""Sequences: graphs by the positions of tokens."""

from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from ... import arguments
from ...arguments import check_range
from ...errors import GraphError
from ...graph import AttentionGraph, PerExample
from ...graph.algebra import complement, intersection, union
from ...graph.deferred.expression import builder
from ...graph.deferred.pattern import sizable
from ...graph.forms import band, partition, rectangle
from ...graph.limits import refuse_over
from ..arguments import call, integers, one_of, whole

_CORNERS = " (lower right, as with a cache, or upper left)"  # of align


@sizable
@builder
def full(num_nodes: int) -> AttentionGraph:
    r"""Every node reads every node, itself included: an encoder.

    .. math:: \mathcal{N}(t) = \{ 0, \dots, N - 1 \}

    Args:
        num_nodes: N; sources and targets are the same nodes. For two different sets see
            :func:`~graphattn.graphs.cross`.
    Returns:
        A rule with N * N edges.
    Source:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3, encoder self-attention.
    Example:
        >>> full(5).num_edges
        25
    """
    num_nodes = whole(num_nodes, "num_nodes")
    return AttentionGraph(band(num_nodes, num_nodes), call("full", num_nodes))


@sizable
@builder
def self_loops(num_nodes: int) -> AttentionGraph:
    r"""Every node reads only itself.

    .. math:: \mathcal{N}(t) = \{ t \}

    Args:
        num_nodes: N.
    Returns:
        A rule with N edges. ``graph | self_loops(N)`` adds the loops a graph lacks.
    Example:
        >>> print(self_loops(3))
        AttentionGraph(self_loops(3): 3 nodes, 3 edges, density 0.333, rule)
        █ · ·
        · █ ·
        · · █
    """
    num_nodes = whole(num_nodes, "num_nodes")
    return AttentionGraph(band(num_nodes, num_nodes, 0, 0), call("self_loops", num_nodes))


@sizable
@builder
def causal(
    num_targets: int,
    num_sources: int | None = None,
    *,
    align: Literal["end", "start"] = "end",
) -> AttentionGraph:
    r"""Every token reads itself and everything before it: a decoder.

    .. math:: \mathcal{N}(t) = \{ s : s \le t + o \}, \quad o = S - T \text{ (end)}, \; 0 \text{ (start)}

    Args:
        num_targets: T.
        num_sources: S; T by default. S > T is a key/value cache: the targets are the newest tokens.
        align: Corner of the mask with the diagonal. ``"end"`` is the lower right one: the last
            target reads all sources. ``"start"`` is the upper left one: target 0 reads source 0
            only. They agree if T = S.
    Returns:
        A rule. With ``align="end"`` and T > S the first T - S targets read nothing.
    Raises:
        GraphError: If a size is not a whole number >= 0, or ``align`` is neither word.
    Source:
        Vaswani et al. 2017, section 3.2.3, decoder self-attention.
        ``torch.nn.attention.bias.causal_lower_right`` is ``"end"``;
        ``scaled_dot_product_attention(is_causal=True)`` and ``causal_upper_left`` are ``"start"``.
    Example:
        >>> print(causal(2, 4))
        AttentionGraph(causal(2, 4): 4 sources -> 2 targets, 7 edges, density 0.875, rule)
        █ █ █ ·
        █ █ █ █
        >>> print(causal(2, 4, align="start"))
        AttentionGraph(causal(2, 4, align='start'): 4 sources -> 2 targets, 3 edges, density 0.375, rule)
        █ · · ·
        █ █ · ·
    """
    T = whole(num_targets, "num_targets")
    S = T
    sizes = [T]
    if num_sources is not None:
        S = whole(num_sources, "num_sources")
        sizes.append(S)
    offset = 0
    if one_of(align, "align", ("end", "start"), hint=_CORNERS) == "end":
        offset = S - T
    return AttentionGraph(band(T, S, lo=0, offset=offset), call("causal", *sizes, align=align))


@sizable
@builder
def prefix(num_nodes: int, prefix: int) -> AttentionGraph:
    r"""The first ``prefix`` tokens are read by all; the others causally: a prefix language model.

    .. math:: \mathcal{N}(t) = \{ s : s \le t \text{ or } s < P \}

    Args:
        num_nodes: N.
        prefix: P, the number of tokens at the start that all tokens read; 0 gives :func:`causal`, N
            gives :func:`full`.
    Returns:
        A rule.
    Raises:
        GraphError: If ``prefix`` is more than ``num_nodes``.
    Source:
        Raffel et al. 2020 (T5), "prefix LM": causal with a fully visible prefix.
    Example:
        >>> print(prefix(4, 2))
        AttentionGraph(prefix(4, 2): 4 nodes, 11 edges, density 0.688, rule)
        █ █ · ·
        █ █ · ·
        █ █ █ ·
        █ █ █ █
    """
    N = whole(num_nodes, "num_nodes")
    P = whole(prefix, "prefix", below=N + 1, of=", one more than num_nodes")
    edges = band(N, N, lo=0)
    if P:
        edges = union(edges, rectangle(N, N, [(0, P)], [(0, P)]))
    return AttentionGraph(edges, call("prefix", N, P))


@sizable
@builder
def sliding_window(
    num_targets: int,
    window: int | tuple[int, int],
    *,
    causal: bool | None = None,
    dilation: int = 1,
    num_sources: int | None = None,
    align: Literal["end", "start"] = "end",
) -> AttentionGraph:
    r"""Every token reads the tokens around it, itself included.

    .. math::
        \mathcal{N}(t) = \{ s : t + o - s = d k, \; -r \le k \le l \}, \quad
        o = S - T \text{ (end)}, \; 0 \text{ (start)}

    Args:
        num_targets: T.
        window: ``(l, r)``, tokens before the target and after it, not counting itself; -1 is no
            limit. Or one number w, the tokens that a target far from the ends reads, *counting
            itself*; odd if ``causal=False``.
        causal: Of a window of one number, to be given: True to read ``l = w - 1`` earlier tokens
            and none that is later, as a decoder must; False to read ``(w - 1) / 2`` tokens on each
            side, as an encoder does. A window of two numbers says it itself.
        dilation: d, the steps between two sources of a token.
        num_sources: S; T by default. S > T is a key/value cache: the targets are the newest tokens.
        align: Corner of the mask with the diagonal, as in :func:`causal`.
    Returns:
        A rule. A window wider than the sequence is :func:`causal` or :func:`full`.
    Raises:
        GraphError: If ``window``, ``dilation`` or a size is too small, ``window`` is even with
            ``causal=False``, or ``causal`` is missing beside one number or given beside two.
    Source:
        Beltagy et al. 2020 (Longformer), section 3.1: windows and dilated windows. *What differs:*
        Longformer's ``w`` counts ``w / 2`` tokens on each side and not the token itself, so it is
        ``window=w + 1, causal=False`` here; the same holds for ModernBERT's ``local_attention``.
        ``attention_window`` is w in Hugging Face's code, and one side, w / 2, in the authors'.
        Mistral's window of ``w`` is ``window=w``. FlashAttention's ``window_size=(left, right)``
        and jax's ``local_window_size`` are ``window=(left, right)``.
    Example:
        >>> print(sliding_window(6, 3, causal=True))
        AttentionGraph(sliding_window(6, 3, causal=True): 6 nodes, 15 edges, density 0.417, rule)
        █ · · · · ·
        █ █ · · · ·
        █ █ █ · · ·
        · █ █ █ · ·
        · · █ █ █ ·
        · · · █ █ █
        >>> print(sliding_window(6, 3, causal=False, dilation=2))
        AttentionGraph(sliding_window(6, 3, causal=False, dilation=2): 6 nodes, 14 edges, density 0.389, rule)
        █ · █ · · ·
        · █ · █ · ·
        █ · █ · █ ·
        · █ · █ · █
        · · █ · █ ·
        · · · █ · █
        >>> print(sliding_window(2, (2, 1), num_sources=6))
        AttentionGraph(sliding_window(2, (2, 1), num_sources=6): 6 sources -> 2 targets, 7 edges, density 0.583, rule)
        · · █ █ █ █
        · · · █ █ █
    """
    T = whole(num_targets, "num_targets")
    S = T
    if num_sources is not None:
        S = whole(num_sources, "num_sources")
    dilation = whole(dilation, "dilation", 1)
    if isinstance(window, (tuple, list)):
        left, right, window = _two_sides(window, causal, T + S)
    else:
        left, right, window = _one_width(window, causal)
        causal = bool(causal)
    offset = 0
    if one_of(align, "align", ("end", "start"), hint=_CORNERS) == "end":
        offset = S - T
    edges = band(T, S, -right * dilation, left * dilation, dilation, offset=offset)
    options = {"dilation": dilation, "num_sources": num_sources, "align": align}
    return AttentionGraph(edges, call("sliding_window", T, window, causal=causal, **options))


def _two_sides(
    window: tuple[int, ...] | list[int],
    causal: bool | None,
    longest: int,
) -> tuple[int, int, tuple[int, int]]:
    """Tokens before a target and after it, and the window as it is shown; -1 is no limit."""
    if causal is not None:
        raise GraphError(
            f"causal goes with a window of one number, got window={window!r}, whose second number "
            "counts the later tokens; leave causal out"
        )
    left, right = (whole(side, "window", -1) for side in window)
    limits = [longest if side == -1 else side for side in (left, right)]
    return limits[0], limits[1], (left, right)


def _one_width(window: int, causal: bool | None) -> tuple[int, int, int]:
    """Tokens before a target and after it, and the window as it is shown."""
    width = whole(window, "window", 1)
    if causal is None:
        raise GraphError(
            f"causal must be given beside window={width}: True reads no later token, False as many "
            "as before the target; or pass window=(left, right)"
        )
    if causal:
        return width - 1, 0, width
    if width % 2 == 0:
        raise GraphError(
            f"window counts the target itself, so with causal=False it must be odd, got {width}; "
            f"{width // 2} tokens on each side are window={width + 1}"
        )
    return width // 2, width // 2, width


@builder
def documents(
    ids: Tensor | None = None,
    *,
    lengths: tuple[int, ...] | None = None,
    causal: bool,
) -> Any:
    r"""Documents packed in one sequence, by ids or by lengths: a token reads its own document.

    .. math:: \mathcal{N}(t) = \{ s : d_s = d_t \}, \quad \text{and } s \le t \text{ if causal}

    Args:
        ids: (N,) integers, the document of each token, in any order: documents may be interleaved.
            These are not lengths: ids 3,4,2 are three tokens of three documents. Or (B, N), those
            of the examples of a batch.
        lengths: Instead of ``ids``, the number of tokens of each document in turn: lengths 3,4,2
            are nine tokens.
        causal: True to read earlier tokens of the document only, as a decoder must. To be given.
    Returns:
        A rule on the device of ``ids``, which only their equality affects; of (B, N) a
        :class:`~graphattn.PerExample` of a rule for each example.
    Raises:
        GraphError: If ``ids`` is not integer (N,) or (B, N), an id or a length is negative, both or neither
            of the two are given, or the tokens would take more than 4 GiB at 64 bytes each.
    Source:
        Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination". Graphs of a
        batch (PyG's ``batch`` vector) are the same thing.
    Example:
        >>> print(documents(lengths=(2, 3), causal=True))
        AttentionGraph(documents(lengths=(2, 3), causal=True): 5 nodes, 9 edges, density 0.36, rule)
        █ · · · ·
        █ █ · · ·
        · · █ · ·
        · · █ █ ·
        · · █ █ █
    """
    if (ids is None) == (lengths is None):
        raise GraphError(
            "documents needs either ids (the document of each token) or lengths (tokens per "
            "document)"
        )
    if ids is not None:
        if _is_batch(ids):
            rows = arguments.integers(ids, "ids", "(N,) or (B, N)", GraphError)
            different, which = torch.unique(rows, dim=0, return_inverse=True)
            graphs = [documents(row, causal=causal) for row in different]
            return PerExample(tuple(graphs[number] for number in which.tolist()))
        labels = integers(ids, "ids")
        if bool((labels < 0).any()):
            at = int((labels < 0).nonzero()[0])
            raise GraphError(
                f"ids must be >= 0, got {int(labels[at])} for token {at}; tokens of no document, "
                "such as padding, read nothing in "
                "cross_documents(ids, torch.where(ids < 0, ids.max() + 1, ids)), or give them an id"
            )
        name = call("documents", labels, causal=causal)
    else:
        sizes = integers(lengths, "lengths")
        total = sum(sizes.tolist())
        refuse_over(
            64 * total,
            f"documents of {total:,} tokens",
            "use fewer, or block_local for equal lengths",
        )
        labels = torch.repeat_interleave(sizes)
        name = call("documents", lengths=tuple(sizes.tolist()), causal=causal)
    edges = partition(labels.cpu())
    if causal:
        edges = intersection(edges, band(labels.numel(), labels.numel(), lo=0))
    return AttentionGraph(edges, name, labels.device)


def _is_batch(ids: Any) -> bool:
    """True for a table, a row of ids for each example."""
    if isinstance(ids, list | tuple):
        return len(ids) > 0 and isinstance(ids[0], list | tuple)
    return getattr(ids, "ndim", 1) == 2


@sizable
@builder
def global_tokens(num_nodes: int, tokens: tuple[int, ...]) -> AttentionGraph:
    r"""A few tokens read all and are read by all; other tokens read only these.

    .. math:: \mathcal{N}(t) = \{ s : s \in G \text{ or } t \in G \}

    Args:
        num_nodes: N.
        tokens: The global tokens G, distinct node numbers; an int is one token.
    Returns:
        A rule. Joined with a window it is Longformer's graph.
    Raises:
        GraphIndexError: If a token is outside ``[0, num_nodes)``.
        GraphError: If a token is given twice.
    Source:
        Beltagy et al. 2020 (Longformer), section 3.1, "global attention ... symmetric". *What
        differs:* Longformer gives the rows of global tokens their own projections, which belong to
        a layer, not to the graph.
    Example:
        >>> print(global_tokens(5, (0, 3)))
        AttentionGraph(global_tokens(5, (0, 3)): 5 nodes, 16 edges, density 0.64, rule)
        █ █ █ █ █
        █ · · █ ·
        █ · · █ ·
        █ █ █ █ █
        █ · · █ ·
    """
    N = whole(num_nodes, "num_nodes")
    if isinstance(tokens, int):
        tokens = (tokens,)
    chosen = integers(tokens, "tokens").cpu()
    check_range(chosen, "tokens", N, ", as negative numbers do not wrap")
    place = [-1, *sorted(set(chosen.tolist())), N]
    others = tuple((a + 1, b) for a, b in pairwise(place) if a + 1 < b)
    name = call("global_tokens", N, tuple(chosen.tolist()))
    return AttentionGraph(complement(rectangle(N, N, others, others)), name)
