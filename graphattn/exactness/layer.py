"""A layer as a subject: its own parameters, random features, every gradient."""

import inspect
import math
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ..backends import BACKENDS
from ..backends.request import Request
from ..backends.rows import of_rows
from ..errors import BackendError
from ..graph import AttentionGraph, PerExample, PerHead
from ..graph.deferred.chosen import Chosen
from ..graph.like import GraphLike
from ..nn import GraphAttention
from ..nn.linear_attention import chunks_of
from ..nn.normalizers import SinkSoftmax, by_sum, none
from ..nn.scores import Score
from ..twins.pieces import EXHAUSTIVE, Piece
from ..twins.problem import Problem, Result
from .bounds import size
from .layer_twin import LayerTwin, Numbers
from .operator import MOST_EDGES, chosen_edges
from .subject import Case, Leaf, detached, seeded

RUNNING_SUMS = "running_sums"  # the way of linear attention, which "auto" takes and no backend is
SPREAD = 8.0  # standard deviation of positions
NUDGES = 8  # of the queries and keys that choose edges

Layout = AttentionGraph | PerHead | PerExample | Chosen


def _takes(layer: GraphAttention, argument: str) -> bool:
    """True if the layer's ``forward`` accepts an argument."""
    parameters = inspect.signature(layer.forward).parameters
    if argument in parameters:
        return True
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _is_product(layer: GraphAttention) -> bool:
    """True if its score is a dot product of something, which every backend has."""
    if layer.score is None:
        return True
    if not isinstance(layer.score, Score):
        return False
    ones = layer.q_proj.weight.new_ones(1, layer.num_heads, layer.head_dim)
    return layer.score.as_dot(ones, ones) is not None


