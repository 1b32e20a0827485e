"""Attention rollout: how much of each input node is in each output node, through all layers."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ..arguments import several
from ..backends.weights import EdgeWeights
from ..errors import OptionError, ShapeError
from ..graph.graph import AttentionGraph
from ..graph.limits import refuse_over
from ..graph.listed import listed
from ..printed import counted
from .choice import checked_targets
from .edge_weights import by_edge, weights_in

_ENTRY = 16  # bytes of an entry of a sparse matrix: a float64 and an index


def rollout(
    weights_per_layer: Iterable[Any] | Mapping[str, Any],
    residual: float | Sequence[float] = 0.5,
    *,
    targets: int | Iterable[int] | None = None,
) -> EdgeWeights:
    r"""The weights of all layers multiplied, with residuals: what reaches a target from the input.

    .. math:: R = \hat A_L \cdots \hat A_1, \qquad \hat A_l = r I + (1 - r) \, \mathrm{mean}_h \, \alpha_l

    The layers' graphs may differ (shifted windows, kNN per layer, pooling); the products are
    sparse. A target without an edge keeps itself: its row of :math:`\hat A` is its row of
    :math:`I`.

    A bipartite layer (T != S) has no identity between its sources and targets, so
    :math:`\hat A_l = A_l` there: its residual, if the model has one, carries another stream, which
    rollout does not follow. A layer of cross-attention with as many targets as sources looks
    square: give it 0 in a ``residual`` per layer.

    Args:
        weights_per_layer: An :class:`EdgeWeights` per layer, or what attention gave with
            ``return_weights=True``; the first layer first, without a batch; or a dict of them, as
            :func:`graphattn.analysis.record_weights` gives. The targets of a layer are the sources of the
            next.
        residual: The share r of a node's own features in [0, 1]; one number, or one for each layer.
        targets: Only what reaches these targets of the last layer; the others' rows stay empty. By
            default all: where the layers reach far, the result is nearly T x S.

    Returns:
        An :class:`EdgeWeights` with one head, float64, from the sources of the first layer to the
        targets of the last,
        by target, then by source: ``dense()`` is :math:`R`, ``top(k)`` and :func:`plot` show it.

    Raises:
        OptionError: If there is no layer, or ``residual`` is not a share per layer (0 for a
            bipartite one).
        ShapeError: If two layers do not fit together.
        GraphError: If the result would take more than 4 GiB.
        GraphIndexError: If there is no such target.

    Source: Abnar and Zuidema (2020), "Quantifying Attention Flow in Transformers", section 3, whose
    r is 0.5. *What differs:* graphs, bipartite layers, targets without an edge.

    Example:
        >>> import torch, graphattn as ga
        >>> graph = ga.graphs.sliding_window(4, window=2, causal=True)
        >>> layer = ga.EdgeWeights(graph, 1 / graph.in_degree[graph.target][:, None])  # each reads evenly
        >>> rollout([layer, layer]).dense()[0, 3]
        tensor([0.0000, 0.0625, 0.3750, 0.5625], dtype=torch.float64)
    """
    import scipy.sparse

    weights_list: Any = weights_per_layer
    if isinstance(weights_per_layer, Mapping):
        weights_list = weights_per_layer.values()
    expected = "must be a list of weights, first layer first, or record_weights' dict"
    layers = [
        weights_in(weights) for weights in several(weights_list, "weights_per_layer", expected)
    ]
    if not layers:
        raise OptionError("rollout needs the weights of one layer or more, got none")
    for layer in layers:
        if getattr(layer, "examples", None) is not None:
            raise ShapeError(
                "rollout follows one graph through the layers, and these are weights of graphs of "
                "examples; pass those of one, weights.of_example(b), for each layer"
            )
    shares = _shares(residual, layers)
    for i, (graph, after) in enumerate(pairwise([layer.graph for layer in layers])):
        if graph.num_targets != after.num_sources:
            raise ShapeError(
                f"layer {i} has {graph.num_targets} targets, and layer {i + 1} reads "
                f"{after.num_sources} sources; they must be the same nodes (the first layer comes "
                "first)"
            )
    reach = _mixed(layers[-1], shares[-1])
    if targets is not None:
        mask = np.isin(
            np.arange(reach.shape[0]), checked_targets(layers[-1].graph, targets, "targets", None)
        )
        reach = scipy.sparse.csr_array(reach.multiply(mask[:, None]))
        reach.eliminate_zeros()
    for layer, share in zip(layers[-2::-1], shares[-2::-1], strict=True):
        step = _mixed(layer, share)
        bound = min(int(np.diff(step.indptr)[reach.indices].sum()), reach.shape[0] * step.shape[1])
        refuse_over(
            _ENTRY * bound,
            f"rollout through {counted(len(layers), 'layer')}",
            "ask for some targets=",
        )
        reach = reach @ step
    return _as_weights(reach, len(layers), layers[-1].graph.device)


def _shares(residual: float | Sequence[float], layers: list[Any]) -> list[float]:
    """The share of each layer; 0 for bipartite ones."""
    square = [layer.graph.is_square for layer in layers]
    try:
        values = np.asarray(residual, dtype=np.float64)
        fits = values.shape in ((), (len(layers),)) and bool(((values >= 0) & (values <= 1)).all())
    except (TypeError, ValueError):
        fits = False
    if not fits or isinstance(residual, bool):
        raise OptionError(
            f"residual must be a number in [0, 1], or {len(layers)} of them, one for each layer; "
            f"got {residual!r}"
        )
    shares = (values * square if values.ndim == 0 else values).tolist()
    for i, (share, is_square) in enumerate(zip(shares, square, strict=True)):
        if share and not is_square:
            raise OptionError(
                f"residual of layer {i} must be 0, its sources are not its targets; got {share}"
            )
    return shares


def _mixed(layer: Any, share: float) -> Any:
    """r I + (1 - r) A of one layer, CSR; copies of a repeated edge are added up."""
    import scipy.sparse

    mean = by_edge(layer).to(torch.float64).mean(1).cpu().numpy()
    source, target = layer.graph.edge_index.cpu().numpy()
    shape = (layer.graph.num_targets, layer.graph.num_sources)
    read = scipy.sparse.csr_array((mean, (target, source)), shape=shape)
    if share == 0:
        return read
    diagonal = np.where(layer.graph.in_degree.cpu().numpy() > 0, share, 1.0)
    return scipy.sparse.csr_array(scipy.sparse.diags_array(diagonal) + (1 - share) * read)


def _as_weights(reach: Any, layers: int, device: torch.device) -> EdgeWeights:
    reach.sum_duplicates()
    entries = reach.tocoo()
    target, source = (
        torch.from_numpy(side.astype(np.int64)).to(device) for side in (entries.row, entries.col)
    )
    graph = AttentionGraph(
        listed(target, source, *map(int, reach.shape)),
        f"rollout of {counted(layers, 'layer')}",
        device,
    )
    return EdgeWeights(graph, torch.from_numpy(entries.data)[:, None].to(device))
