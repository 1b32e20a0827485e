"""Attention on scalars and vectors that turn with the points: weights and gates from invariants."""

import math
from typing import Optional

import torch
from torch import Tensor, nn

from ...arguments import check_shape, floats, one_of, positive, width
from ...errors import OptionError, ShapeError
from ...graph import AttentionGraph, need_graph, need_nodes
from ...graph.edge_index import from_edge_index
from ...graph.modes import without_autocast
from ...kernels.plain.sums import edge_softmax, gather, scatter_sum
from ...pyg import MessagePassing
from ..geometry import relative_positions
from ..vectors import length_of

NORMALIZE = ("sigmoid", "softmax")


class EquivariantAttention(MessagePassing):
    r"""Attention between points whose scalars are invariant and whose vectors turn with the points.

    .. math:: w^h_{ts} = \phi(d_{ts}) \, \sigma(\langle q^h_t, k^h_s \rangle / \sqrt{D} + b^h(e_{ts})), \qquad
              (m, g, r)_{ts} = W x_s \odot f(e_{ts})

    .. math:: o_t = \sum_s w_{ts} \, m_{ts}, \qquad
              u_t = \sum_s w_{ts} \, (g_{ts} \, v_s + r_{ts} \, \hat{d}_{ts})

    .. math:: x'_t = W_o \, [o_t, \langle A u_t, B u_t \rangle], \qquad v'_t = C u_t

    Here :math:`\hat{d}_{ts}` is the direction from target to source, through the image that the
    edge reads, and :math:`e_{ts}` smooth functions of the distance :math:`d_{ts}`, which
    :math:`\phi` takes to 0 at the cutoff. Rotations and reflections turn v' along, and leave x' as
    it is; translations and the choice of the cell change neither. The output is differentiable any
    number of times, so that forces are the slope of an energy and can be trained on.

    Args:
        embed_dim: C, width of the scalars.
        num_heads: H, a divisor of C and V.
        num_vectors: V, number of vectors of a node, C by default.
        cutoff: Distance at which edges end, in the units of the positions.
        num_radial: Number of functions of the distance.
        edge_dim: F, width of further invariants of edges; none by default.
        normalize: "sigmoid", weights that are smooth where an edge enters, as energies need; or
            "softmax" over the sources of a target, times :math:`\phi`, which is not.

    Source: gates and invariant products of vectors as in PaiNN (Schütt et al. 2021, equations 7 to
    10), attention weights from scalars and distances as in the equivariant transformer of
    TorchMD-NET (Thölke and De Fabritiis 2022, equations 6 to 9); coordinates are updated from them
    in EGNN (Satorras et al. 2021). Functions of the distance: Gaussians of SchNet (Schütt et al.
    2017), cosine cutoff of Behler and Parrinello 2007.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.rand(9, 3)
        >>> layer = EquivariantAttention(8, 2, cutoff=0.7)
        >>> x, v = layer(torch.randn(9, 8), ga.graphs.radius(pos, 0.7), pos)
        >>> x.shape, v.shape
        (torch.Size([9, 8]), torch.Size([9, 8, 3]))
    """

    centres: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_vectors: int | None = None,
        *,
        cutoff: float,
        num_radial: int = 16,
        edge_dim: int | None = None,
        normalize: str = "sigmoid",
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__(aggr="sum", node_dim=0)
        self.embed_dim = width(embed_dim, "embed_dim")
        self.num_heads = width(num_heads, "num_heads")
        if num_vectors is None:
            num_vectors = embed_dim
        self.num_vectors = width(num_vectors, "num_vectors")
        for name, size in (("embed_dim", embed_dim), ("num_vectors", num_vectors)):
            if size % num_heads:
                raise OptionError(
                    f"{name} must be a multiple of num_heads, got {size}, {num_heads}"
                )
        self.cutoff = positive(cutoff, "cutoff")
        self.normalize = one_of(normalize, "normalize", NORMALIZE)
        self.edge_dim = 0
        if edge_dim is not None:
            self.edge_dim = width(edge_dim, "edge_dim")
        invariants = width(num_radial, "num_radial") + self.edge_dim
        gates = embed_dim + 2 * num_vectors
        self.register_buffer("centres", torch.linspace(0.0, self.cutoff, num_radial))
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, gates)
        self.edge_proj = nn.Linear(invariants, num_heads + gates)
        self.mix_proj = nn.Linear(num_vectors, 3 * num_vectors, bias=False)
        self.out_proj = nn.Linear(embed_dim + num_vectors, embed_dim)

    def forward(
        self,
        x: Tensor,
        graph: AttentionGraph | Tensor,
        pos: Tensor,
        v: Tensor | None = None,
        *,
        edge_attr: Tensor | None = None,
        cell: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Scalars (N, C) and vectors (N, V, d); the caller adds them to what they were.

        Args:
            x: (N, C) scalars.
            graph: The graph of the edges, or an ``edge_index`` (2, E).
            pos: (N, d) positions, of any floating point dtype.
            v: (N, V, d) vectors; none are zeros.
            edge_attr: (E, F) further invariants, of a layer with ``edge_dim``.
            cell: Lattice vectors in place of the graph's, as in :func:`relative_positions`.

        Raises:
            ShapeError: If a tensor has another shape than the graph and the layer ask for.
            GraphError: If sources and targets are not the same nodes.
        """
        graph = _graph(graph, x)
        to_target = relative_positions(graph, pos, cell=cell).to(self.q_proj.weight.dtype)
        v = self._vectors(v, x, pos)
        edge_attr = self._attributes(edge_attr, graph, x)
        with without_autocast(x.device.type):
            length = length_of(to_target)
            direction = -to_target / length.masked_fill(length == 0, 1.0)
            # gaussians (E, R) of the distance (E, 1)
            step = self.cutoff / max(1, len(self.centres) - 1)
            radial = torch.exp(-(((length - self.centres) / step) ** 2))
        # 1 at distance 0, and 0 with its slope from the cutoff on
        share = (length / self.cutoff).clamp(max=1.0)
        output = self.propagate(
            graph.edge_index.to(x.device),
            query=self.q_proj(x),
            key=self.k_proj(x),
            value=self.v_proj(x),
            v=v.flatten(1),
            edge_term=self.edge_proj(torch.cat((radial, edge_attr), 1)),
            direction=direction,
            envelope=0.5 + 0.5 * torch.cos(math.pi * share),
            size=(len(x), len(x)),
        )
        scalars = output[:, : self.embed_dim]
        vectors = output[:, self.embed_dim :].unflatten(1, (self.num_vectors, -1))
        mixed = self.mix_proj(vectors.transpose(1, 2)).transpose(1, 2)
        first, second, result = mixed.chunk(3, 1)
        with without_autocast(x.device.type):
            products = (first * second).sum(-1)
        return self.out_proj(torch.cat((scalars.to(products.dtype), products), 1)), result

    def message(
        self,
        query_i: Tensor,
        key_j: Tensor,
        value_j: Tensor,
        v_j: Tensor,
        edge_term: Tensor,
        direction: Tensor,
        envelope: Tensor,
        index: Tensor,
        size_i: Optional[int],
    ) -> Tensor:
        """Messages of edges, (E, C + V d): scalars, then vectors."""
        heads = self.num_heads
        number = self.num_vectors
        bias = edge_term[:, :heads]
        terms = value_j * edge_term[:, heads:]
        q = query_i.unflatten(1, (heads, -1))
        k = key_j.unflatten(1, (heads, -1))
        score = (q * k).sum(-1) / math.sqrt(q.shape[-1]) + bias
        size = 0
        if size_i is not None:
            size = size_i
        if self.normalize == "sigmoid":
            weight = torch.sigmoid(score)
        else:
            weight, _ = edge_softmax(score, index, size)
        weight = weight * envelope
        of_scalars, of_vectors, of_direction = terms.split((self.embed_dim, number, number), 1)
        scalars = self._weighted(of_scalars, weight)
        carried = self._weighted(of_vectors, weight)[:, :, None] * v_j.unflatten(1, (number, -1))
        pulled = self._weighted(of_direction, weight)[:, :, None] * direction[:, None, :]
        return torch.cat((scalars, (carried + pulled).flatten(1)), 1)

    def _weighted(self, x: Tensor, weight: Tensor) -> Tensor:
        """Channels (E, c), those of each head times its weight (E, H)."""
        return (x.unflatten(1, (self.num_heads, -1)) * weight[:, :, None]).flatten(1)

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: Optional[int] = None) -> Tensor:
        """The sum of the messages at each target, without atomics."""
        if dim_size is None:
            dim_size = 0
        return scatter_sum(inputs, index, dim_size, 0)

    def _index_select(self, src: Tensor, index: Tensor) -> Tensor:
        return gather(src, index, 0)

    def _vectors(self, v: Tensor | None, x: Tensor, pos: Tensor) -> Tensor:
        shape = (len(x), self.num_vectors, pos.shape[-1])
        if v is None:
            return x.new_zeros(shape)
        floats(v, "v", "(N, V, d)", 3)
        check_shape(v, "v", shape, "vectors of each node")
        return v

    def _attributes(self, edge_attr: Tensor | None, graph: AttentionGraph, x: Tensor) -> Tensor:
        shape = (graph.num_edges, self.edge_dim)
        if edge_attr is None:
            if self.edge_dim:
                raise ShapeError(f"edge_attr must have shape {shape}, as edge_dim says, got none")
            return x.new_zeros(shape)
        floats(edge_attr, "edge_attr", "(E, F)", 2)
        check_shape(edge_attr, "edge_attr", shape, "a row for each edge, as wide as edge_dim")
        return edge_attr

    def extra_repr(self) -> str:
        """Sizes and options."""
        return (
            f"{self.embed_dim}, {self.num_heads}, {self.num_vectors}, cutoff={self.cutoff:g}, "
            f"normalize={self.normalize!r}"
        )


def _graph(graph: AttentionGraph | Tensor, x: Tensor) -> AttentionGraph:
    """A graph of the nodes of ``x``."""
    check_shape(x, "x", ("N", "width"), "structures of a batch are side by side")
    if isinstance(graph, Tensor):
        graph = from_edge_index(graph, num_nodes=len(x), duplicates="keep")
    need_graph(graph, "the layer")
    need_nodes(graph, "graph", len(x), len(x))
    return graph