class LayerSubject:
    """A :class:`graphattn.nn.GraphAttention` without dropout, on any kind of graph.

    On a graph, on graphs of heads or of examples, or on edges that its queries and keys choose.

    Self-attention where the graph is square and the layer's inputs have one width; else targets and
    context apart. Nodes of a layer with a rotary have random positions, real numbers.
    """

    output_axis = -2
    gives_zero = False
    owns_graph = True
    own_code: str | None = "the layer"

    def __init__(self, layer: GraphAttention, graph: Layout, *, seed: int = 0) -> None:
        self.layer = deepcopy(layer).eval().requires_grad_(False)
        self.seed = seed
        self.device = layer.q_proj.weight.device
        graph = graph.to(self.device)
        self.layout = graph
        self.graph = graph.union().to(self.device)
        self.relists = isinstance(graph, AttentionGraph)
        self.chosen: Chosen | None = None
        if isinstance(graph, Chosen):
            self.chosen = graph
        # one graph, or one for each group of heads, on the nodes of ``graph``
        self.of_heads: AttentionGraph | PerHead = self.graph
        if isinstance(graph, PerHead):
            self.of_heads = graph
        elif isinstance(graph, PerExample):
            self.of_heads = graph.side_by_side
        with torch.random.fork_rng(devices=[]):
            twin = LayerTwin(self.layer)
        self.name = repr(layer)
        self.floats_per_pair = twin.floats_per_pair
        self.product = _is_product(layer)
        self.backends = (*BACKENDS, *[RUNNING_SUMS] * self._sums())
        self.lead: tuple[int, ...] = ()
        if self.of_heads.num_targets * self.of_heads.num_sources <= EXHAUSTIVE:
            self.lead = (2,)
        inputs = self._inputs(layer)
        self.places = {name: Leaf(of, -2) for name, (of, _) in inputs.items()}
        self.widths = {name: width for name, (_, width) in inputs.items()}
        self.cases: tuple[Case, ...] = (Case("plain"), Case("score_bias", bias=True))
        notes = twin.borrowed
        if layer.dropout > 0.0:
            notes.append(f"measured without the layer's dropout of {layer.dropout}")
        if not _takes(layer, "score_bias"):
            self.cases = self.cases[:1]
            notes.append("no score_bias: the layer's forward does not take one")
        elif self.graph.num_edges > MOST_EDGES:
            self.cases = self.cases[:1]
            notes.append(f"no score_bias: {self.graph.num_edges:,} edges (limit {MOST_EDGES:,})")
        unchanged = "edges were not removed, shuffled or renamed"
        if isinstance(graph, PerExample):
            notes.append(f"on graphs of examples, their nodes in one row; {unchanged}")
        elif isinstance(graph, PerHead):
            notes.append(f"on graphs of heads; {unchanged}")
        self.notes = tuple(notes)
        self._modules: dict[tuple[str, torch.dtype], Any] = {}
        self._choices: dict[torch.dtype, Tensor] = {}

    @property
    def run_on(self) -> GraphLike:
        if self.chosen is not None:
            return self.chosen
        return self.of_heads

    def _sums(self) -> bool:
        """True if linear attention by running sums can run it."""
        layer = self.layer
        if not self.product or not self.relists or layer.normalize not in (by_sum, none):
            return False
        if layer.softcap is not None or layer.edge_dim is not None:
            return False
        return chunks_of(self.graph) is not None

    def _inputs(self, layer: GraphAttention) -> dict[str, tuple[str, int]]:
        """Owner of each input, as in :class:`Leaf`, and its width."""
        shared = self.graph.is_square and layer.qdim == layer.kdim == layer.vdim
        if shared:
            inputs = {"x": ("nodes", layer.qdim)}
            positions = {"positions": "nodes"}
        else:
            inputs = {"x": ("targets", layer.qdim)}
            if layer.kdim == layer.vdim:
                inputs["context"] = ("sources", layer.kdim)
            else:
                inputs["key_input"] = ("sources", layer.kdim)
                inputs["value_input"] = ("sources", layer.vdim)
            positions = {"target_positions": "targets", "source_positions": "sources"}
        if layer.edge_dim is not None:
            inputs["edge_attr"] = ("edges", layer.edge_dim)
        if layer.rotary is not None and _takes(layer, "positions"):
            num_axes = getattr(layer.rotary, "num_axes", 1)
            inputs |= {name: (owner, num_axes) for name, owner in positions.items()}
        return inputs | {"score_bias": ("edges", layer.num_heads)}

    def request(self, case: Case, dtype: torch.dtype) -> Request:
        layer = self.layer
        product = layer.score is None or (self.product and layer.edge_dim is None)
        has_sink = isinstance(layer.normalize, SinkSoftmax) and product
        return Request(
            layer.num_heads,
            layer.num_kv_heads,
            layer.head_dim,
            layer.value_dim,
            batch=math.prod(self.lead),
            dtype=dtype,
            device=self.device,
            score_bias=case.bias,
            softcap=layer.softcap is not None,
            lse=has_sink,
            edge_features=layer.edge_dim is not None,
            score=not product,
            normalize=layer.normalize is not None and not has_sink,
            of_rows=of_rows(layer.normalize) is not None,
            cap_bias=layer.cap_bias and case.bias,
        )

    def leaves(self, case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
        T = self.graph.num_targets
        S = self.graph.num_sources
        E = self.graph.num_edges
        sizes = {"targets": T, "nodes": T, "sources": S, "edges": E}
        leaves = {name: parameter.detach() for name, parameter in self.layer.named_parameters()}
        for name, place in self.places.items():
            if name == "score_bias" and not case.bias:
                continue
            shape = (sizes[place.of], self.widths[name])
            if name.endswith("positions"):
                leaves[name] = SPREAD * seeded(name, shape, self.seed)
            elif place.of == "edges":
                leaves[name] = seeded(name, shape, self.seed)
            else:
                leaves[name] = seeded(name, (*self.lead, *shape), self.seed)
        return {
            name: x.to(self.device, dtype).clone().requires_grad_() for name, x in leaves.items()
        }

    def _context(self, leaves: dict[str, Tensor]) -> Any:
        """The context of the layer: one tensor, one for keys and one for values, or None."""
        if "key_input" in leaves:
            return (leaves["key_input"], leaves["value_input"])
        return leaves.get("context")

    def _positions(self, leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """Positions of targets and of sources, (N,) or (N, A) for several axes."""
        if "positions" in leaves:
            targets = leaves["positions"]
            sources = targets
        elif "target_positions" in leaves:
            targets = leaves["target_positions"]
            sources = leaves["source_positions"]
        else:
            return None
        if targets.shape[-1] == 1:
            return targets.squeeze(-1), sources.squeeze(-1)
        return targets, sources

    def undecided(self, dtype: torch.dtype) -> Tensor | None:
        """True for targets whose edges a rounding may change, bool (..., T); None if none."""
        if self.chosen is None:
            return None
        query, key = (x.double() for x in self._chooses_by(dtype))
        right = self._choice(self.chosen, dtype)
        changed = torch.zeros((), dtype=torch.bool, device=self.device)
        for turn in range(NUDGES):
            moved_query = _moved(f"query {turn}", query, dtype)
            moved_key = _moved(f"key {turn}", key, dtype)
            changed = changed | (chosen_edges(self.chosen, moved_query, moved_key) != right).any(-1)
        if not changed.any():
            return None
        into = changed.new_zeros(*changed.shape[:-1], self.graph.num_targets, dtype=torch.int64)
        return into.index_add(-1, self.graph.target, changed.long()) > 0

    def _chooses_by(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The twin's queries and keys in a dtype."""
        leaves = detached(self.leaves(self.cases[0], dtype))
        twin = self._with_parameters("twin", leaves)
        context = self._context(leaves)
        if context is None:
            context = leaves["x"]
        by: tuple[Tensor, Tensor] = twin.chooses_by(leaves["x"], context, self._positions(leaves))
        return by

    def _choice(self, graph: Chosen, dtype: torch.dtype) -> Tensor:
        """True for the union's edges that the twin's queries and keys choose, bool (..., E, H)."""
        if dtype not in self._choices:
            self._choices[dtype] = chosen_edges(graph, *self._chooses_by(dtype))
        return self._choices[dtype]

    def _with_parameters(self, kind: str, leaves: dict[str, Tensor]) -> Any:
        """A private copy of the layer, or its twin, whose parameters are the leaves."""
        dtype = leaves["x"].dtype
        if (kind, dtype) not in self._modules:
            copy: nn.Module
            if kind == "twin":
                copy = LayerTwin(self.layer)
            else:
                copy = deepcopy(self.layer)
            self._modules[kind, dtype] = copy.to(dtype)
        module: nn.Module = self._modules[kind, dtype]
        for name, _ in self.layer.named_parameters():
            path, _, last = name.rpartition(".")
            module.get_submodule(path)._parameters[last] = leaves[name]  # type: ignore[assignment]
        return module

    def run(
        self,
        leaves: dict[str, Tensor],
        case: Case,
        backend: str,
        graph: AttentionGraph | None = None,
    ) -> Result:
        layer = self._with_parameters("layer", leaves)
        layer.backend = backend
        if backend == RUNNING_SUMS:
            if case.bias:
                raise BackendError(
                    "running sums cannot run this call:",
                    ["score_bias: a bias is a number of each edge"],
                )
            layer.backend = "auto"
        layout = self.layout
        if graph is not None:
            layout = graph
        inputs: dict[str, Any] = {
            name: leaves[name] for name in ("edge_attr", "score_bias") if name in leaves
        }
        context = self._context(leaves)
        positions = self._positions(leaves)
        if context is not None:
            inputs["context"] = context
        if positions is not None:
            inputs["positions"] = positions
        if isinstance(layout, PerExample):
            return Result(_in_examples(layer, leaves["x"], layout, inputs))
        return Result(layer(leaves["x"], layout, **inputs))

    def problem(self, leaves: dict[str, Tensor], case: Case, piece: Piece) -> Problem:
        bias = self._bias(leaves, piece)  # first, as a choice gives the twin other parameters
        context = self._context(leaves)
        if context is None:
            context = leaves["x"]
        if isinstance(context, tuple):
            context = tuple(x.index_select(-2, piece.columns) for x in context)
        else:
            context = context.index_select(-2, piece.columns)
        edge_attr = None
        if "edge_attr" in leaves:
            edge_attr = piece.spread(leaves["edge_attr"])
        positions = self._positions(leaves)
        if positions is not None:
            positions = (
                positions[0].index_select(0, piece.targets),
                positions[1].index_select(0, piece.columns),
            )
        # of nodes in their graph, which for an example is its own
        graphs = self.layout._example_graphs
        T = max(1, self.layout.num_targets)
        S = max(1, self.layout.num_sources)
        num_targets = [graphs[target // T].num_targets for target in piece.targets.tolist()]
        numbers = Numbers(piece.targets % T, num_targets, piece.columns % S)
        return self._with_parameters("twin", leaves).problem(
            piece,
            numbers,
            leaves["x"].index_select(-2, piece.targets),
            context,
            edge_attr,
            bias,
            positions,
        )

    def _bias(self, leaves: dict[str, Tensor], piece: Piece) -> Tensor | None:
        """Biases (H or 1, R, U); -inf where a head does not have the edge."""
        bias = leaves.get("score_bias")
        of_head = self._edges_of_heads(leaves)
        if of_head is not None:
            if bias is None:
                bias = leaves["x"].new_zeros(())
            bias = bias.where(of_head, -torch.inf)
        if bias is None:
            return None
        return piece.spread(bias).movedim(-1, -3)

    def _edges_of_heads(self, leaves: dict[str, Tensor]) -> Tensor | None:
        """True for the edges that each head has, bool (..., E, H); None if all have all."""
        if self.chosen is not None:
            x = leaves["x"]
            dtype = x.dtype
            # the narrowest that holds the numbers: the layer's, also where the twin is wider
            for narrow in (torch.float32, torch.float16, torch.bfloat16):
                if torch.equal(x.to(narrow).to(x), x):
                    dtype = narrow
            return self._choice(self.chosen, dtype)
        groups = self.of_heads.groups(self.layer.num_heads)
        if len(groups) == 1:
            return None
        columns: list[Tensor] = []
        for group in groups:
            has = group.graph.contains(self.graph.target, self.graph.source)
            columns += [has] * (group.last - group.first)
        return torch.stack(columns, -1)


def _in_examples(layer: Any, x: Tensor, graph: PerExample, inputs: dict[str, Any]) -> Tensor:
    """The output of a layer on graphs of examples, from the nodes of all of them in one row."""
    B = graph.num_examples
    context = inputs.get("context")
    if isinstance(context, Tensor):
        inputs["context"] = context.unflatten(-2, (B, -1))
    elif context is not None:
        inputs["context"] = tuple(part.unflatten(-2, (B, -1)) for part in context)
    if "positions" in inputs:
        inputs["positions"] = tuple(part.unflatten(0, (B, -1)) for part in inputs["positions"])
    y: Tensor = layer(x.unflatten(-2, (B, -1)), graph, **inputs)
    return y.flatten(-3, -2)


def _moved(name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers (float64), each moved by about a rounding of the largest in a dtype."""
    return x + torch.finfo(dtype).eps * size(x) * seeded(name, tuple(x.shape), 5).to(x)
