"""A layer as a subject: its own parameters, random features, every gradient."""

import inspect
import math
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ..backends import BACKENDS
from ..backends.request import Request
from ..errors import GraphError, OptionError
from ..graph import AttentionGraph
from ..nn import GraphAttention
from .operator import MOST_EDGES
from .sample import EXHAUSTIVE, Sample
from .subject import Case, Found, Leaf, Problem, seeded
from .twins import DenseGraphAttention


def _takes(layer: GraphAttention, argument: str) -> bool:
    parameters = inspect.signature(layer.forward).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


class LayerSubject:
    """A :class:`graphattn.nn.GraphAttention` on a graph, without dropout.

    Self-attention where the graph is square and the layer's inputs have one width; else targets and context apart.
    """

    output_axis = -2
    gives_zero = False
    owns_graph = True
    own_code: str | None = "the layer"

    def __init__(self, layer: GraphAttention, graph: AttentionGraph, *, seed: int = 0) -> None:
        if layer.score is not None or layer.normalize is not None:
            raise OptionError(
                "the twin of a layer knows the scaled dot product and softmax only; this layer has a score or "
                "normalisation of its own"
            )
        self.layer, self.seed = deepcopy(layer).eval().requires_grad_(False), seed
        self.device = layer.q_proj.weight.device
        if not graph.is_rule and graph.device != self.device:
            raise GraphError(f"the layer is on {self.device} and the graph on {graph.device}; use graph.to(...)")
        self.graph = graph.to(self.device)
        self.name, self.backends = repr(layer), tuple(BACKENDS)
        self.lead = (2,) if graph.num_targets * graph.num_sources <= EXHAUSTIVE else ()
        self.places, self.widths = self._inputs(layer)
        self.cases: tuple[Case, ...] = (Case("plain"), Case("score_bias", bias=True))
        notes = []
        if layer.dropout > 0.0:
            notes.append(f"measured without the layer's dropout of {layer.dropout}")
        if not _takes(layer, "score_bias"):
            self.cases = self.cases[:1]
            notes.append("no score_bias: the layer's forward does not take one")
        elif graph.num_edges > MOST_EDGES:
            self.cases = self.cases[:1]
            notes.append(f"no score_bias: {graph.num_edges:,} edges (limit {MOST_EDGES:,})")
        self.notes = tuple(notes)
        self._modules: dict[tuple[str, torch.dtype], Any] = {}

    def _inputs(self, layer: GraphAttention) -> tuple[dict[str, Leaf], dict[str, int]]:
        """Where each input stands, and its width."""
        widths = {"x": layer.qdim}
        if self.graph.is_square and layer.qdim == layer.kdim == layer.vdim:
            places = {"x": Leaf("nodes", -2)}
        elif layer.kdim == layer.vdim:
            places = {"x": Leaf("targets", -2), "context": Leaf("sources", -2)}
            widths["context"] = layer.kdim
        else:
            places = {"x": Leaf("targets", -2), "key_input": Leaf("sources", -2), "value_input": Leaf("sources", -2)}
            widths |= {"key_input": layer.kdim, "value_input": layer.vdim}
        if layer.edge_dim is not None:
            places["edge_attr"] = Leaf("edges", -2)
            widths["edge_attr"] = layer.edge_dim
        return places | {"score_bias": Leaf("edges", -2)}, widths | {"score_bias": layer.num_heads}

    def request(self, case: Case, dtype: torch.dtype) -> Request:
        layer = self.layer
        return Request(
            layer.num_heads,
            layer.num_kv_heads,
            layer.head_dim,
            layer.head_dim,
            batch=math.prod(self.lead),
            dtype=dtype,
            device=self.device,
            score_bias=case.bias,
            softcap=layer.softcap is not None,
            edge_features=layer.edge_dim is not None,
        )

    def leaves(self, case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
        sizes = {
            "targets": self.graph.num_targets,
            "nodes": self.graph.num_targets,
            "sources": self.graph.num_sources,
            "edges": self.graph.num_edges,
        }
        made: dict[str, Tensor] = {}
        for name, place in self.places.items():
            if name == "score_bias" and not case.bias:
                continue
            lead = () if place.of == "edges" else self.lead
            made[name] = seeded(name, (*lead, sizes[place.of], self.widths[name]), self.seed)
        parameters = {name: parameter.detach() for name, parameter in self.layer.named_parameters()}
        return {name: x.to(self.device, dtype).clone().requires_grad_() for name, x in {**made, **parameters}.items()}

    def _context(self, leaves: dict[str, Tensor]) -> Any:
        if "key_input" in leaves:
            return leaves["key_input"], leaves["value_input"]
        return leaves.get("context")

    def _with_parameters(self, kind: str, leaves: dict[str, Tensor]) -> Any:
        """A private copy of the layer, or its twin, whose parameters are the leaves."""
        dtype = leaves["x"].dtype
        if (kind, dtype) not in self._modules:
            made = DenseGraphAttention(self.layer.state_dict(), self.layer.num_heads) if kind == "twin" else self.layer
            self._modules[kind, dtype] = deepcopy(made).to(dtype)
        module: nn.Module = self._modules[kind, dtype]
        for name, _ in self.layer.named_parameters():
            path, _, last = name.rpartition(".")
            module.get_submodule(path)._parameters[last] = leaves[name]  # type: ignore[assignment]
        return module

    def run(self, leaves: dict[str, Tensor], case: Case, backend: str, graph: AttentionGraph | None = None) -> Found:
        layer = self._with_parameters("layer", leaves)
        layer.backend = backend
        graph = self.graph if graph is None else graph
        inputs: dict[str, Any] = {name: leaves[name] for name in ("edge_attr", "score_bias") if name in leaves}
        context = self._context(leaves)
        if context is not None:
            inputs["context"] = context
        return Found(layer(leaves["x"], graph, **inputs))

    def problem(self, leaves: dict[str, Tensor], case: Case, piece: Sample) -> Problem:
        twin = self._with_parameters("twin", leaves)
        x = leaves["x"].index_select(-2, piece.targets)
        context = self._context(leaves)
        context = leaves["x"] if context is None else context
        if isinstance(context, tuple):
            context = (context[0].index_select(-2, piece.columns), context[1].index_select(-2, piece.columns))
        else:
            context = context.index_select(-2, piece.columns)
        edge_attr = piece.spread(leaves["edge_attr"]) if "edge_attr" in leaves else None
        query, key, value, edge = twin.project(x, context, edge_attr)
        return Problem(
            query,
            key,
            value,
            piece.mask,
            twin.head_dim**-0.5 if self.layer.scale is None else self.layer.scale,
            bias=piece.spread(leaves["score_bias"]).movedim(-1, -3) if case.bias else None,
            softcap=self.layer.softcap,
            edge=edge,
            finish=lambda heads: twin.finish(heads, x),
        )
