"""A transformer on graphs of data, such as molecules, roads or citations, along their edges or any other graph."""

from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import one_of, shown, tensor, width
from ..errors import GraphError, ShapeError
from ..graph import AttentionGraph, Pattern
from ..graph.advice import no_graph
from ..graph.foreign_names import names_checked
from ..graph.layers import Layer, Layers, layers_of
from ..graphs import circulant, full
from ..kernels.edge_softmax import scatter_sum
from ..nn import ShortestPathBias, random_walk_pe
from ..nn.arguments import check_input
from ..nn.biases.constant import of_edges
from ..nn.graph_encodings import eigenvectors_of_each, with_random_signs
from .example import example, features
from .stacks import Encoder

ENCODINGS = ("random_walk", "laplacian")
READOUTS = ("node", "mean", "sum")


@example(
    lambda new, p: new(5, 8, 2, 1, out_dim=3, encoding_dim=3, max_distance=3, readout="mean", dropout=p),
    features(7, 5),
    lambda: (circulant(7, (1, 2, 5, 6)), full(...)),
)
class GraphTransformer(nn.Module):
    """Nodes with features, blocks of attention, and an output for every node or for every graph.

    The edges of the data encode positions: by an encoding added to the features, by the lengths of paths between
    nodes, or by features of edges. Attention has a separate graph, the data's own edges by default; with
    ``ga.graphs.full(...)`` and ``max_distance`` it is Graphormer's, all pairs with a bias by the shortest path.

    Args:
        features: Width of the nodes' features; or a module that maps them to C channels, such as an ``nn.Embedding``
            of the kinds of atoms.
        embed_dim: C.
        num_heads: H.
        num_layers: Number of blocks.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        out_dim: Width of the output, from a linear head; C and no head by default.
        encoding: "random_walk" or "laplacian", whose projection is added to the features; or ``None``.
        encoding_dim: Steps of the walks, or eigenvectors, padded with 0 for a small graph.
        max_distance: That of a :class:`graphattn.nn.ShortestPathBias` along the data's edges; no such bias by default.
        edge_dim: Width of the features of the edges of attention; none by default.
        readout: "node", or the "mean" or "sum" over the nodes of each graph.
        options: Further arguments of :class:`graphattn.models.Encoder`.

    Source: Dwivedi and Bresson 2020, "A Generalization of Transformer Networks to Layers" (own edges, Laplacian);
    Dwivedi et al. 2022 (random walks); Ying et al. 2021 (Graphormer). *What differs:* pre-norm, with layer norms, by
    default; edge features are added to keys and values, as in PyG's ``TransformerConv``, and are not updated; no
    encoding of degrees, no virtual node.

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
        **options: Any,
    ) -> None:
        super().__init__()
        if encoding is not None:
            one_of(encoding, "encoding", ENCODINGS, hint=", or None")
        one_of(readout, "readout", READOUTS)
        embed_dim, encoding_dim = width(embed_dim, "embed_dim"), width(encoding_dim, "encoding_dim")
        if not isinstance(features, nn.Module):
            features = nn.Linear(width(features, "features"), embed_dim)
        self.embedding = features
        self.kind, self.encoding_dim, self.readout = encoding, encoding_dim, readout
        self.encoding = None if encoding is None else nn.Linear(encoding_dim, embed_dim)
        self.paths = None if max_distance is None else ShortestPathBias(num_heads, max_distance)
        self.encoder = Encoder(num_layers, embed_dim, num_heads, hidden, edge_dim=edge_dim, **options)
        self.head = nn.Identity() if out_dim is None else nn.Linear(embed_dim, width(out_dim, "out_dim"))

    @names_checked
    def forward(
        self,
        x: Tensor,
        edges: AttentionGraph,
        graph: Layers | None = None,
        *,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        """Outputs for nodes (..., N, out), or for G graphs (..., G, out).

        Args:
            x: Inputs of ``features``, (..., N, F) for a width.
            edges: The data's edges, N nodes: ``ga.from_pyg(data)``. Derived encodings are cached with the object.
            graph: The graph of attention, for all layers or one for each; ``edges`` by default. For a batch, all pairs
                of the same graph are ``ga.graphs.documents(batch)``.
            edge_attr: Features (E, edge_dim) of the edges of every layer's graph, in its edge order.
            batch: int64 (N,), the graph of each node, as PyG's, ascending; one graph by default.

        Raises:
            ShapeError: If a tensor does not fit the graphs.
            GraphError: If ``edges`` is not a square graph, or ``graph`` is a pattern that would join a batch's graphs.
        """
        if not isinstance(edges, AttentionGraph):
            raise no_graph(edges, "edges must be an AttentionGraph")
        sizes = _sizes(batch, edges.num_nodes)
        if batch is not None and graph is not None:
            _refuse_patterns(layers_of(graph))
        if batch is not None:
            _refuse_bridges(edges, batch)
        if isinstance(self.embedding, nn.Linear):
            check_input("x", x, self.embedding.in_features, self.embedding)
        x = self.embedding(tensor(x, "x", "(..., N, features)", ShapeError))
        if x.dim() < 2 or x.shape[-2] != edges.num_nodes:
            raise ShapeError(f"edges have {edges.num_nodes} nodes, but the embedded features {tuple(x.shape)}")
        if self.encoding is not None:
            x = x + self.encoding(self.encoded(edges, sizes).to(x))
        paths = self.paths
        x = self.encoder(
            x,
            edges if graph is None else graph,
            score_bias=None if paths is None else lambda reads: paths(reads, edges),
            edge_attr=edge_attr,
        )
        if self.readout != "node" and batch is None:
            x = x.sum(-2, keepdim=True)
        elif self.readout != "node":
            x = scatter_sum(x, _owner(sizes, x), len(sizes), x.dim() - 2)
        if self.readout == "mean":
            x = x / torch.tensor(sizes, device=x.device).clamp(min=1).unsqueeze(-1)
        return self.head(x)

    def encoded(self, edges: AttentionGraph, sizes: tuple[int, ...]) -> Tensor:
        """The encoding of every node, (N, encoding_dim); in training with random signs for eigenvectors."""
        if sum(sizes) != edges.num_nodes:
            raise ShapeError(f"sizes must add up to {edges.num_nodes}, the nodes, got {sizes}")
        encoding = of_edges(edges, _encoding, self.kind, self.encoding_dim, sizes, device=edges.device)
        return with_random_signs(encoding, sizes) if self.kind == "laplacian" and self.training else encoding


def _encoding(edges: AttentionGraph, kind: str, dim: int, sizes: tuple[int, ...]) -> Tensor:
    return random_walk_pe(edges, dim) if kind == "random_walk" else eigenvectors_of_each(edges, dim, sizes)


def _sizes(batch: Tensor | None, num_nodes: int) -> tuple[int, ...]:
    """The number of nodes of each graph."""
    if batch is None:
        return (num_nodes,)
    if batch.shape != (num_nodes,) or batch.dtype != torch.int64 or bool((batch.diff() < 0).any()):
        raise ShapeError(f"batch must be int64 ({num_nodes},), ascending, as PyG's; got {shown(batch)}")
    if num_nodes and not 0 <= int(batch[0]) <= int(batch[-1]) < num_nodes:
        raise ShapeError(
            f"batch must number the graphs from 0, at most as many as there are nodes, {num_nodes}; got "
            f"{int(batch[0])} to {int(batch[-1])}"
        )
    return tuple(torch.bincount(batch).tolist())


def _owner(sizes: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.repeat_interleave(torch.tensor(sizes, device=like.device))


def _refuse_bridges(edges: AttentionGraph, batch: Tensor) -> None:
    source, target = edges.edge_index.to(batch.device)
    if bool((batch[source] != batch[target]).any()):
        raise GraphError(f"edges must not join graphs of batch, got {edges!r}; pass a disjoint union")


def _refuse_patterns(layers: tuple[Layer, ...]) -> None:
    for layer in layers:
        if isinstance(layer, Pattern):
            raise GraphError(
                f"{layer!r} would join the graphs of a batch; for all pairs of each pass graphs.documents(batch)"
            )
