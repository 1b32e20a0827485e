"""FlexAttention's score functions: ``score_mod(score, b, h, q_idx, kv_idx)``."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import GraphError, ShapeError
from ..graph import AttentionGraph, PerExample
from ..graph.like import GraphLike, need_fixed
from ..graph.modes import not_followed
from ..graphs.arguments import whole

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
#: Operations that move numbers of a score and change none.
_MOVES = {"view", "_unsafe_view", "unsqueeze", "squeeze", "expand", "permute", "transpose", "clone"}
_EXACT = 1 << 24  # float32, in which kernels carry edge features, has all integers below


@partial(not_followed, reason="make_fx reads a score_mod: call from_score_mod before compiling")
def from_score_mod(
    score_mod: ScoreMod,
    graph: AttentionGraph | PerExample,
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
        graph: The graph of the call; of a ``PerExample``, such as a mask that reads b, q and kv
            count within each example.
        B: Number of examples, if it reads b and they share a graph.
        H: Number of heads of the query, if it reads h.
        scale: Factor on the product before ``score_mod``, ``D ** -0.5`` by default.
        dtype: That of the biases, float32 or float64.
    Returns:
        ``{"score_bias": (E, 1), (E, H) or (B, E, H)}`` or ``{"score": function}``, for calls with
        this graph alone; a score that is set to -inf removes an edge.
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
    sizes = {"b": B, "h": H}
    if isinstance(graph, PerExample) and graph._is_fixed:
        if B not in (None, len(graph)):
            raise GraphError(f"B must be {len(graph)}, the examples of the graph, got {B}")
        sizes["b"] = 1  # an edge is of one example
    else:
        need_fixed(graph, "from_score_mod needs an AttentionGraph")
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
    bias = function.of_scores(zeros, function.edge_attr[None].long())
    if function.batches == 1:
        bias = bias[0]
    arguments: dict[str, Any] = {"score_bias": bias}
    if scale is not None:
        arguments["scale"] = scale
    return arguments


class ScoreOfEdges:
    """A ``score_mod`` as the ``score`` of a call.

    Its edge features are the numbers of target and source, and of the example of a ``PerExample``.

    Args:
        score_mod: The function.
        graph: The graph of the call.
        batches: The number of examples; 1 if it does not depend on b, or edges have their own.
        scale: Factor on the product.
    """

    def __init__(
        self,
        score_mod: ScoreMod,
        graph: GraphLike,
        batches: int,
        scale: float | None,
    ) -> None:
        if max(graph.num_targets, graph.num_sources) > _EXACT:
            raise GraphError(f"a score_mod takes graphs of at most {_EXACT:,} nodes, got {graph!r}")
        self.score_mod = score_mod
        self.batches = batches
        self.scale = scale
        self.edge_attr = _numbers(graph)

    def check_graph(self, graph: GraphLike) -> None:
        """Refuse a call with other edges, or in another order, than the function was made for."""
        if torch.compiler.is_compiling():
            return
        numbers = _numbers(graph).to(self.edge_attr.device)
        if not torch.equal(numbers, self.edge_attr):
            raise GraphError(
                f"score is of other edges than those of {graph!r}; pass from_score_mod the graph "
                "of the call"
            )

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        edge_attr: Tensor | None,
    ) -> Tensor:
        """Scores (..., E, H) of queries and keys (..., E, H, D) and their numbers (..., E, 2 or 3)."""
        if edge_attr is None:
            raise GraphError("a score of from_score_mod is for ga.attention, not for a layer")
        scale = self.scale
        if scale is None:
            scale = query.shape[-1] ** -0.5
        score = scale * (query * key).sum(-1)
        lead = score.shape[:-2]
        count = lead.numel()
        if self.batches not in (1, count):
            raise ShapeError(f"score_mod is of B={self.batches} examples, got {tuple(lead)}")
        flat = score.reshape(count, *score.shape[-2:])
        numbers = edge_attr.expand(*lead, *edge_attr.shape[-2:])
        numbers = numbers.reshape(count, *numbers.shape[-2:]).long()
        return self.of_scores(flat, numbers).reshape(score.shape)

    def of_scores(self, score: Tensor, numbers: Tensor) -> Tensor:
        """The function of scores (B, E, H) and numbers (B or 1, E, 2 or 3), for each alone."""
        device = score.device
        if not score.numel():  # vmap takes no empty axis
            return score
        h = torch.arange(score.shape[-1], device=device)
        target, source, *examples = numbers.unbind(-1)
        b = torch.arange(len(score), device=device)
        if examples:
            b = examples[0].expand(len(score), -1)
        elif self.batches == 1:
            b = torch.zeros_like(b)
        return _of_all(self.score_mod, b.dim() == 2)(score, b, h, target[0], source[0])


def _numbers(graph: GraphLike) -> Tensor:
    """The target and the source of each edge, and its example, if edges have one; (E, 2 or 3)."""
    edges = graph._whole_graph
    numbers = [edges.target, edges.source]
    if isinstance(graph, PerExample):
        numbers.append(graph.union().target // max(1, graph.num_targets))
    return torch.stack(numbers, -1).float()


def _of_all(score_mod: ScoreMod, b_of_edges: bool = False) -> ScoreMod:
    """A function of one score as one of scores (B, E, H), of b (B,) or (B, E), h, q_idx and kv_idx."""
    b_axis = None
    if b_of_edges:
        b_axis = 0
    of_heads = torch.vmap(score_mod, (0, None, 0, None, None))
    of_edges = torch.vmap(of_heads, (0, b_axis, None, 0, 0))
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
    of_all = _of_all(score_mod)

    def traced(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return of_all(score, b, h, q, k)  # make_fx counts arguments with defaults, too

    graph = make_fx(traced)(score, *indices).graph
    graph.eliminate_dead_code()
    return graph


def _only_adds(trace: Any) -> bool:
    """True if the result is the score plus what does not depend on it, or -inf in some places."""
    score, *indices = trace.find_nodes(op="placeholder")
    added = {score}  # the score plus something
    constant: dict[Any, Any] = {}  # what depends on no argument, by its value
    other = set(indices)
    for node in trace.nodes:
        if node.op == "output":
            return node.args[0] in added
        if node.op == "placeholder":
            continue
        inputs = node.all_input_nodes
        if constant.keys() >= set(inputs):
            constant[node] = _value(node, constant)
        elif (constant.keys() | other).issuperset(inputs):
            other.add(node)
        elif _adds(node, added, constant):
            added.add(node)
        else:
            return False
    return False


def _adds(
    node: Any,
    added: set[Any],
    constant: dict[Any, Any],
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


def _value(node: Any, constant: dict[Any, Any]) -> Any:
    """The value of a node that depends on constants alone."""
    from torch.fx.node import map_arg  # slow to import

    if node.op == "get_attr":
        return getattr(node.graph.owning_module, node.target)
    args, kwargs = (map_arg(part, constant.__getitem__) for part in (node.args, node.kwargs))
    return node.target(*args, **kwargs)


def _is_minus_infinity(x: Any, constant: dict[Any, Any]) -> bool:
    """True for -inf, as a number or a constant of the program."""
    if hasattr(x, "op"):
        x = constant.get(x, 0.0)
    return bool(torch.as_tensor(x == -math.inf).all())
