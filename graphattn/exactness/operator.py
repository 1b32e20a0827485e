"""Attention without parameters as a subject: the library's own, and a caller's function."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_shape
from ..backends import BACKENDS
from ..backends.request import Request
from ..functional import AttentionOutput, attention
from ..graph import AttentionGraph, PerExample, PerHead, disjoint_union
from ..graph.deferred.chosen import Chosen
from ..graph.like import GraphLike
from ..twins.pieces import EXHAUSTIVE, Piece
from ..twins.problem import Problem, Result
from .measure import measure
from .subject import Case, Leaf, detached, seeded

MOST_EDGES = 1 << 24  # edges that may each get a bias
SCALE, SOFTCAP = 0.61, 2.3  # away from the default, and low enough for the cap to bend the scores

CALLABLE = "callable"  # the one "backend" of a caller's function
GROUPED, EQUAL = (4, 2), (3, 3)  # heads that it is called with: grouped if it takes them
HEADS_FIRST = (
    "it expects heads first, (H, N, D), and is exact so; wrap it: "
    "lambda q, k, v: f(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)"
)
UNGROUPED = (
    "with 3 heads on 3 it is exact: head h must read key head h // (H / H_kv), as after "
    "k.repeat_interleave(H // H_kv, 1); for a function that is not meant for grouped heads say "
    "heads=3"
)
FORWARD_ONLY = (
    "it runs where no gradient is required; verify its outputs alone with gradients=False"
)
Function = Callable[[Tensor, Tensor, Tensor], Tensor]


class _RandomOperands:
    """Random query, key and value for a graph, and their dense problem."""

    output_axis = -3
    gives_zero = True
    relists = True
    floats_per_pair = 1
    places: dict[str, Leaf]
    chosen: Chosen | None = None
    """Where queries and keys choose the edges, of which ``graph`` has all that they may."""

    def __init__(
        self,
        graph: AttentionGraph,
        lead: tuple[int, ...],
        heads: tuple[int, int],
        widths: tuple[int, int],
        scale: float,
        seed: int,
    ) -> None:
        self.graph = graph
        self.lead = lead
        self.heads = heads
        self.widths = widths
        self.scale = scale
        self.seed = seed
        self.sizes = f"{heads[0]} heads on {heads[1]}, widths {widths[0]} and {widths[1]}"
        self._random: dict[tuple[str, tuple[int, ...]], Tensor] = {}  # random numbers, in float64
        self.places = {
            "query": Leaf("targets", -3),
            "key": Leaf("sources", -3),
            "value": Leaf("sources", -3),
        }

    @property
    def run_on(self) -> GraphLike:
        if self.chosen is None:
            return self.graph
        return self.chosen

    def leaves(self, case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
        T = self.graph.num_targets
        S = self.graph.num_sources
        shapes = {
            "query": (*self.lead, T, self.heads[0], self.widths[0]),
            "key": (*self.lead, S, self.heads[1], self.widths[0]),
            "value": (*self.lead, S, self.heads[1], self.value_width(case)),
        }
        if case.bias:
            shapes["score_bias"] = (self.graph.num_edges, self.heads[0])
        for name, shape in shapes.items() - self._random.keys():
            self._random[name, shape] = seeded(name, shape, self.seed).to(self.graph.device)
        return {
            name: self._random[name, shape].to(dtype, copy=True).requires_grad_()
            for name, shape in shapes.items()
        }

    def value_width(self, case: Case) -> int:
        """D_v."""
        if case.alike:
            return self.widths[0]
        return self.widths[1]

    def scale_in(self, case: Case) -> float:
        """The factor of the product in a case."""
        if case.scale is None:
            return self.scale
        return case.scale

    def undecided(self, dtype: torch.dtype) -> None:
        return None

    def problem(self, leaves: dict[str, Tensor], case: Case, piece: Piece) -> Problem:
        return Problem(
            leaves["query"].index_select(-3, piece.targets),
            leaves["key"].index_select(-3, piece.columns),
            leaves["value"].index_select(-3, piece.columns),
            piece.mask,
            self.scale_in(case),
            bias=self._bias(leaves, piece),
            softcap=case.softcap,
        )

    def _bias(self, leaves: dict[str, Tensor], piece: Piece) -> Tensor | None:
        """Biases (..., H, R, U); -inf where an edge is not chosen."""
        bias = leaves.get("score_bias")
        if self.chosen is not None:
            query = _in_its_dtype(leaves["query"].detach())
            key = _in_its_dtype(leaves["key"].detach())
            is_chosen = chosen_edges(self.chosen, query, key)
            if bias is None:
                bias = query.new_zeros((), dtype=leaves["query"].dtype)
            bias = bias.where(is_chosen, -torch.inf)
        if bias is None:
            return None
        return piece.spread(bias).movedim(-1, -3)


def _in_its_dtype(x: Tensor) -> Tensor:
    """Numbers in the dtype in which a choice is computed.

    That is float32 where they are float32 numbers, or narrower ones.
    """
    narrow = x.float()
    if torch.equal(narrow.double(), x.double()):
        return narrow
    return x


def chosen_edges(graph: Chosen, query: Tensor, key: Tensor) -> Tensor:
    """True for edges of ``graph.union()`` that queries and keys choose, bool (..., E, H)."""
    *lead, T, H, _ = query.shape
    S = graph.num_sources
    union = graph.union()
    one_batch = [x.reshape(math.prod(lead), *x.shape[-3:]) for x in (query, key)]
    source, target = graph.edges(*one_batch).edge_index.cpu()
    is_chosen = torch.zeros(math.prod(lead) * H, T * S, dtype=torch.bool)
    is_chosen[target // max(1, T), target % max(1, T) * S + source % max(1, S)] = True
    # (heads of all examples, E)
    of_edges = is_chosen[:, union.target.cpu() * S + union.source.cpu()]
    return of_edges.reshape(*lead, H, union.num_edges).transpose(-1, -2).to(query.device)


class GraphSubject(_RandomOperands):
    """``graphattn.attention`` on a graph, every semantic option away from its default."""

    owns_graph = True
    own_code: str | None = None

    def __init__(
        self,
        graph: AttentionGraph,
        *,
        heads: tuple[int, int] = (4, 2),
        widths: tuple[int, int] | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        seed: int = 0,
    ) -> None:
        lead: tuple[int, ...] = ()
        if graph.num_targets * graph.num_sources <= EXHAUSTIVE:
            lead = (2,)
        plain = Case("plain", alike=widths is None)
        if widths is None:
            widths = (5, 3)
        if softcap is None:
            softcap = SOFTCAP
        cases = [
            plain,
            Case("score_bias", bias=True),
            Case("all options", bias=True, softcap=softcap, lse=True),
            Case("weights", bias=True, softcap=softcap, weights=True),  # which tiles do not return
        ]
        if scale is None:
            scale = SCALE
            cases.append(Case("scale 0", alike=True, scale=0.0))
            cases.append(Case("scale below 0", alike=True, scale=-SCALE))
        super().__init__(graph, lead, heads, widths, scale, seed)
        self.places["score_bias"] = Leaf("edges", -2)
        self.name = f"graphattn.attention, {self.sizes}"
        self.backends = tuple(BACKENDS)
        self.cases: tuple[Case, ...] = tuple(cases)
        self.notes: tuple[str, ...] = ()
        if graph.num_edges > MOST_EDGES:
            self.cases = (plain, Case("softcap", softcap=softcap))
            self.notes = (
                f"no score_bias, lse or weights: {graph.num_edges:,} edges (limit {MOST_EDGES:,})",
            )

    def request(self, case: Case, dtype: torch.dtype) -> Request:
        return Request(
            *self.heads,
            self.widths[0],
            self.value_width(case),
            batch=math.prod(self.lead),
            dtype=dtype,
            device=self.graph.device,
            score_bias=case.bias,
            softcap=case.softcap is not None,
            weights=case.weights,
            lse=case.lse,
        )

    def run(
        self,
        leaves: dict[str, Tensor],
        case: Case,
        backend: str,
        graph: AttentionGraph | None = None,
    ) -> Result:
        layout: Any = graph
        if graph is None:
            layout = self.run_on
        result = attention(
            leaves["query"],
            leaves["key"],
            leaves["value"],
            layout,
            score_bias=leaves.get("score_bias"),
            scale=self.scale_in(case),
            softcap=case.softcap,
            backend=backend,
            return_weights=case.weights,
            return_lse=case.lse,
        )
        if not isinstance(result, AttentionOutput):
            return Result(result)
        weights = None
        if result.weights is not None:
            weights = result.weights.alpha
        return Result(result.output, result.lse, weights)


class CallableSubject(_RandomOperands):
    """A caller's own ``function(query, key, value)``: does it implement the graph?"""

    owns_graph = False
    own_code: str | None = "the function"
    backends: tuple[str, ...] = (CALLABLE,)

    def __init__(
        self,
        function: Function,
        graph: AttentionGraph,
        *,
        heads: tuple[int, int] = (3, 3),
        widths: tuple[int, int] = (5, 5),
        scale: float | None = None,
        softcap: float | None = None,
        seed: int = 0,
    ) -> None:
        if scale is None:
            scale = widths[0] ** -0.5
        super().__init__(graph, (), heads, widths, scale, seed)
        self.function = function
        self.softcap = softcap
        self.cases: tuple[Case, ...] = (Case("plain", softcap=softcap),)
        self.called = f"{getattr(function, '__name__', type(function).__name__)}(query, key, value)"
        self.name = f"{self.called}, {self.sizes}"
        self.notes: tuple[str, ...] = ()
        if heads[0] == heads[1] > 1:
            self.notes = (f"heads {heads[0]} on {heads[1]}: grouping of heads not tested",)

    def request(self, case: Case, dtype: torch.dtype) -> None:
        return None

    def run(
        self,
        leaves: dict[str, Tensor],
        case: Case,
        backend: str,
        graph: AttentionGraph | None = None,
    ) -> Result:
        query = leaves["query"]
        key = leaves["key"]
        value = leaves["value"]
        output = self.function(query, key, value)
        check_shape(
            output,
            f"what {self.called} returns",
            (*query.shape[:-1], value.shape[-1]),
            f"(targets, heads, width of value) for query {tuple(query.shape)}, key "
            f"{tuple(key.shape)} and value {tuple(value.shape)}. Wrap a function that wants heads "
            "first: lambda q, k, v: f(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)",
        )
        return Result(output)

    def runs(self, dtypes: Sequence[torch.dtype]) -> bool:
        """True if it gives an output of the right shape in one of the dtypes."""
        for dtype in dtypes:
            try:
                with torch.no_grad():
                    self.run(detached(self.leaves(self.cases[0], dtype)), self.cases[0], CALLABLE)
            except Exception:  # whatever it is, measuring meets it again and reports it
                continue
            return True
        return False


