"""FlexAttention's score functions: ``score_mod(score, b, h, q_idx, kv_idx)``."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import GraphError, ShapeError
from ..graph import AttentionGraph
from ..graph.like import need_fixed
from ..graphs.arguments import whole

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
#: Operations that move numbers of a score and change none.
_MOVES = {"view", "_unsafe_view", "unsqueeze", "squeeze", "expand", "permute", "transpose", "clone"}
_EXACT = 1 << 24  # float32, in which kernels carry edge features, has all integers below


def from_score_mod(
    score_mod: ScoreMod,
    graph: AttentionGraph,
    *,
    B: int | None = None,
    H: int | None = None,
    scale: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Arguments of :func:`graphattn.attention` that do what a ``score_mod`` of FlexAttention does.

    A function that only adds to the score becomes a ``score_bias``, which every backend takes; any
    other (squares, SiLU, sines, a sink's logit) a ``score``. Which of the two is read from its
    operations, as ``make_fx`` traces them, not from samples. Tensors that it captures keep their
    gradients; where they are trained, convert again in each step. Tanh soft-capping costs less as
    ``softcap=``.

    Args:
        score_mod: The function.
        graph: The graph of the call.
        B: Number of examples, if it reads b.
        H: Number of heads of the query, if it reads h.
        scale: Factor on the product before ``score_mod``, ``D ** -0.5`` by default.
        dtype: That of the biases, float32 or float64.
    Returns:
        ``{"score_bias": (E, 1), (E, H) or (B, E, H)}`` or ``{"score": function}``; a score
        that is set to -inf removes an edge.
    Raises:
        GraphError: If it reads b without ``B``, or h without ``H``.
    Example:
        >>> import torch, graphattn as ga
        >>> graph, x = ga.graphs.causal(5), torch.randn(3, 5, 2, 4)
        >>> steps = from_score_mod(lambda score, b, h, q, kv: score - 0.1 * (q - kv), graph)
        >>> list(steps), ga.attention(x, x, x, graph, **steps).shape
        (['score_bias'], torch.Size([3, 5, 2, 4]))
        >>> list(from_score_mod(lambda score, b, h, q, kv: score * score, graph))
        ['score']
    """
    need_fixed(graph, "from_score_mod needs an AttentionGraph")
    sizes = {"b": B, "h": H}
    trace = _traced(score_mod, graph.device, dtype)
    _, *indices = trace.find_nodes(op="placeholder")
    read = [name for name, node in zip("bhqk", indices, strict=True) if node.users]
    for name, size in sizes.items():
        if name in read and size is None:
            raise GraphError(f"score_mod reads {name}: pass {name.upper()}=, how many there are")
        if name not in read:
            sizes[name] = 1
    function = ScoreOfEdges(score_mod, graph, whole(sizes["b"], "B", 1), scale)
    if not _only_adds(trace):
        return {"score": function}
    shape = (function.batches, graph.num_edges, whole(sizes["h"], "H", 1))
    zeros = torch.zeros(shape, dtype=dtype, device=graph.device)
    bias = function.of_scores(zeros, graph.target, graph.source)
    if function.batches == 1:
        bias = bias[0]
    arguments: dict[str, Any] = {"score_bias": bias}
    if scale is not None:
        arguments["scale"] = scale
    return arguments


