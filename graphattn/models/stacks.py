"""Stacks of blocks: the encoder, the decoder, and the two together."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import for_each, probability, several, width
from ..backends.place_bias import by_place, is_made
from ..errors import GraphError, OptionError
from ..graph.foreign_names import names_checked
from ..graph.kinds.layers import Layers, layers_of
from ..graph.like import GraphLike, sized
from ..nn import KeyValueCache, TransformerBlock
from ..nn.blocks import Graph, copies, make_norm
from ..nn.cache import AllOrNone, tokens_held
from ..nn.loaders import refuse_other
from .tokens import check_lengths, memory_up_to, padding_bias, positions_of

ScoreBias = Tensor | Callable[..., Tensor] | list[Any] | nn.ModuleList | nn.ParameterList | None
"""Biases of the edges of every layer's graph; or a module that makes them of a graph, such as
:class:`graphattn.nn.T5Bias`; or one of these for each layer: a list, or one that holds modules or
parameters."""


class _Stack(nn.Module):
    """Blocks in sequence, and a norm after the last if the blocks are pre-norm."""

    def __init__(
        self,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        *,
        norm_first: bool = True,
        final_norm: bool | None = None,
        norm: str = "layer",
        eps: float = 1e-5,
        drop_path: float | Sequence[float] = 0.0,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        rates = growing(drop_path, width(num_layers, "num_layers"))
        self.layers = nn.ModuleList(
            TransformerBlock(
                embed_dim,
                num_heads,
                hidden,
                norm_first=norm_first,
                norm=norm,
                eps=eps,
                drop_path=rate,
                **copies(options),
            )
            for rate in rates
        )
        if final_norm is None:
            final_norm = norm_first
        self.norm: nn.Module | None = None
        if final_norm:
            self.norm = make_norm(norm, embed_dim, eps, options.get("bias", True))

    @classmethod
    def _from_torch(cls, module: Any, kind: type[nn.Module]) -> Any:
        refuse_other(module, kind)
        first = module.layers[0].self_attn
        stack = cls(1, first.embed_dim, first.num_heads, final_norm=False)
        stack.layers = nn.ModuleList(TransformerBlock.from_torch(layer) for layer in module.layers)
        stack.norm = deepcopy(module.norm)
        return stack.train(module.training)

    def _of_layers(self, graph: Layers, caches: list[KeyValueCache] | None) -> list[Graph]:
        """The graph of each layer; caches add sources to the nodes of the layer before."""
        if isinstance(graph, GraphLike):
            return [graph] * len(self.layers)
        if caches is None or not isinstance(graph, Iterable):
            return list(layers_of(graph, len(self.layers)))
        return for_each(list(graph), "graph", len(self.layers), "layer", GraphError)

    def _through(
        self,
        x: Tensor,
        graph: Layers,
        caches: list[KeyValueCache] | None = None,
        score_bias: ScoreBias = None,
        memory: Tensor | list[KeyValueCache] | None = None,
        edge_attr: Tensor | list[Tensor] | None = None,
        positions: Tensor | None = None,
        lengths: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        first: Any = self.layers[0]
        first.check(x)
        if lengths is not None:
            check_lengths(lengths, x[..., 0], graph)
            if caches is not None:
                raise OptionError(
                    "lengths exclude caches, whose later tokens would read the keys of padding; "
                    "continue examples of one length together, as models.generate does with a list "
                    "of prompts"
                )
        if caches is None:
            past = 0
        else:
            past = tokens_held(caches, len(self.layers))
        if isinstance(memory, list):
            tokens_held(memory, len(self.layers))
        biases = self._per_layer("score_bias", score_bias)
        attrs = self._per_layer("edge_attr", edge_attr)
        encodes = self.encodes_positions(biases)
        drops = self.training and first.attention.dropout
        reads_places = first.attention.edge_dim is None and not drops
        by_places = reads_places and lengths is None
        biased_graphs: dict[
            tuple[int, int], tuple[Graph, Tensor | None]
        ] = {}  # layers of the same graph share its biases
        with AllOrNone(*(caches or ())):
            for number, (layer, reads) in enumerate(
                zip(self.layers, self._of_layers(graph, caches), strict=True)
            ):
                if caches is None:
                    cache = None
                else:
                    cache = caches[number]
                key = id(reads), id(biases[number])
                if key not in biased_graphs:
                    if cache is None:
                        dropped = 0
                    else:
                        dropped = cache.dropped
                    biased_graphs[key] = _biased(
                        biases[number],
                        reads,
                        x,
                        range(dropped, past),
                        positions,
                        lengths,
                        by_places,
                    )
                sized, bias = biased_graphs[key]
                of_layer: Any = memory
                if isinstance(memory, list):
                    of_layer = memory[number]
                attention: Any = layer.attention
                of_rows = None
                if attention.rotary is not None or not encodes:
                    of_rows = positions
                x = layer(
                    x,
                    sized,
                    cache=cache,
                    score_bias=bias,
                    memory=of_layer,
                    edge_attr=attrs[number],
                    positions=of_rows,
                    **options,
                )
        if self.norm is None:
            return x
        return self.norm(x)

    def encodes_positions(self, score_bias: ScoreBias = None) -> bool:
        """True if a layer has rotary positions, or a bias depends on positions."""
        layers: Iterable[Any] = self.layers
        biases = self._per_layer("score_bias", score_bias)
        return any(layer.attention.rotary is not None for layer in layers) or any(
            map(callable, biases)
        )

    def _per_layer(self, name: str, value: Any) -> list[Any]:
        """One argument for each layer, from one for all or a list."""
        if isinstance(value, nn.ModuleList | nn.ParameterList):
            value = list(value)
        return for_each(value, name, len(self.layers), "layer")


def _biased(
    score_bias: Any,
    graph: Graph,
    x: Tensor,
    past: range,
    positions: Tensor | None,
    lengths: Tensor | None,
    by_places: bool,
) -> tuple[Graph, Any]:
    """The graph and the biases of its edges; a pattern is sized to ``x`` for a module's biases.

    ``past``: number of cached tokens; ``by_places``: True if biases of places may stay so.
    """
    if not is_made(score_bias) and lengths is None:
        return graph, score_bias
    graph = sized(graph, x.unsqueeze(-2), x.unsqueeze(-2), len(past))
    if is_made(score_bias):
        arguments: list[Any] = []
        if past.stop:
            nodes = positions_of(graph, past, x[..., 0])
            assert nodes is not None
            arguments.append((nodes[len(past) :], nodes))
        elif positions is not None:
            arguments.append(positions)
        if by_places:
            score_bias = by_place(score_bias, graph, *arguments)
        else:
            score_bias = score_bias(graph, *arguments)
    if lengths is None:
        return graph, score_bias
    padding = padding_bias(graph, lengths, x)
    if score_bias is None:
        return graph, padding
    return graph, padding + score_bias


def layers_in(graphs: Any) -> list[Any]:
    """The graph of each layer."""
    return several(graphs, "graphs", "must be a graph, or one for each layer", GraphError)


def growing(drop_path: float | Sequence[float], number: int) -> list[float]:
    """Probabilities of dropping a path in ``number`` layers: a list, or equal steps from 0 up.

    Source: Huang et al. 2016, "Deep Networks with Stochastic Depth", equation 4, as the code of
    DeiT and Swin has it: there the first layer's is 0.
    """
    number = width(number, "number of layers")
    if not isinstance(drop_path, list | tuple):
        return torch.linspace(0, probability(drop_path, "drop_path"), number, device="cpu").tolist()
    return for_each(drop_path, "drop_path", number, "layer")


class Encoder(_Stack):
    """Blocks of self-attention.

    Args:
        num_layers: Number of blocks.
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forwards.
        norm_first: True for pre-norm, False for post-norm.
        final_norm: True if a norm follows the last block; with pre-norm by default.
        norm: "layer" or "rms".
        eps: Epsilon of the norms.
        drop_path: Probability of dropping a branch, by example, in the last block, in equal steps
            from 0 in the first; or a list with one for each block.
        options: Further arguments of :class:`graphattn.nn.TransformerBlock`. A module with
            parameters among them (a score, a mixture of experts) is copied for each layer.

    Source: Vaswani et al. 2017; equal to ``nn.TransformerEncoder`` on a full graph.

    Example:
        >>> import torch, graphattn as ga
        >>> encoder, x = Encoder(2, 8, 2), torch.randn(4, 6, 8)
        >>> encoder(x, ga.graphs.full(6)).shape
        torch.Size([4, 6, 8])
        >>> encoder(x, [ga.graphs.sliding_window(..., 3, causal=True), ga.graphs.causal(...)]).shape  # another graph for each layer
        torch.Size([4, 6, 8])

        A bias learned for each edge and head of each layer, in the edge order of the layer's graph:

        >>> graphs = [ga.graphs.sliding_window(6, 3, causal=True), ga.graphs.causal(6)]
        >>> bias = torch.nn.ParameterList(torch.zeros(graph.num_edges, 2) for graph in graphs)
        >>> encoder(x, graphs, score_bias=bias).sum().backward()
        >>> [tuple(layer_bias.grad.shape) for layer_bias in bias]
        [(15, 2), (21, 2)]
    """

    @names_checked
    def forward(
        self,
        x: Tensor,
        graph: Layers,
        *,
        score_bias: ScoreBias = None,
        edge_attr: Tensor | list[Tensor] | None = None,
        positions: Tensor | None = None,
        lengths: Tensor | None = None,
        caches: list[KeyValueCache] | None = None,
    ) -> Tensor:
        """(..., N, C) to (..., N, C).

        Args:
            x: (..., N, C).
            graph: One graph for all layers, or a list with one for each.
            score_bias: Biases of the edges of every layer's graph; or a module that makes them of
                each layer's graph and the given positions (with caches a pair, of targets and
                sources): ``T5Bias``, ``ALiBi``; or a list, ``nn.ModuleList`` or
                ``nn.ParameterList`` with one for each layer, where None is no bias.
            edge_attr: Features of the edges of every layer's graph, for layers with ``edge_dim``;
                or a list.
            positions: Positions of the nodes, for layers with ``rotary`` and for biases of
                positions.
            lengths: Integers (...), of examples padded at their end: no node reads the padding.
            caches: A cache for each layer, if ``x`` continues earlier tokens.
        """
        return self._through(x, graph, caches, score_bias, None, edge_attr, positions, lengths)

    @classmethod
    def from_torch(cls, encoder: nn.TransformerEncoder) -> "Encoder":
        """The encoder with the weights of torch's, and its outputs on a full graph."""
        return cls._from_torch(encoder, nn.TransformerEncoder)