def function_subject(
    function: Function,
    graph: AttentionGraph,
    dtypes: Sequence[torch.dtype],
    options: dict[str, Any],
) -> CallableSubject:
    """The function as a subject, with grouped heads if it takes them and the caller set none."""
    if "heads" in options:
        return CallableSubject(function, graph, **options)
    grouped = CallableSubject(function, graph, heads=GROUPED, **options)
    if grouped.runs(dtypes):
        return grouped
    return CallableSubject(function, graph, heads=EQUAL, **options)


def with_layout(
    diagnosis: str | None,
    subject: CallableSubject,
    pieces: Sequence[Piece],
    dtypes: Sequence[torch.dtype],
    any_heads: bool,
) -> str | None:
    """A diagnosis, and the layout in which the wrong function is right.

    With other numbers of heads too if ``any_heads``.
    """

    def heads_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return subject.function(*(x.transpose(0, 1) for x in (query, key, value))).transpose(0, 1)

    def is_exact(function: Function, heads: tuple[int, int]) -> bool:
        """True if its outputs are right, wherever others are wrong."""
        other = CallableSubject(
            function,
            subject.graph,
            heads=heads,
            widths=subject.widths,
            scale=subject.scale,
            softcap=subject.softcap,
            seed=subject.seed,
        )
        if not other.runs(dtypes):
            return False
        rows = measure(other, pieces, dtypes, (CALLABLE,), gradients=False).rows
        return bool(rows) and all(row.ok for row in rows)

    heads_tried = [subject.heads]
    if any_heads:
        heads_tried = [GROUPED, EQUAL]
    if any(is_exact(heads_first, heads) for heads in heads_tried):
        return HEADS_FIRST  # what else differs is a consequence
    if any_heads and subject.heads == GROUPED and is_exact(subject.function, EQUAL):
        if diagnosis is None:
            return UNGROUPED
        return f"{diagnosis}; {UNGROUPED}"
    return diagnosis


