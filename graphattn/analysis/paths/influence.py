"""Influence of a source on a target: by the graph alone, bounded, and measured on a model."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...arguments import (
    check_finite,
    check_flags,
    check_shape,
    floats,
    function,
    one_of,
    positive,
    several,
    shown,
    whole,
)
from ...errors import ShapeError
from ...graph import AttentionGraph
from ...graph.kinds.layers import Layers
from ...graph.limits import refuse_over
from ...plans.whole import csr_by_target
from ..forms import is_listable
from .measure_leaks import left_as_it_was
from .receptive_field import graphs_and_targets
from .walks import BUDGET, too_many

_CALLS = 1 << 14  # backward passes: minutes of a small model


def influence_distribution(
    layers: Layers, targets: Any = None, *, residual: bool = False, budget: int = BUDGET
) -> Tensor:
    r"""The share of each source of the first layer in the paths to a target of the last one.

    .. math:: I = P_L \cdots P_2 P_1, \quad P_{ts} = \frac{1}{|\mathcal{N}(t)|} \text{ on edges}

    It is where a random walk from the target, against the edges, is after as many steps; what an
    untrained GCN with ReLU has in expectation, and attention with equal scores has exactly.

    Args:
        layers: One graph, or a list of graphs, first layer first.
        targets: Indices (n,) of the targets in question; all by default.
        residual: ``True`` adds what a target of a square layer has itself as one more source.
        budget: Numbers (n x nodes) that may be computed for each layer.
    Returns:
        float64 (n, S); rows sum to 1, or to less where a walk ends at a node without a source.
    Raises:
        GraphError: If a graph is too large to list, or it costs more than ``budget``.
    Source:
        Xu et al. 2018, "Representation Learning on Graphs with Jumping Knowledge Networks",
        definition 3.1, theorem 1.
    Example:
        >>> from graphattn.graphs import sliding_window
        >>> influence_distribution([sliding_window(5, window=2, causal=True)] * 3, targets=[4])  # binomial
        tensor([[0.0000, 0.1250, 0.3750, 0.3750, 0.1250]], dtype=torch.float64)
    """
    check_flags(residual=residual)

    def walk(graph: AttentionGraph) -> Any:
        matrix = csr_by_target(graph)
        if residual and graph.is_square:
            from scipy.sparse import eye_array

            matrix = (matrix + eye_array(matrix.shape[0])).tocsr()
        return _over(matrix, np.maximum(np.asarray(matrix.sum(1)).reshape(-1), 1))

    return _product(layers, targets, walk, "influence_distribution", budget)


def jacobian_bound(
    layers: Layers,
    targets: Any = None,
    *,
    lipschitz: float = 1.0,
    aggregate: Literal["mean", "sum", "gcn"] = "mean",
    residual: bool = False,
    budget: int = BUDGET,
) -> Tensor:
    r"""A bound of how much an output can change with an input, for any weights: over-squashing.

    .. math:: \left\| \frac{\partial h_t^{(L)}}{\partial x_s} \right\| \le \left( \prod_l (r I + c A_l) \right)_{ts}
        \quad \text{of layers} \quad h_t \leftarrow \sigma \Big( r \, h_t + \sum_s a_{ts} \psi(h_s) \Big)

    Of message passing with fixed weights ``a``, a ``sigma`` with slopes of at most 1 (ReLU, tanh)
    and messages ``psi`` that are ``c``-Lipschitz, such as a matrix of spectral norm ``c``. It is no
    bound of attention, whose weights depend on its inputs; where it is 0, attention's Jacobian is
    0, too. Direction counts: a target depends on its sources.

    Args:
        layers: One graph, or a list of graphs, first layer first.
        targets: Indices (n,) of the targets in question; all by default.
        lipschitz: ``c``, of each layer.
        aggregate: The weights: ``"mean"`` has 1 / in-degree, ``"sum"`` has 1, and ``"gcn"`` has 1 /
            the root of the target's in-degree times the source's out-degree. Copies of an edge add
            up.
        residual: ``True`` has r = 1 in square layers, ``False`` r = 0.
        budget: Numbers (n x nodes) that may be computed for each layer.
    Returns:
        float64 (n, S).
    Raises:
        GraphError: If a graph is too large to list, or it costs more than ``budget``.
    Source:
        Topping et al. 2022, lemma 1; Di Giovanni et al. 2023, theorem 3.2.
    Example:
        >>> import graphattn as ga
        >>> tree = ga.graphs.tree(torch.tensor([-1, 0, 0, 1, 1, 2, 2]), read="children")
        >>> jacobian_bound([tree] * 2, targets=[0]).tolist()  # a leaf of a binary tree of depth 2: 1 / 4
        [[0.0, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25]]
    """
    check_flags(residual=residual)
    slope = positive(lipschitz, "lipschitz")
    one_of(aggregate, "aggregate", ("mean", "sum", "gcn"))

    def bound(graph: AttentionGraph) -> Any:
        matrix = csr_by_target(graph)
        into, out = (
            np.maximum(degree.cpu().numpy(), 1) for degree in (graph.in_degree, graph.out_degree)
        )
        if aggregate == "mean":
            matrix = _over(matrix, into)
        elif aggregate == "gcn":
            matrix = _over(_over(matrix, np.sqrt(into)).T.tocsr(), np.sqrt(out)).T
        matrix = matrix * slope
        if residual and graph.is_square:
            from scipy.sparse import eye_array

            matrix = matrix + eye_array(matrix.shape[0])
        return matrix.tocsr()

    return _product(layers, targets, bound, "jacobian_bound", budget)


def jacobian_norms(
    module: Callable[[Tensor], Tensor],
    x: Tensor,
    targets: Any = None,
    *,
    norm: Literal["spectral", "sum"] = "spectral",
) -> Tensor:
    r"""Change of each output of a model with each input, measured at ``x`` by gradients.

    .. math:: \left\| \frac{\partial \, module(x)_t}{\partial x_s} \right\|, \quad \text{a mean over samples}

    A torch module runs in eval mode, and is as it was afterwards. A row over its sum, with
    ``norm="sum"``, is the influence distribution of Xu et al. 2018, of the model instead of the
    graph.

    Args:
        module: From ``x`` to (..., T, C'), differentiable, where samples do not depend on one
            another.
        x: (..., S, C) floats.
        targets: Indices (n,) of the targets in question; all by default. Each takes C' backward
            passes.
        norm: ``"spectral"``, the largest change of the output over that of the input, which
            :func:`jacobian_bound` bounds; or ``"sum"``, of the absolute entries.
    Returns:
        float64 (n, S).
    Raises:
        ShapeError: If ``x`` is no floats (..., S, C), or the module gives no tensor (..., T, C').
        GraphError: If the backward passes are more than 16,384.
        OptionError: If a target is not there.
    Source:
        Topping et al. 2022, Di Giovanni et al. 2023 (spectral); Xu et al. 2018, definition 3.1
        (sum).
    Example:
        >>> jacobian_norms(lambda x: x.cumsum(-2) / 2, torch.randn(3, 5))
        tensor([[0.5000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    one_of(norm, "norm", ("spectral", "sum"))
    function(module, "module", "x")
    floats(x, "x", "(..., S, C)", 2)
    if 0 in x.shape[:-2]:
        raise ShapeError(f"x must be of one sample or more, got {shown(x)}")
    rows = []
    with left_as_it_was(module), torch.enable_grad():
        if isinstance(module, torch.nn.Module):
            module.eval()
        inputs = x.detach().clone().requires_grad_()
        output = module(inputs)
        check_shape(output, "the result of module", (*x.shape[:-2], "T", "C"))
        check_finite(output, "the result of module")
        T, width = output.shape[-2:]
        chosen = list(range(T))
        if targets is not None:
            targets = several(targets, "targets", "must be a list of targets")
            of = ", the number of targets"
            chosen = [whole(t, "targets", 0, below=T, of=of) for t in targets]
        subject = f"jacobian_norms of {len(chosen):,} targets"
        instead = "ask about fewer targets: targets=[t]"
        refuse_over(len(chosen) * width, subject, instead, _CALLS, "backward passes")
        for t in chosen:
            parts: list[Tensor] = []
            for c in range(width):
                # 0 of an output that does not depend on the inputs
                parts += torch.autograd.grad(
                    output[..., t, c].sum(), inputs, retain_graph=True, materialize_grads=True
                )
            block = torch.stack(parts, -2).double()  # (..., S, C', C)
            if norm == "sum":
                size = block.abs().sum((-2, -1))
            else:
                size = torch.linalg.matrix_norm(block, 2)
            rows.append(size.reshape(-1, x.shape[-2]).mean(0))
    if rows:
        return torch.stack(rows)
    return torch.zeros(0, x.shape[-2], dtype=torch.float64)


def _over(matrix: Any, degree: np.ndarray) -> Any:
    """Rows over a number each."""
    scaled = matrix.copy()
    scaled.data = matrix.data / np.repeat(degree, np.diff(matrix.indptr))
    return scaled


def _product(
    layers: Layers,
    targets: Any,
    weights: Callable[[AttentionGraph], Any],
    subject: str,
    budget: int,
) -> Tensor:
    """Rows of the product of the layers' matrices, last layer first."""
    graphs, chosen = graphs_and_targets(layers, targets, subject, budget)
    matrices: dict[AttentionGraph, Any] = {}
    rows = np.zeros((graphs[-1].num_targets, chosen.numel()))  # nodes first
    rows[chosen.cpu().numpy(), np.arange(chosen.numel())] = 1
    for graph in reversed(graphs):
        if not is_listable(graph):
            raise too_many(graph, subject)
        if graph not in matrices:
            matrices[graph] = weights(graph).T.tocsr()
        rows = matrices[graph] @ rows
    return torch.from_numpy(np.ascontiguousarray(rows.T))
