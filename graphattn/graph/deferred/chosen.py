"""Graphs whose edges are chosen by the queries and keys of each call of attention."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from ...errors import BackendError, GraphError, singular
from ...operands import Inputs, Outputs
from ..graph import AttentionGraph, disjoint_union
from ..like import GraphLike, Run
from ..modes import Memo, constant_result, keep, not_compiled, not_followed, plain_operations_only
from ..part_biases import PartBiases
from .choice import TransformedChoice, as_one_head, chosen_edges, of_all_heads
from .expression import METHODS, Expression, Operand, built, function_of
from .filled import OfSize, filled, leaves_open

#: Arguments of builders that queries and keys give.
CONTENT = ("scores", "features")
_MOST_CACHED = 64  # in batches of many sizes
# methods and operators that a choice by content does not have
_REFUSED = {"~", *METHODS} - {"reverse", "k_hop", "with_self_loops", "without_self_loops"}


@dataclass(frozen=True, eq=False)
class Content:
    """The queries and keys by which a builder chooses; without them it gives all possible edges.

    Args:
        num_targets: T.
        num_sources: S.
        query: (B, T, H, D), all examples in one axis.
        key: (B, S, H_kv, D).
        device: The device of the result.
    """

    num_targets: int
    num_sources: int
    query: Tensor | None = None
    key: Tensor | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def copies(self) -> int:
        """B * H, the graphs that stand side by side."""
        if self.query is None:
            return 1
        return self.query.shape[0] * self.query.shape[2]


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class Chosen(GraphLike, Operand):
    """A graph whose edges the queries and keys of a call choose, for each example and head.

    A pattern that needs content, such as ``top_k(..., 8, within=causal(...))``, gives it at a
    size. Tensors of edges (score biases, edge features, weights) are in the edge order of
    :meth:`union`, all edges that may be chosen; the weight of an edge that is not chosen is 0. The
    choice has no gradient: queries and keys get theirs through the scores of the chosen edges.

    Args:
        expression: The calls of builders, with ``...`` for what they choose by.
        size: T and S of the whole graph.
        rows: The targets; all by default. A continued sequence has its new tokens alone.

    Raises:
        GraphError: If a choice is subtracted or complemented, or global tokens are put before it.

    Example:
        >>> import torch, graphattn as ga
        >>> x = torch.eye(4)[:, None]  # four nodes of one head
        >>> out = ga.attention(x, x, x, ga.graphs.top_k(..., 1), return_weights=True)  # each reads the most alike
        >>> out.weights.dense()[0]
        tensor([[1., 0., 0., 0.],
                [0., 1., 0., 0.],
                [0., 0., 1., 0.],
                [0., 0., 0., 1.]])
    """

    _remedy = "pass its .union(), every edge that may be chosen"
    _is_fixed = False

    expression: Expression
    size: tuple[int, int]
    rows: range | None = None
    _memo: Memo = field(default_factory=Memo, init=False)

    def __post_init__(self) -> None:
        _check_joins(self.expression)
        self.union()  # sizes that do not fit are refused now

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Chosen, (self.expression, self.size, self.rows)

    @property
    def targets(self) -> range:
        """The targets among those of the whole graph."""
        if self.rows is None:
            return range(self.size[0])
        return self.rows

    @property
    def num_targets(self) -> int:
        """T, the nodes that read."""
        return len(self.targets)

    @property
    def num_sources(self) -> int:
        """S, the nodes that may be read."""
        return self.size[1]

    @property
    def num_edges(self) -> int:
        """E, the number of edges that may be chosen."""
        return self.union().num_edges

    @property
    def source(self) -> Tensor:
        """int64 (E,): the sources of the edges that may be chosen."""
        return self.union().source

    @property
    def target(self) -> Tensor:
        """int64 (E,): their targets."""
        return self.union().target

    @property
    def is_rule(self) -> bool:
        """True: the edges of a call are on the device of its query."""
        return True

    @property
    def device(self) -> torch.device:
        """The device of :meth:`union`."""
        return self.union().device

    def to(self, device: torch.device | str) -> "Chosen":
        """Itself: the edges of a call are on the device of its query."""
        return self

    def part(self, targets: range, num_sources: int) -> "Chosen":
        """Some targets, with the sources up to ``num_sources``, as in a continued sequence."""
        if targets == self.targets and num_sources == self.num_sources:
            return self
        num_rows = self.size[0]
        if self.size[0] == self.size[1]:
            num_rows = num_sources
        rows: range | None = targets
        if targets == range(num_rows):
            rows = None
        return replace(self, size=(num_rows, num_sources), rows=rows)

    def union(self) -> AttentionGraph:
        """Every edge that may be chosen: what reach, leaks and ceilings are computed of."""
        return self.remembered("union", lambda: self._filled(self.expression, self._content()))

    def edges(self, query: Tensor, key: Tensor) -> AttentionGraph:
        """The edges of a call: the graphs of all heads of all examples side by side.

        Node ``(b H + h) T + t`` is target ``t`` of head ``h`` in example ``b``, and the sources are
        numbered alike.

        Args:
            query: (B, T, H, D).
            key: (B, S, H_kv, D).
        """
        with torch.no_grad():
            return self._filled(self.expression, self._content(query.detach(), key.detach()))

    def attend(
        self,
        run: Run,
        inputs: Inputs,
        backend: str,
        weights: bool,
        lse: bool,
    ) -> Outputs:
        """The outputs of a call along the edges that its queries and keys choose."""
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            _refuse_export(self)
        return self._attend(run, inputs, backend, weights, lse)

    @not_followed  # the edges are of this call alone
    def _attend(
        self,
        run: Run,
        inputs: Inputs,
        backend: str,
        weights: bool,
        lse: bool,
    ) -> Outputs:
        if weights or _needs_union(inputs, backend):
            return run(self.union(), self._call_on_union(inputs), backend, weights, lse)
        edges, call = as_one_head(self.edges, self.union, inputs)
        return of_all_heads(run(edges, call, backend, weights, lse), inputs)

    def _call_on_union(self, inputs: Inputs) -> Inputs:
        """A call on :meth:`union`, with a bias of -inf on the edges that are not chosen."""
        choose = chosen_edges
        if plain_operations_only():
            choose = TransformedChoice.apply
        is_chosen = choose(self.edges, self.union(), inputs.query, inputs.key)
        bias: Any = inputs.score_bias
        if isinstance(bias, PartBiases):
            bias = bias.on(self.union())
        if bias is None:
            bias = inputs.query.new_zeros((), dtype=inputs.statistics)
        return replace(inputs, score_bias=bias.where(is_chosen, -torch.inf))

    def _content(self, query: Tensor | None = None, key: Tensor | None = None) -> Content:
        device = torch.device("cpu")
        if query is not None:
            device = query.device
        return Content(self.num_targets, self.num_sources, query, key, device)

    def remembered(self, key: Any, make: Callable[[], AttentionGraph]) -> AttentionGraph:
        """``make()``, cached."""
        return keep(self._memo, key, make, _MOST_CACHED)

    def _filled(self, part: Any, content: Content) -> Any:
        """A part of the expression on the nodes of all heads and examples."""
        if not _by_content(part):
            return self._side_by_side(part, content)
        function = function_of(part.function)
        if part.args[0] is not ...:
            return function(*(self._filled(arg, content) for arg in part.args), **part.options)
        args = [self._fixed(value, content) for value in part.args[1:]]
        options = {name: self._fixed(value, content) for name, value in part.options.items()}
        return function(content, *args, **options)

    def _fixed(self, part: Any, content: Content) -> Any:
        """A part that does not depend on content: of a graph the rows of the targets."""
        if not isinstance(part, Expression | AttentionGraph):
            return built(part)

        def make() -> AttentionGraph:
            graph: AttentionGraph = filled(part, OfSize(*self.size))
            has_all_rows = (graph.num_targets, graph.num_sources) == self.size
            if has_all_rows and self.rows is not None:
                graph = graph.subgraph(targets=self.rows)
            return graph.to(content.device)

        return self.remembered((id(part), content.device), make)

    def _side_by_side(self, part: Any, content: Content) -> Any:
        fixed = self._fixed(part, content)
        if content.query is None or not isinstance(fixed, AttentionGraph):
            return fixed
        fixed.edges.stored()  # every call joins them
        if content.copies == 1:
            return fixed

        def make() -> AttentionGraph:
            graph = disjoint_union([fixed] * content.copies)
            graph.edges.stored()
            return graph

        return self.remembered((id(part), content.device, content.copies), make)

    def __repr__(self) -> str:
        sides = f"{self.num_sources} sources -> {self.num_targets} targets"
        return singular(f"Chosen({self.name}: {sides})")

    def _repr_html_(self) -> str:
        """The view in a notebook: the line of ``repr``, and a picture of the possible edges."""
        from ..pictures.html import mask_page  # a layer's call loads no pictures

        return mask_page(f"{self!r}, edges that may be chosen", self.union().edges)

    def __getattr__(self, name: str) -> Any:
        raise lacks(
            "Chosen",
            name,
            f", as its edges differ from call to call; use .union().{name}, of every edge that "
            f"may be chosen, or .edges(query, key).{name}, of a call",
        )

    def _refuse_algebra(self, *_: object) -> NoReturn:
        raise GraphError(
            f"{self!r} joins no graph; join patterns, then give a size: "
            "(top_k(..., 8) | causal(...))(size)"
        )

    __or__ = __ror__ = __and__ = __rand__ = __sub__ = __rsub__ = __matmul__ = __rmatmul__ = (
        _refuse_algebra
    )
    __invert__ = _refuse_algebra


def _needs_union(inputs: Inputs, backend: str) -> bool:
    """True for features of edges, functions of all heads, dense backends and transformed calls."""
    if backend in ("dense", "tiles"):
        return True
    if plain_operations_only():
        return True
    of_edges = (inputs.edge_attr, inputs.score, inputs.normalize)
    return any(part is not None for part in of_edges)


@constant_result
def _refuse_export(graph: Chosen) -> None:
    raise BackendError(
        f"{graph.name} chooses its edges in every call, and an exported or traced program has the "
        "same ones in each; export union(), or compile, which runs the choice outside the program"
    )


def lacks(owner: str, name: str, remedy: str) -> AttributeError:
    """Error of a missing attribute; if it is a graph's, with a remedy."""
    if name.startswith("_") or not hasattr(AttentionGraph, name):
        return AttributeError(f"{owner!r} object has no attribute {name!r}")
    return AttributeError(f"{owner} has no {name}{remedy}")


def _check_joins(call: Expression) -> None:
    """Refuse calls that remove edges by a choice, or that renumber the nodes of one."""
    if not leaves_open(call, CONTENT):
        return
    if any(map(_by_content, call.options.values())):
        raise GraphError(f"{call} has an option that is chosen, too; join the two by |, & or @")
    if call.args[0] is ...:
        return
    is_refused = call.function in _REFUSED
    if call.function == "-":
        is_refused = _by_content(call.args[1])
    if is_refused:
        raise GraphError(
            f"{call} has no edges that may be chosen; join a choice by |, &, @, or subtract a "
            "graph from it"
        )
    for part in call.args:
        if isinstance(part, Expression):
            _check_joins(part)


def _by_content(part: Any) -> bool:
    """True for a call that chooses edges by content, or has an operand that does."""
    return isinstance(part, Expression) and leaves_open(part, CONTENT)