def side_by_side(graph: PerHead | PerExample) -> tuple[Function, AttentionGraph]:
    """Attention on graphs of heads, or of examples, as a function on their disjoint union."""
    if isinstance(graph, PerExample):
        return _examples_in_a_row(graph)
    return _heads_in_a_row(graph, partial(attention, graph=graph))


def _examples_in_a_row(graph: PerExample) -> tuple[Function, AttentionGraph]:
    """Attention on graphs of examples as a function of all nodes."""
    B = graph.num_examples

    def attention_per_example(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (x.unflatten(0, (B, -1)) for x in (query, key, value))
        output = attention(query, key, value, graph)
        assert isinstance(output, Tensor)
        return output.flatten(0, 1)

    row = graph.side_by_side
    if isinstance(row, PerHead):
        return _heads_in_a_row(row, attention_per_example)
    return attention_per_example, row


def _heads_in_a_row(graph: PerHead, call: Any) -> tuple[Function, AttentionGraph]:
    """A call on n graphs of heads as a function on their disjoint union.

    Head ``h`` of copy ``i`` is head ``i * H + h`` of the call, so what the function must compute is
    plain attention.
    """
    n = len(graph.graphs)

    def heads_in_groups(x: Tensor) -> Tensor:  # (n * N, H, D) -> (N, n * H, D)
        return x.unflatten(0, (n, -1)).transpose(0, 1).flatten(1, 2)

    def attention_per_head(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = call(heads_in_groups(query), heads_in_groups(key), heads_in_groups(value))
        assert isinstance(output, Tensor)
        return output.unflatten(1, (n, -1)).transpose(0, 1).flatten(0, 1)

    return attention_per_head, disjoint_union(graph.graphs)
