"""A transformer on graphs of data, such as molecules or citations, along any edges."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...arguments import check_range, check_shape, one_of, shown, tensor, whole, width
from ...convert import from_edge_index
from ...errors import GraphError, ShapeError
from ...graph import AttentionGraph, need_graph
from ...graph.foreign_names import names_checked
from ...graph.kinds.layers import Layer, Layers, layers_of
from ...graphs import circulant, full
from ...kernels.plain.sums import scatter_sum
from ...nn import ShortestPathBias, random_walk_pe, relative_walk_pe
from ...nn.biases.constant import of_edges
from ...nn.graph_encodings import eigenvectors_of_each, with_random_signs
from ...plans.cache import cached
from ..example import example, features
from ..stacks import Encoder
from .gps import GPSBlock

ENCODINGS = ("random_walk", "laplacian")
READOUTS = ("node", "mean", "sum")


@example(
    lambda new, p: new(
        5, 8, 2, 1, out_dim=3, encoding_dim=3, max_distance=3, readout="mean", dropout=p
    ),
    features(7, 5),
    lambda: (circulant(7, (1, 2, 5, 6)), full(...)),
)
class GraphTransformer(nn.Module):
    """Nodes with features, blocks of attention, and an output for every node or for every graph.

    The edges of the data encode positions: by an encoding added to the features, by the lengths of
    paths between nodes, or by features of edges. Attention has a separate graph, the data's own
    edges by default; with ``ga.graphs.full(...)`` and ``max_distance`` it is Graphormer's, all
    pairs with a bias by the shortest path.

    Args:
        features: Width of the nodes' features; or a module that maps them to C channels, such as an
            ``nn.Embedding`` of the kinds of atoms.
        embed_dim: C.
        num_heads: H.
        num_layers: Number of blocks.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        out_dim: Width of the output, from a linear head; C and no head by default.
        encoding: "random_walk" or "laplacian", whose projection is added to the features; or
            ``None``.
        encoding_dim: Steps of the walks, or eigenvectors, padded with 0 for a small graph.
        max_distance: That of a :class:`graphattn.nn.ShortestPathBias` along the data's edges; no
            such bias by default.
        edge_dim: Width of the features of the edges of attention; none by default.
        readout: "node", or the "mean" or "sum" over the nodes of each graph.
        local: For GPS layers, message passing beside attention: a function that makes PyG's for
            each layer, such as ``lambda: GCNConv(C, C)``.
        relative_walks: K, steps of walks along the data's edges between target and source, whose
            probabilities are features of the edges of attention (GRIT), before those that are
            given.
        virtual_nodes: Number of learned nodes of each graph, which read all its nodes and are read
            by them (Exphormer).
        options: Further arguments of :class:`graphattn.models.Encoder`, or of :class:`GPSBlock`
            with ``local``.

    Exphormer is ``local=`` with ``virtual_nodes=1`` on the graph
    ``edges | ga.graphs.expander(N, 3)``.

    Source: Dwivedi and Bresson 2020, "A Generalization of Transformer Networks to Graphs" (own
    edges, Laplacian); Dwivedi et al. 2022 (random walks); Ying et al. 2021 (Graphormer); Rampasek
    et al. 2022 (GPS); Shirzad et al. 2023 (Exphormer); Ma et al. 2023 (GRIT). *What differs:*
    pre-norm, with layer norms, by default, but with ``local`` as in PyG's ``GPSConv``; edge features
    are added to keys and values, as in PyG's ``TransformerConv``, and are not updated (Exphormer's
    code multiplies query and key by them, and clamps scores to [-5, 5]); no encoding of degrees;
    kinds of Exphormer's edges have no features unless they are given, and those of virtual nodes
    are 0.

    Example:
        >>> import torch, graphattn as ga
        >>> from torch_geometric.data import Data
        >>> bonds = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> data = Data(x=torch.randn(4, 5), edge_index=bonds)
        >>> model = GraphTransformer(5, 8, 2, num_layers=2, out_dim=3, max_distance=4)
        >>> model(data.x, ga.from_pyg(data)).shape  # along the bonds
        torch.Size([4, 3])
        >>> model(data.x, ga.from_pyg(data), ga.graphs.full(...)).shape  # all pairs
        torch.Size([4, 3])
    """

    def __init__(
        self,
        features: int | nn.Module,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        hidden: int | None = None,
        *,
        out_dim: int | None = None,
        encoding: str | None = "random_walk",
        encoding_dim: int = 8,
        max_distance: int | None = None,
        edge_dim: int | None = None,
        readout: str = "node",
        local: Callable[[], nn.Module] | None = None,
        relative_walks: int | None = None,
        virtual_nodes: int = 0,
        **options: Any,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        if encoding is not None:
            one_of(encoding, "encoding", ENCODINGS, hint=", or None")
        one_of(readout, "readout", READOUTS)
        embed_dim = width(embed_dim, "embed_dim")
        encoding_dim = width(encoding_dim, "encoding_dim")
        if not isinstance(features, nn.Module):
            features = nn.Linear(width(features, "features"), embed_dim)
        self.embedding = features
        self.kind = encoding
        self.encoding_dim = encoding_dim
        self.readout = readout
        if encoding is None:
            self.encoding = None
        else:
            self.encoding = nn.Linear(encoding_dim, embed_dim)
        if max_distance is None:
            self.paths = None
        else:
            self.paths = ShortestPathBias(num_heads, max_distance)
        if relative_walks is None:
            self.walks = None
        else:
            self.walks = width(relative_walks, "relative_walks")
        if self.walks is not None:
            edge_dim = self.walks + (edge_dim or 0)
        virtual_nodes = whole(virtual_nodes, "virtual_nodes", 0)
        self.virtual: nn.Parameter | None = None
        if virtual_nodes:
            self.virtual = nn.Parameter(torch.randn(virtual_nodes, embed_dim))
        sizes: Any = (embed_dim, num_heads, hidden)
        self.encoder: Encoder | None = None
        if local is None:
            self.encoder = Encoder(num_layers, *sizes, edge_dim=edge_dim, **options)
        self.layers = nn.ModuleList()
        self.num_layers = width(num_layers, "num_layers")
        if local is not None:
            modules = [local() for _ in range(self.num_layers)]
            blocks = [
                GPSBlock(*sizes, local=module, edge_dim=edge_dim, **options) for module in modules
            ]
            self.layers.extend(blocks)
        self.head: nn.Module = nn.Identity()
        if out_dim is not None:
            self.head = nn.Linear(embed_dim, width(out_dim, "out_dim"))

    @names_checked
    def forward(
        self,
        x: Tensor,
        edges: AttentionGraph,
        graph: Layers | None = None,
        *,
        edge_attr: Tensor | None = None,
        local_attr: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        """Outputs for nodes (..., N, out), or for G graphs (..., G, out).

        Args:
            x: Inputs of ``features``, (..., N, F) for a width.
            edges: The data's edges, N nodes: ``ga.from_pyg(data)``. Derived encodings are cached
                with the object.
            graph: The graph of attention, for all layers or one for each; ``edges`` by default. For
                a batch, all pairs of the same graph are ``ga.graphs.documents(batch, causal=False)``.
            edge_attr: Features (E, edge_dim) of the edges of every layer's graph, in its edge
                order.
            local_attr: Features of ``edges``, for message passing that takes ``edge_attr``.
            batch: int64 (N,), the graph of each node, as PyG's, ascending; one graph by default.

        Raises:
            ShapeError: If a tensor does not fit the graphs.
            GraphError: If ``edges`` is not a square graph, or ``graph`` is a pattern that would
                join a batch's graphs.
        """
        need_graph(edges, "edges")
        sizes = _sizes(batch, edges.num_nodes)
        if batch is not None and graph is not None:
            for layer in layers_of(graph):
                if layer.is_open:
                    raise GraphError(
                        f"{layer!r} would join the graphs of a batch; for all pairs of each pass "
                        "graphs.documents(batch, causal=False)"
                    )
        if batch is not None:
            source, target = edges.edge_index.to(batch.device)
            if bool((batch[source] != batch[target]).any()):
                raise GraphError(
                    f"edges must not join graphs of batch, got {edges!r}; pass a disjoint union"
                )
        x = self.embedding(tensor(x, "x", "(..., N, features)", ShapeError))
        if self.encoding is not None:
            x = x + self.encoding(self.encoded(edges, sizes).to(x))
        if graph is None:
            graph = edges
        x = self._through(x, edges, layers_of(graph), edge_attr, local_attr, sizes)
        if self.readout != "node" and batch is None:
            x = x.sum(-2, keepdim=True)
        elif self.readout != "node":
            x = scatter_sum(
                x,
                torch.repeat_interleave(torch.tensor(sizes, device=x.device)),
                len(sizes),
                x.dim() - 2,
            )
        if self.readout == "mean":
            x = x / torch.tensor(sizes, device=x.device).clamp(min=1).unsqueeze(-1)
        return self.head(x)

    def _through(
        self,
        x: Tensor,
        edges: AttentionGraph,
        layers: tuple[Layer, ...],
        edge_attr: Tensor | None,
        local_attr: Tensor | None,
        sizes: tuple[int, ...],
    ) -> Tensor:
        """The layers, with virtual nodes after the others."""
        N = x.shape[-2]
        paths = self.paths
        steps = self.walks
        graphs: tuple[Any, ...] = tuple(layer.at(N) for layer in layers)
        attrs: list[Any] = [edge_attr] * len(graphs)
        if steps is not None:
            walks = [of_edges(one, _walks, edges, steps, device=x.device).to(x) for one in graphs]
            if edge_attr is None:
                attrs = walks
            else:
                attrs = [torch.cat((walk, edge_attr), -1) for walk in walks]
        biases: list[Any] = [None] * len(graphs)
        if paths is not None:
            biases = [paths(one, edges) for one in graphs]
        if self.virtual is not None:
            x = torch.cat((x, self.virtual.repeat(len(sizes), 1).expand(*x.shape[:-2], -1, -1)), -2)
            graphs = tuple(_with_virtual(one, sizes, len(self.virtual)) for one in graphs)
            attrs, biases = (
                [_longer(y, one) for y, one in zip(ys, graphs, strict=True)]
                for ys in (attrs, biases)
            )
        if len(graphs) == 1:
            graphs = graphs * self.num_layers
            attrs = attrs * self.num_layers
            biases = biases * self.num_layers
        if self.encoder is not None:
            x = self.encoder(x, list(graphs), score_bias=biases, edge_attr=attrs)
        elif len(graphs) != self.num_layers:
            raise GraphError(f"{self.num_layers} layers need as many graphs, got {len(graphs)}")
        for layer, one, bias, attr in zip(self.layers, graphs, biases, attrs, strict=False):
            x = layer(
                x, one, edges.edge_index, local_attr=local_attr, score_bias=bias, edge_attr=attr
            )
        return x[..., :N, :]

    def encoded(self, edges: AttentionGraph, sizes: tuple[int, ...]) -> Tensor:
        """The encoding of every node, (N, encoding_dim); random signs in training."""
        encoding = of_edges(
            edges, _encoding, self.kind, self.encoding_dim, sizes, device=edges.device
        )
        if self.kind == "laplacian" and self.training:
            return with_random_signs(encoding, sizes)
        return encoding


def _encoding(edges: AttentionGraph, kind: str, dim: int, sizes: tuple[int, ...]) -> Tensor:
    if kind == "random_walk":
        return random_walk_pe(edges, dim)
    return eigenvectors_of_each(edges, dim, sizes)


def _walks(graph: AttentionGraph, along: AttentionGraph, steps: int) -> Tensor:
    return relative_walk_pe(along, steps, graph)


def _with_virtual(graph: Any, sizes: tuple[int, ...], number: int) -> AttentionGraph:
    """The graph before ``number`` virtual nodes per graph of a batch, connected both ways.

    The edges to virtual nodes, then those from them, come last.
    """

    def make() -> AttentionGraph:
        N = graph.num_nodes
        G = len(sizes)
        owner = torch.repeat_interleave(torch.tensor(sizes, device=graph.device))
        virtual = (N + owner * number).unsqueeze(-1) + torch.arange(number, device=graph.device)
        pairs = torch.stack(
            (torch.arange(N, device=graph.device).repeat_interleave(number), virtual.flatten())
        )
        return from_edge_index(
            torch.cat((graph.edge_index, pairs, pairs.flip(0)), 1), num_nodes=N + G * number
        )

    return cached(graph, ("virtual nodes", sizes, number), make)


def _longer(of_edges: Tensor | None, graph: AttentionGraph) -> Tensor | None:
    """A bias, or features, (..., E, n) with zeros for the edges that a graph has beyond them."""
    if of_edges is None:
        return None
    return F.pad(of_edges, (0, 0, 0, graph.num_edges - of_edges.shape[-2]))


def _sizes(batch: Tensor | None, num_nodes: int) -> tuple[int, ...]:
    """The number of nodes of each graph."""
    if batch is None:
        return (num_nodes,)
    check_shape(batch, "batch", (num_nodes,))
    check_range(batch, "batch", num_nodes, " (there are no more graphs than nodes)", ShapeError)
    if batch.dtype != torch.int64 or bool((batch.diff() < 0).any()):
        raise ShapeError(f"batch must be int64, ascending, as PyG's; got {shown(batch)}")
    return tuple(torch.bincount(batch).tolist())