class ScoreOfEdges:
    """A ``score_mod`` as the ``score`` of a call; its edge features are the numbers of nodes.

    Args:
        score_mod: The function.
        graph: The graph of the call.
        batches: The number of examples; 1 if it does not depend on b.
        scale: Factor on the product.
    """

    def __init__(
        self, score_mod: ScoreMod, graph: AttentionGraph, batches: int, scale: float | None
    ) -> None:
        if max(graph.num_targets, graph.num_sources) > _EXACT:
            raise GraphError(f"a score_mod takes graphs of at most {_EXACT:,} nodes, got {graph!r}")
        self.score_mod = score_mod
        self.batches = batches
        self.scale = scale
        self.edge_attr = torch.stack((graph.target, graph.source), -1).float()

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        edge_attr: Tensor,
    ) -> Tensor:
        """Scores (..., E, H) of queries and keys (..., E, H, D) and their nodes (..., E, 2)."""
        scale = self.scale
        if scale is None:
            scale = query.shape[-1] ** -0.5
        score = scale * (query * key).sum(-1)
        lead = score.shape[:-2]
        if self.batches not in (1, lead.numel()):
            raise ShapeError(f"score_mod is of B={self.batches} examples, got {tuple(lead)}")
        flat = score.reshape(lead.numel(), *score.shape[-2:])
        ends = edge_attr.reshape(-1, *edge_attr.shape[-2:])[:1].long().unbind(-1)
        target, source = (x.reshape(score.shape[-2]) for x in ends)
        return self.of_scores(flat, target, source).reshape(score.shape)

    def of_scores(
        self,
        score: Tensor,
        target: Tensor,
        source: Tensor,
    ) -> Tensor:
        """The function of scores (B, E, H), called as FlexAttention does, for each alone."""
        device = score.device
        b = torch.arange(len(score), device=device)
        if self.batches == 1:
            b = torch.zeros_like(b)
        h = torch.arange(score.shape[-1], device=device)
        return _of_all(self.score_mod)(score, b, h, target, source)


def _of_all(score_mod: ScoreMod) -> ScoreMod:
    """A function of one score as one of scores (B, E, H), and b, h, q_idx, kv_idx of one axis."""
    of_heads = torch.vmap(score_mod, (0, None, 0, None, None))
    of_edges = torch.vmap(of_heads, (0, None, None, 0, 0))
    return torch.vmap(of_edges, (0, 0, None, None, None))


def _traced(
    score_mod: ScoreMod,
    device: torch.device,
    dtype: torch.dtype,
) -> Any:
    """The operations of a ``score_mod``, without those whose results nothing reads."""
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to import

    score = torch.zeros(1, 1, 1, dtype=dtype, device=device)
    indices = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(4)]
    graph = make_fx(_of_all(score_mod))(score, *indices).graph
    graph.eliminate_dead_code()
    return graph


def _only_adds(trace: Any) -> bool:
    """True if the result is the score plus what does not depend on it, or -inf in some places."""
    score, *indices = trace.find_nodes(op="placeholder")
    added = {score}  # the score plus something
    constant: set[Any] = set()  # depends on no argument
    other = set(indices)
    for node in trace.nodes:
        if node.op == "output":
            return node.args[0] in added
        if node.op == "placeholder":
            continue
        inputs = node.all_input_nodes
        if constant.issuperset(inputs):
            constant.add(node)
        elif (constant | other).issuperset(inputs):
            other.add(node)
        elif _adds(node, added, constant):
            added.add(node)
        else:
            return False
    return False


def _adds(
    node: Any,
    added: set[Any],
    constant: set[Any],
) -> bool:
    """True if an operation on the score plus something gives the score plus something."""
    name = node.target._schema.name.removeprefix("aten::")
    first, *others = node.args
    if name == "where":
        return first not in added and all(
            x in added or _is_minus_infinity(x, constant) for x in others
        )
    if name == "add":
        return (first in added) != (others[0] in added) and not node.kwargs
    if first not in added:
        return False
    if name == "sub":
        return others[0] not in added and not node.kwargs
    if name == "masked_fill":
        return others[0] not in added and _is_minus_infinity(others[1], constant)
    if name == "_to_copy":
        return node.kwargs.get("dtype", torch.float32).is_floating_point
    return name in _MOVES


def _is_minus_infinity(
    x: Any,
    constant: set[Any],
) -> bool:
    """True for -inf, as a number or a constant of the program."""
    if not hasattr(x, "op"):
        return x == -math.inf
    if x not in constant:
        return False
    if x.op == "get_attr":
        return bool((getattr(x.graph.owning_module, x.target) == -math.inf).all())
    numbers = [arg for arg in x.args if isinstance(arg, float | int | bool)]
    return all(number == -math.inf for number in numbers) and all(
        _is_minus_infinity(arg, constant) for arg in x.all_input_nodes
    )