class Decoder(_Stack):
    """Blocks of self-attention, then cross-attention to a memory. Arguments as :class:`Encoder`.

    Source: Vaswani et al. 2017; equal to ``nn.TransformerDecoder`` on a causal graph.
    """

    def __init__(
        self,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        **options: Any,
    ):
        """Arguments as in the docstring of the class."""
        if "cross" in options:
            raise OptionError(
                "the blocks of a Decoder always have cross-attention; leave out cross"
            )
        super().__init__(num_layers, embed_dim, num_heads, hidden, cross=True, **options)

    @names_checked
    def forward(
        self,
        x: Tensor,
        graph: Layers,
        memory: Tensor | list[KeyValueCache],
        memory_graph: Graph | None = None,
        *,
        score_bias: ScoreBias = None,
        memory_bias: Tensor | None = None,
        edge_attr: Tensor | list[Tensor] | None = None,
        positions: Tensor | None = None,
        caches: list[KeyValueCache] | None = None,
    ) -> Tensor:
        """(..., N, C) to (..., N, C).

        Args:
            x: (..., N, C), the targets.
            graph: The graph between targets, one graph or a list.
            memory: (..., M, C); or the result of :meth:`hold` for several calls.
            memory_graph: The graph from the memory to the targets, all pairs by default.
            memory_bias: Biases of the memory graph's edges.
            score_bias: Biases of the edges of ``graph``, as in :class:`Encoder`.
            edge_attr: Features of the edges of ``graph``.
            positions: Positions of the targets.
            caches: A cache for each layer, if ``x`` continues earlier tokens.
        """
        options: dict[str, Any] = {"memory_graph": memory_graph, "memory_bias": memory_bias}
        return self._through(x, graph, caches, score_bias, memory, edge_attr, positions, **options)

    def hold(self, memory: Tensor) -> list[KeyValueCache]:
        """Each layer's keys and values of a memory, computed once."""
        layers: Iterable[Any] = self.layers
        return [layer.cross_attention.hold(memory) for layer in layers]

    @classmethod
    def from_torch(cls, decoder: nn.TransformerDecoder) -> "Decoder":
        """The decoder with the weights of torch's, and its outputs on a causal graph."""
        return cls._from_torch(decoder, nn.TransformerDecoder)


