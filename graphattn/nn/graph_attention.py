"""The layer: projections, attention on the graph, and the projection back.

A PyG ``MessagePassing`` with torch's names.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import check_shape, one_of, width
from ..backends import BACKENDS, EdgeWeights
from ..backends.edge_attention import EdgeAttention
from ..backends.inputs import bias_of_edges, biases_of_parts, check_numbers, inputs_of
from ..backends.rows import is_changed
from ..backends.run import run
from ..errors import OptionError, ShapeError
from ..graph import AttentionGraph, Pattern, PerExample, PerHead
from ..graph.deferred.chosen import Chosen
from ..graph.foreign_names import names_checked
from ..graph.like import GraphLike
from ..kernels.plain.sums import gather
from ..operands import Inputs, Outputs, with_weights
from ..plans.edge_tensors import EdgeTensors
from . import loaders
from .arguments import (
    BIASED,
    Pair,
    graph_of,
    names_of_biased,
    norm_of_heads,
    of_size,
)
from .cache import KeyValueCache
from .convolution import from_conv
from .geometry import relative_positions
from .lazy_widths import UNKNOWN, complete, draw, linear
from .linear_attention import linear as in_linear_time
from .normalizers import Normalizer, SinkSoftmax, make_normalizer, optional_arguments
from .positions import pair_of_positions
from .root_weight import RootWeight
from .rotary import Rotary, check_rotary
from .scores import Score, ScoreFunction, make_score
from .scores.base import LayerScore
from .sources import Sources, of_context, read

AnyGraph = AttentionGraph | PerHead | PerExample | Chosen | EdgeTensors

#: ``edge_to``, ``cap_bias`` and ``asks`` of :class:`Inputs` that need no ``replace`` after the check.
_DEFAULTS = ("both", False, ())


def _draw(layer: nn.Module, given: Sequence[nn.Module]) -> None:
    """Fresh projections of a layer; the modules that it was given keep theirs."""
    kept = {inner for module in given for inner in module.modules()}
    for module in layer.modules():
        if isinstance(module, nn.Linear) and module not in kept:
            draw(module)


class GraphAttention(EdgeAttention):
    r"""Multi-head attention in which target ``t`` reads the sources ``s`` with an edge ``s -> t``.

    .. math:: y_t = W_o \, \Vert_h \sum_{s \in \mathcal{N}(t)} \alpha^h_{ts} \, (W_v x_s + W_e a_{ts}), \qquad
              \alpha^h_{ts} = \mathrm{softmax}_s \, \langle W_q x_t, W_k x_s + W_e a_{ts} \rangle / \sqrt{D}

    The same layer is an encoder's on a full graph, a decoder's on a causal one, cross-attention on
    a bipartite one.

    Args:
        embed_dim: C, width of the output, and of the inputs unless given.
        num_heads: H.
        qdim: Width of ``x``; -1 for that of the first call, here and in ``kdim``, ``vdim``
            and ``edge_dim``.
        kdim: Width of the context that keys are made from.
        vdim: Width of the context that values are made from.
        head_dim: D, ``embed_dim / num_heads`` by default.
        value_dim: Width of a head of the value, D by default; with edge features it must be D.
        num_kv_heads: H_kv, heads of key and value; a divisor of H, and H by default.
        edge_dim: F, width of edge features, which are projected and added to key and value; none by
            default.
        edge_to: Operands to which they are added: "both", "key" (or a score that reads them) or
            "value".
        bias: True if the projections have a bias (that of edge features never has), or the names
            of those that do, of "q", "k", "v" and "out".
        out_proj: True if the heads' outputs are projected; needs ``embed_dim = H * value_dim`` if
            not.
        root_weight: True if a projection of ``x`` is added to the output, as PyG's
            ``TransformerConv`` does.
        score: The score of a target's query and a source's key: "scaled_dot"; one of "dot",
            "cosine", "general", "additive", "mlp", "gaussian", "subtraction"; a module of
            :mod:`graphattn.nn.scores`; or any function ``score(query, key, edge_attr)`` of edges,
            from (..., E, H, D) twice and (..., E, F) to (..., E, H). A score reads edge features
            itself, and the layer adds them to the value only: by a projection, or in the encoding
            of the score (:class:`graphattn.nn.scores.Subtraction`: offsets of points). Dot, cosine
            and general run on every backend, the others on ``edges`` (CPU) or edge by edge.
        normalize: The weights from scores: "softmax"; "sink", beside a learned sink; "sigmoid"
            (of the score less the logarithm of the target's degree, see
            :class:`graphattn.nn.normalizers.Sigmoid`), "hard", "sparsemax", "sum", "none"; or any
            function
            ``normalize(score, target, num_targets)`` of edges, which may also take ``source`` (E,)
            and ``edge_attr`` (..., E, F) by these names; of a :class:`PerExample` each example's
            edges apart, with the numbers of nodes that they have alone, and of a shard its own
            edges, with the numbers of the whole graph. Softmax and sink run on every backend, the
            others on ``edges`` (CPU) or edge by edge; with dot products sigmoid, sum and none on
            ``dense`` and ``tiles``, too. Sum and none of a dot product cost O(N) if targets read
            all sources, or all up to a last one (see :class:`FeatureScore`).
        scale: Factor on the dot product, ``D ** -0.5`` by default.
        softcap: Bound on the scores, > 0; none by default.
        cap_bias: True if softcap bounds scores with their bias, as in x-transformers, rather than
            the products before it, as in Gemma 2; requires ``softcap``. Runs on ``edges`` (CPU) or
            edge by edge.
        qk_norm: Norm of every head's query and key, before they are rotated and edge features are
            added: "rms", "layer", an epsilon (of RMS), or a module that is copied for each of the
            two; none by default.
        gate: True if a sigmoid of a projection of ``x`` is multiplied with the heads' outputs, as
            in AlphaFold.
        rotary: Rotation of queries and keys by their positions; see :class:`Rotary`.
        dropout: Probability of dropping a weight, per edge and head, in training.
        backend: "auto", or the backend that must run. PyG's explainers and message hooks need
            message passing.

    Source: Vaswani et al. 2017, section 3.2.2; names as ``torch.nn.MultiheadAttention``. Edge
    features and root weight as in PyG's ``TransformerConv``, which lacks the output projection.

    Example:
        >>> import torch, graphattn as ga
        >>> layer = GraphAttention(embed_dim=8, num_heads=2)
        >>> layer(torch.randn(5, 8), ga.graphs.causal(5)).shape
        torch.Size([5, 8])
    """

    @names_checked
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        qdim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        num_kv_heads: int | None = None,
        edge_dim: int | None = None,
        edge_to: str = "both",
        bias: bool | Sequence[str] = True,
        out_proj: bool = True,
        gate: bool = False,
        root_weight: bool = False,
        score: str | ScoreFunction = "scaled_dot",
        normalize: str | Normalizer = "softmax",
        scale: float | None = None,
        softcap: float | None = None,
        cap_bias: bool = False,
        qk_norm: float | str | nn.Module | None = None,
        rotary: Rotary | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        """A layer with fresh parameters; for the arguments see :class:`GraphAttention`."""
        super().__init__()
        one_of(backend, "backend", ("auto", *BACKENDS))
        check_numbers(scale, softcap, dropout)
        self._set_sizes(
            embed_dim, num_heads, (qdim, kdim, vdim), head_dim, value_dim, num_kv_heads, edge_dim
        )
        self.edge_to = one_of(edge_to, "edge_to", ("both", "key", "value"))
        self.dropout = dropout
        self.backend = backend
        self.rotary = rotary
        self.scale = scale
        self.softcap = softcap
        self.cap_bias = cap_bias
        biased = names_of_biased(bias)
        output_width = self.num_heads * self.value_dim
        self.q_proj = linear(self.qdim, self.num_heads * self.head_dim, "q" in biased)
        self.k_proj = linear(self.kdim, self.num_kv_heads * self.head_dim, "k" in biased)
        self.v_proj = linear(self.vdim, self.num_kv_heads * self.value_dim, "v" in biased)
        self.gate_proj: nn.Linear | None = None
        if gate:
            self.gate_proj = linear(self.qdim, output_width, True)
        self.out_proj: nn.Linear | None = None
        if out_proj:
            self.out_proj = nn.Linear(output_width, self.embed_dim, "out" in biased)
        self.skip: RootWeight | None = None
        if root_weight:
            self.skip = RootWeight(self.qdim, self.embed_dim, "out" in biased)
        score_edge_dim = self.edge_dim
        if self.edge_to == "value":
            score_edge_dim = None
        self.score = make_score(score, self.num_heads, self.head_dim, score_edge_dim)
        # None if the score alone encodes or reads edge features
        self.edge_proj = None
        by_score = self.score is not None and self.edge_to == "key"
        if self.edge_dim is not None and self.delta is None and not by_score:
            self.edge_proj = linear(self.edge_dim, self.k_proj.out_features, False)
        self.normalize = make_normalizer(normalize, self.num_heads)
        self._asks = optional_arguments(self.normalize)
        check_rotary(rotary, self.head_dim)
        self._check_together()
        given = [part for part in (score, normalize) if isinstance(part, nn.Module)]
        _draw(self, given)
        # after the draw, which is not of a given module
        self.q_norm = norm_of_heads(qk_norm, self.head_dim)
        self.k_norm = norm_of_heads(qk_norm, self.head_dim)

    def _set_sizes(
        self,
        embed_dim: int,
        num_heads: int,
        inputs: tuple[int | None, int | None, int | None],
        head_dim: int | None,
        value_dim: int | None,
        num_kv_heads: int | None,
        edge_dim: int | None,
    ) -> None:
        self.embed_dim = width(embed_dim, "embed_dim")
        self.num_heads = width(num_heads, "num_heads")
        if head_dim is None and self.embed_dim % self.num_heads:
            sizes = f"{self.embed_dim} and {self.num_heads}"
            raise OptionError(
                f"embed_dim must be a multiple of num_heads, got {sizes}; or give head_dim"
            )

        def size(value: int | None, name: str, default: int) -> int:
            if value is None:
                return default
            if value == UNKNOWN and name in ("qdim", "kdim", "vdim"):
                return UNKNOWN
            return width(value, name)

        self.num_kv_heads = size(num_kv_heads, "num_kv_heads", self.num_heads)
        self.qdim, self.kdim, self.vdim = (
            size(value, name, self.embed_dim)
            for value, name in zip(inputs, ("qdim", "kdim", "vdim"), strict=True)
        )
        self.head_dim = size(head_dim, "head_dim", self.embed_dim // self.num_heads)
        self.value_dim = size(value_dim, "value_dim", self.head_dim)
        if self.num_heads % self.num_kv_heads:
            raise OptionError(
                f"num_kv_heads must divide num_heads = {self.num_heads}, got {self.num_kv_heads}"
            )
        self.edge_dim = edge_dim
        if edge_dim not in (None, UNKNOWN):
            self.edge_dim = width(edge_dim, "edge_dim")
        if UNKNOWN in (self.qdim, self.kdim, self.vdim, self.edge_dim):
            self.register_forward_pre_hook(complete, with_kwargs=True)

    def _check_together(self) -> None:
        """Refuse options that exclude each other."""
        output_width = self.num_heads * self.value_dim
        if self.out_proj is None and output_width != self.embed_dim:
            raise OptionError(
                f"without out_proj the output has width H * D_v = {output_width}, but "
                f"embed_dim={self.embed_dim}"
            )
        if self.edge_dim is not None:
            self._check_edge_to()
        elif self.edge_to != "both":
            raise OptionError(
                f"edge_to={self.edge_to!r} requires edge_dim, the width of edge features"
            )
        if self.cap_bias and self.softcap is None:
            raise OptionError("cap_bias=True requires softcap")
        if self.scale is not None and self.score is not None:
            raise OptionError(
                f"scale={self.scale} requires the dot product; a score has its own factor"
            )
        if "edge_attr" in self._asks and self.delta is not None:
            raise OptionError(
                "normalize needs edge_attr, which the score encodes by its delta; use source"
            )

    def _check_edge_to(self) -> None:
        """Refuse an operand that edge features cannot be added to."""
        if self.edge_to == "key":
            if isinstance(self.score, Score) and self.score.edge_dim is None:
                name = type(self.score).__name__
                raise OptionError(f'edge_to="key", but {name} reads no edge features; try "value"')
        elif self.value_dim != self.head_dim:
            raise OptionError(
                f"edge features need key and value of one width, got head_dim={self.head_dim} "
                f"and value_dim={self.value_dim}"
            )

    @property
    def delta(self) -> nn.Module | None:
        """The score's encoder of edge features, in place of a projection."""
        if not isinstance(self.score, Score):
            return None
        delta = getattr(self.score, "delta", None)
        if isinstance(delta, nn.Module):
            return delta
        return None

    def reset_parameters(self) -> None:
        """Xavier-uniform projections and zero biases, as in ``nn.MultiheadAttention``."""
        super().reset_parameters()
        _draw(self, ())

    @classmethod
    def from_torch(cls, mha: nn.MultiheadAttention) -> "GraphAttention":
        """The layer with the weights and outputs of an ``nn.MultiheadAttention``.

        On a full graph, or on ``ga.from_mask(mask, "mha")`` of the mask that it is called with, with
        ``heads=`` if that has three dimensions. The layer takes (B, N, C) whatever ``batch_first``
        says: transpose the module's (N, B, C).
        """
        return loaders.from_torch(cls, mha)

    @classmethod
    def from_pyg(cls, conv: nn.Module) -> "GraphAttention":
        """The layer with the weights and outputs of a PyG convolution that attends.

        One of ``TransformerConv``, ``GATConv``, ``GATv2Conv`` and ``PointTransformerConv``, on the
        same edges; self-loops are the graph's.
        """
        return loaders.from_pyg(cls, conv)

    @classmethod
    def from_conv(
        cls, conv: nn.Module, size: tuple[int, ...] | int, *, causal: bool = False
    ) -> tuple["GraphAttention", PerHead]:
        """The layer that equals a convolution, and the graph of each head.

        There is a head for each place of the kernel. A head's targets read one source each, so
        that the weight is 1 whatever queries and keys are; the kernel is the output projection. It
        trains as the convolution does: values are a fixed identity, zeros of the padding are
        targets without a source. Zeros between groups are trained, too.

        Args:
            conv: An ``nn.Conv1d``, ``nn.Conv2d`` or ``nn.Conv3d``, with any stride, dilation,
                groups and padding.
            size: Lengths of its input, (height, width) for images; nodes are numbered row by row,
                ``x.flatten(2).mT`` of torch's (B, C, height, width).
            causal: Pad axis 0, of a sequence or of time, before its start alone, by
                ``dilation * (kernel - 1)``; requires ``conv.padding`` 0 there, and ``padding_mode``
                "zeros" or "replicate".
        Returns:
            The layer and its :class:`graphattn.PerHead`. Where targets are fewer than sources, as
            with a stride, call ``layer(x[..., :graph.num_targets, :], graph, context=x)``: queries
            have no influence.
        Raises:
            OptionError: If ``conv`` is of another class, or ``size`` or ``causal`` does not fit it.
        Source:
            Cordonnier et al. 2020, theorem 1. *What differs:* a head's graph has the one edge that
            their attention by relative positions reaches in the limit, so that borders and strides
            are equal, too.
        Example:
            >>> import torch
            >>> conv, image = torch.nn.Conv2d(3, 4, 3, padding=1), torch.randn(1, 3, 5, 7)
            >>> layer, graph = GraphAttention.from_conv(conv, (5, 7))
            >>> nodes, expected = image.flatten(2).mT, conv(image).flatten(2).mT  # (1, 35, 3), (1, 35, 4)
            >>> len(graph.graphs), torch.allclose(layer(nodes, graph), expected, atol=1e-5)
            (9, True)
        """
        return from_conv(cls, conv, size, causal)

    @names_checked
    def forward(
        self,
        x: Tensor | Pair,
        graph: AnyGraph | Pattern | Sequence[Any] | Tensor | None = None,
        *,
        context: Tensor | Pair | KeyValueCache | None = None,
        edge_attr: Tensor | None = None,
        score_bias: Tensor | dict[GraphLike, Tensor | None] | Callable[..., Any] | None = None,
        positions: Tensor | Pair | None = None,
        cache: KeyValueCache | None = None,
        size: tuple[int, int] | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, EdgeWeights]:
        """Attention on the graph; arguments after the graph are passed by name.

        Args:
            x: The targets' features (..., T, qdim); or PyG's pair (sources, targets), and then no
                context. Targets of None have no features: their queries are 0.
            graph: T targets and S sources; :class:`graphattn.PerHead`, a
                :class:`graphattn.graphs.Pattern`, or :class:`graphattn.nn.EdgeTensors`; a
                :class:`graphattn.PerExample` or a list, a graph for each example of x (..., B, T,
                C); or an ``edge_index`` (2, E), or PyG's sparse ``adj_t`` (T, S), checked at every
                call.
            context: The sources' features (..., S, kdim), the targets' own by default; or a pair of
                them, one for keys (..., S, kdim) and one for values (..., S, vdim); or a result of
                :meth:`hold`.
            edge_attr: Edge features (..., E, F) in the graph's edge order, or weights (E,) where F
                is 1; needed exactly if ``edge_dim`` was given.
            score_bias: As in :func:`graphattn.attention`. The nodes that ALiBi and T5's count are
                those in the cache, then those of ``x``.
            positions: For a layer with ``rotary``: those of the targets; with a context a pair (of
                targets, of sources); with a pair as ``x`` a pair in its order. By default the nodes
                count from 0, after those in the cache. For a layer with ``edge_dim`` and no ``rotary``: coordinates (N, edge_dim),
                whose :func:`relative_positions` are the edge features, in place of ``edge_attr``;
                of any floating point dtype, which the differences are taken in.
            cache: Keys and values of earlier tokens. The graph's sources are these and then the
                nodes of ``x``, which a successful call adds to the cache; it excludes a context. A
                cache is for one layer.
            size: PyG's (S, T), of an ``edge_index``; by default those of the features.
            return_weights: Also return the :class:`EdgeWeights`.

        Returns:
            (..., T, C), or that and the weights.

        Raises:
            ShapeError: If a tensor does not fit the layer or the graph.
            OptionError: If edge features come without ``edge_dim`` or the
                reverse, or a cache belongs to another layer.
            GraphError: If ``graph`` is missing or of another type, or an ``edge_index`` that
                repeats an edge.
        """
        if size is not None:
            graph = of_size(graph, size, self.backend)
        features = x
        x, sources = read(self, x, context, cache, graph)
        sized = graph_of(graph, x, sources, self.backend)
        if positions is not None:
            if isinstance(features, tuple | list) and isinstance(positions, tuple | list):
                positions = positions[::-1]  # of targets, of sources
            edge_attr, positions = self._offsets(sized, edge_attr, positions)
        sized, query, (key, value) = self._projected(sized, x, sources, positions)
        score_bias = sources.bias_of(score_bias, x.shape[-2])
        inputs = self._inputs(sized, query, key, value, score_bias, edge_attr)
        outputs = self._attend(sized, inputs, return_weights)
        y = self._projected_back(outputs.output, x)
        sources.keep(self, key, value)
        if return_weights:
            return y, EdgeWeights.of(sized, outputs)
        return y

    def _offsets(
        self, graph: Any, edge_attr: Tensor | None, positions: Tensor | Pair
    ) -> tuple[Tensor | None, Tensor | Pair | None]:
        """Edge features, and positions to rotate by.

        Of a layer that does not rotate, positions are coordinates: the features are their offsets.
        """
        if self.rotary is not None or self.edge_dim is None:
            return edge_attr, positions
        if edge_attr is not None:
            return edge_attr, positions
        of_targets, of_sources = pair_of_positions(positions)
        offsets = relative_positions(graph, of_sources, of_targets)
        axes = offsets.shape[-1]
        if axes != self.edge_dim:
            raise ShapeError(
                f"positions have {axes} axes, and their offsets are the edge features of a layer with "
                f"edge_dim={axes}; this one has edge_dim={self.edge_dim}: pass edge_attr"
            )
        # cast after the difference: float32 of a place far from the origin is coarse
        return offsets.to(self.q_proj.weight.dtype), None

    def _projected(
        self, graph: Any, x: Tensor, sources: Sources, positions: Tensor | Pair | None
    ) -> tuple[Any, Tensor, Pair]:
        """The graph, queries (..., T, H, D), and keys and values (..., S, H_kv, D), rotated."""
        of_targets = of_sources = None
        if self.rotary is not None or positions is not None:
            # positions of targets and of sources, for a layer that rotates them
            if self.rotary is None:
                raise OptionError("positions were given, but the layer was built without rotary")
            of_targets, of_sources = sources.positions(graph, positions, x.shape[-2])
        if torch._C._is_any_autocast_enabled() and graph._is_constant:
            x = sources.cast_with(x, self)
        query = partial(self._query, x, of_targets)
        keys = partial(sources.projected, self, of_sources)
        return graph.projected(
            query, keys, sources.key, sources.value, partial(sources.numbers, self)
        )

    def _inputs(
        self,
        graph: AnyGraph,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_bias: Tensor | dict[GraphLike, Tensor | None] | Callable[..., Any] | None,
        edge_attr: Tensor | None,
    ) -> Inputs:
        """The checked operands of attention, with edge features as the score encodes them."""
        weight = None
        last = None
        if edge_attr is not None or self.edge_dim is not None:
            edge_attr = self._checked_features(edge_attr, graph)
            if isinstance(score_bias, dict):
                score_bias = biases_of_parts(score_bias, query, graph).on(graph.union())
            elif callable(score_bias):
                score_bias = score_bias(graph)
            if score_bias is not None:
                bias = bias_of_edges(graph.of_edges(score_bias), query, graph)
                # edge features (..., E, F), 0 where a bias of -inf (..., E, H) removes an edge
                # from all heads
                edge_attr = edge_attr.masked_fill((bias == -torch.inf).all(-1, keepdim=True), 0.0)
            edge_attr, weight, value, last = self._encoded(edge_attr, value)
        score = None
        scale = self.scale
        if self.score is not None:
            query, key, scale, score = self._scored(query, key, edge_attr, last)
        dropout_p = self.dropout
        if not self.training:
            dropout_p = 0.0
        inputs = inputs_of(
            query,
            key,
            value,
            graph,
            score_bias,
            scale,
            self.softcap,
            dropout_p,
            edge_attr,
            weight,
            score,
            self.normalize,
        )
        if (self.edge_to, self.cap_bias, self._asks) != _DEFAULTS:
            inputs = replace(inputs, edge_to=self.edge_to, cap_bias=self.cap_bias, asks=self._asks)
        return inputs

    def _encoded(
        self, edge_attr: Any, value: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, nn.Linear | None]:
        """Edge features, the weight that projects them to the value, the value, and a layer.

        The weight is None if features are added as they are. The layer is the last of the score's
        encoder, if the weight is its own.
        """
        if self.edge_proj is not None:
            is_linear = type(self.edge_proj) is nn.Linear and self.edge_proj.bias is None
            if not is_linear or is_changed(self.edge_proj):
                features = _in_heads(self.edge_proj, edge_attr, self.num_kv_heads, self.head_dim)
                group = self.num_heads // self.num_kv_heads
                return features.repeat_interleave(group, -2).flatten(-2), None, value, None
            weight = self.edge_proj.weight.unflatten(0, (self.num_kv_heads, self.head_dim))
            return edge_attr, weight, value, None
        if self.delta is None:  # the score's alone
            return edge_attr, None, value, None
        heads = (self.num_heads, self.head_dim)
        parts = None
        if self.num_kv_heads == self.num_heads and isinstance(self.score, Score):
            parts = self.score.delta_in_parts()
        if parts is not None:
            function, last = parts
            if self.edge_to != "key":
                # a constant of all edges can be added to the sources
                value = value + last.bias.unflatten(0, heads)
            return function(edge_attr), last.weight.unflatten(0, heads), value, last
        encoded = self.delta(edge_attr)
        shape = (*edge_attr.shape[:-1], self.num_heads * self.head_dim)
        got: object = type(encoded).__name__
        if isinstance(encoded, Tensor):
            got = tuple(encoded.shape)
        if got != shape:
            raise ShapeError(
                f"the score's delta must return (..., edges, heads * head_dim) = {shape}, got {got}"
            )
        return encoded, None, value, None

    def hold(self, context: Tensor | Pair, positions: Tensor | None = None) -> KeyValueCache:
        """Keys and values of a context, computed once for several calls.

        Pass the result as ``context=layer.hold(...)``.

        Args:
            context: As in :meth:`forward`.
            positions: Positions of the sources, for a layer with ``rotary``; they count from 0 by
                default.

        Example:
            >>> import torch, graphattn as ga
            >>> layer, x, memory = GraphAttention(8, 2), torch.randn(5, 8), torch.randn(7, 8)
            >>> held, graph = layer.hold(memory), ga.graphs.cross(5, 7)
            >>> torch.equal(layer(x, graph, context=held), layer(x, graph, context=memory))
            True
        """
        sources = of_context(self, context)
        of_sources = None
        if self.rotary is not None:
            of_sources = pair_of_positions(positions)[1]
        cache = KeyValueCache()
        cache.keep(*sources.projected(self, of_sources, sources.key, sources.value), self)
        return cache

    def _query(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Queries (..., T, H, D), rotated; 0 of targets without features (..., T, 0)."""
        if x.shape[-1] == 0:
            return x.new_zeros(*x.shape[:-1], self.num_heads, self.head_dim)
        query = _in_heads(self.q_proj, x, self.num_heads, self.head_dim)
        if self.q_norm is not None:
            query = self.q_norm(query)
        if self.rotary is not None:
            query = self.rotary(query, positions)
        return query

    def keys_of(self, key_input: Tensor, value_input: Tensor, positions: Tensor | None) -> Pair:
        """Keys (..., S, H_kv, D), rotated, and values (..., S, H_kv, D_v)."""
        heads = self.num_kv_heads
        key = value = _in_heads(self.k_proj, key_input, heads, self.head_dim)
        if self.v_proj is not self.k_proj or value_input is not key_input:
            value = _in_heads(self.v_proj, value_input, heads, self.value_dim)
        if self.k_norm is not None:
            key = self.k_norm(key)
        if self.rotary is not None:
            key = self.rotary(key, positions)
        return key, value

    def _scored(
        self, query: Tensor, key: Tensor, edge_attr: Tensor | None, last: nn.Linear | None
    ) -> tuple[Tensor, Tensor, float | None, ScoreFunction | None]:
        """Query, key and factor of the dot product; and the score, if it is not a dot product."""
        assert self.score is not None
        if isinstance(self.score, Score) and (edge_attr is None or self.edge_to == "value"):
            dot = self.score.as_dot(query, key)
            if dot is not None:
                return *dot, 1.0, None
        return query, key, self.scale, LayerScore(self.score, last)

    def _attend(self, graph: Any, inputs: Inputs, weights: bool) -> Outputs:
        """Attention by messages if observed, in linear time if possible, else on a backend."""
        if self.is_observed():
            return self.observed(graph, inputs)
        if self.normalize is None:
            return run(graph, inputs, self.backend, weights, False)
        if isinstance(self.normalize, SinkSoftmax) and inputs.score is None:
            plain = replace(inputs, normalize=None)
            softmax = run(graph, plain, self.backend, weights, lse=True)
            return with_sink(self.normalize, softmax, inputs, graph)
        if self.backend == "auto" and graph._is_fixed:
            summed = in_linear_time(graph, inputs, weights)
            if summed is not None:
                return Outputs(summed)
        return run(graph, inputs, self.backend, weights, False)

    def _projected_back(self, output: Tensor, x: Tensor) -> Tensor:
        """The features (..., T, C) of the heads' outputs (..., T, H, D_v)."""
        y = output.flatten(-2)
        if self.gate_proj is not None:
            y = y * torch.sigmoid(self.gate_proj(x))
        if self.out_proj is not None:
            y = self.out_proj(y)
        if self.skip is not None:
            y = self.skip(y, x)
        return y

    def _checked_features(self, edge_attr: Any, graph: Any) -> Tensor:
        """Edge features (..., E, F), or an error for those that do not fit."""
        edge_attr = graph.of_edges(edge_attr)
        if self.edge_dim is None:
            raise OptionError("edge_attr was given, but the layer was built without edge_dim")
        size = (graph.num_edges, self.edge_dim)
        shape = f"(..., {size[0]}, {size[1]}), one row per edge in the graph's edge order"
        if edge_attr is None:
            raise OptionError(
                f"the layer was built with edge_dim={self.edge_dim}: pass edge_attr {shape}"
            )
        if size[1] == 1 and edge_attr.shape == size[:1]:  # a weight of each edge
            edge_attr = edge_attr.unsqueeze(-1)
        check_shape(
            edge_attr, "edge_attr", (..., *size), "one row per edge in the graph's edge order"
        )
        return edge_attr

    def _biased(self) -> bool | tuple[str, ...]:
        """The names of projections with a bias; True for all, False for none."""
        present = {
            name: getattr(linear, "bias", None) is not None  # a wrapper may have none
            for name, linear in zip(
                BIASED, (self.q_proj, self.k_proj, self.v_proj, self.out_proj), strict=True
            )
            if linear is not None
        }
        if len(set(present.values())) == 1:
            return present["q"]
        return tuple(name for name in present if present[name])

    def __repr__(self) -> str:
        defaults: dict[str, Any] = dict.fromkeys(("qdim", "kdim", "vdim"), self.embed_dim)
        defaults |= {"head_dim": self.embed_dim / self.num_heads, "value_dim": self.head_dim}
        defaults |= {"num_kv_heads": self.num_heads, "score": None, "normalize": None}
        values: dict[str, Any] = {
            "bias": self._biased(),
            "out_proj": self.out_proj is not None,
            "gate": self.gate_proj is not None,
            "root_weight": self.skip is not None,
            "qk_norm": _name_of_norm(self.q_norm),
            "score": _name(self.score),
            "normalize": _name(self.normalize),
        }
        extra = ""
        for name, option in list(signature(GraphAttention).parameters.items())[2:]:
            if name in values:
                value = values[name]
            else:
                value = getattr(self, name)
            if value != defaults.get(name, option.default):
                extra += f", {name}={value!r}"
        return f"GraphAttention(embed_dim={self.embed_dim}, num_heads={self.num_heads}{extra})"


def _name_of_norm(norm: nn.Module | None) -> Any:
    """The argument that made it: a word or an epsilon, where that makes the same norm."""
    if not isinstance(norm, nn.RMSNorm | nn.LayerNorm):
        return norm
    short: Any = "layer"
    if isinstance(norm, nn.RMSNorm):
        short = norm.eps
    if repr(norm_of_heads(short, norm.normalized_shape[-1])) == repr(norm):
        return short
    return norm


def _in_heads(linear: Any, x: Tensor, heads: int, width: int) -> Tensor:
    """A projection (..., N, heads, width) of features."""
    return torch.unflatten(linear(x), -1, (heads, width))


def with_sink(sink: SinkSoftmax, softmax: Outputs, inputs: Inputs, graph: AnyGraph) -> Outputs:
    """The outputs of plain softmax, times the share that a source beside the graph leaves."""
    assert softmax.lse is not None
    share, more = sink.beside(softmax.lse, inputs)
    alpha = softmax.alpha
    outputs = Outputs(softmax.output * share.unsqueeze(-1).to(softmax.output.dtype))
    if alpha is not None:
        target = graph.union().target
        alpha = alpha * gather(graph._rows_on_union(share), target.to(share.device), -2)
        outputs = replace(outputs, alpha=alpha)
        if alpha.requires_grad and softmax.total is not None:
            outputs = with_weights(softmax, alpha)
    if more is None:
        return outputs
    return replace(outputs, output=outputs.output + more.to(outputs.output.dtype))


def _name(part: Any) -> str | None:
    """The name of a score or normalisation in ``repr``."""
    if part is None:
        return part
    return getattr(part, "__name__", type(part).__name__)