class EncoderDecoder(nn.Module):
    """The transformer: an encoder's output is the memory that a decoder reads.

    Example:
        >>> import torch, graphattn as ga
        >>> model = EncoderDecoder(Encoder(2, 8, 2), Decoder(2, 8, 2))
        >>> source, target = torch.randn(7, 8), torch.randn(5, 8)
        >>> model(source, target, ga.graphs.full(7), ga.graphs.causal(5)).shape
        torch.Size([5, 8])
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @names_checked
    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_graph: Layers,
        target_graph: Layers,
        memory_graph: Graph | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """(..., N, C) from source (..., M, C) and target (..., N, C).

        Args:
            source: The input of the encoder.
            target: The input of the decoder.
            source_graph: M nodes; full in the original.
            target_graph: N nodes; causal in the original.
            memory_graph: N targets and M sources; all pairs by default.
            lengths: Integers (...), of sources padded at their end: padding is not read.
        """
        memory = self.encoder(source, source_graph, lengths=lengths)
        memory_graph, bias = memory_up_to(lengths, memory, memory_graph, target)
        return self.decoder(target, target_graph, memory, memory_graph, memory_bias=bias)

    @classmethod
    def from_torch(cls, transformer: nn.Transformer) -> "EncoderDecoder":
        """The model with the weights of an ``nn.Transformer``."""
        refuse_other(transformer, nn.Transformer)
        return cls(Encoder.from_torch(transformer.encoder), Decoder.from_torch(transformer.decoder))
