"""A transformer on mesh vertices, faces or edges, with the mesh's spectrum as positions."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from ...arguments import one_of, probability, width
from ...graph.foreign_names import names_checked
from ...graphs import Hierarchy
from ...nn.biases.constant import of_edges
from ...nn.blocks import make_norm
from ...nn.graph_encodings import eigenvectors_of_each, with_random_signs
from ..example import example, features, small_cloud
from .levels import READOUTS, heads_of, levels_checked, of_clouds, refuse_shards
from .unet import EdgeBlock, EdgeEncoder, Perceptron


@example(
    lambda new, p: new(5, 2, 8, 2, 1, spectrum=0, edges=("distance",), dropout=p),
    features(13, 5),
    lambda: (small_cloud(),),
)
class MeshTransformer(nn.Module):
    """Tokens of a mesh that read their neighbours, and an output for each token or each mesh.

    The caller defines tokens: :func:`graphattn.nn.mesh_elements` makes vertices, faces or edges,
    with features and graph; ``mesh_vertices(...)`` of two hops, ``geodesic_ball`` or any other
    graph serves as well.

    Args:
        features: Width of the tokens' features.
        out_dim: Width of the answer, from a perceptron.
        embed_dim: C.
        num_heads: H.
        num_layers: Number of blocks.
        spectrum: Eigenvectors of the Laplacian of the level's first graph that are added to the
            features by a projection, in training with random signs; 0 for none.
        edges: Features of edges, names of :func:`graphattn.nn.edge_geometry`. By default the
            rotation-invariant ones.
        axes: Number of axes of the positions.
        readout: "node", or "shape", from the mean and the maximum over the tokens of each mesh.
        dropout: Rate of dropout in blocks and in the perceptron of the answer.

    Source: Dwivedi and Bresson 2020 for the spectrum as positions; the transformer of a graph on
    that of a mesh.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
        >>> faces = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
        >>> x, shape = ga.nn.mesh_elements(pos, faces, "edges")
        >>> MeshTransformer(5, 3, 16, 2, 2, spectrum=2, readout="shape")(x, shape).shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        embed_dim: int = 64,
        num_heads: int = 4,
        num_layers: int = 4,
        *,
        spectrum: int = 8,
        edges: Sequence[str] = ("distance", "pair"),
        axes: int = 3,
        readout: str = "node",
        dropout: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        heads_of([width(embed_dim, "embed_dim")], width(num_heads, "num_heads"), "num_heads")
        geometry: Any = partial(EdgeEncoder, edges, width(axes, "axes"))
        self.readout = one_of(readout, "readout", READOUTS)
        self.num_eigenvectors = spectrum
        self.embedding = Perceptron(width(features, "features"), embed_dim, embed_dim)
        self.spectrum: nn.Linear | None = None
        if spectrum:
            self.spectrum = nn.Linear(width(spectrum, "spectrum"), embed_dim, bias=False)
        rate = probability(dropout, "dropout")
        blocks = (
            EdgeBlock(embed_dim, num_heads, geometry, rate)
            for _ in range(width(num_layers, "num_layers"))
        )
        self.blocks = nn.ModuleList(blocks)
        self.norm = make_norm("layer", embed_dim, 1e-5)
        self.dropout = nn.Dropout(dropout)
        if readout == "node":
            last = embed_dim
        else:
            last = 2 * embed_dim
        self.head = Perceptron(last, embed_dim, width(out_dim, "out_dim"))

    @names_checked
    def forward(self, x: Tensor, shape: Hierarchy) -> Tensor:
        """Outputs for tokens (..., N, out), or for B meshes (..., B, out).

        Args:
            x: (..., N, features) of the tokens.
            shape: One level: that of :func:`graphattn.nn.mesh_elements`, or
                ``ga.graphs.hierarchy(pos, batch, graph=mesh_vertices(...), faces=faces, normals=...)``. The
                blocks take its graphs in turn.

        Raises:
            ShapeError: If ``x`` does not fit the model or the hierarchy, or it has more levels than
                one.
        """
        shape = levels_checked(x, shape, 1)
        level = shape.levels[0]
        x = self.embedding(x)
        if self.spectrum is not None:
            refuse_shards(
                shape,
                "build the model with spectrum=0, and add eigenvectors of the whole graph to x",
            )
            x = x + self.spectrum(self._eigenvectors(shape).to(x))
        for number, block in enumerate(self.blocks):
            x = block(x, level, number)
        x = self.norm(x)
        if self.readout == "shape":
            x = of_clouds(x, shape, "mean", "max")
        return self.head(self.dropout(x))

    def _eigenvectors(self, shape: Hierarchy) -> Tensor:
        """Eigenvectors (N, k), computed separately for each mesh."""
        graph = shape.levels[0].graph
        level = shape.levels[0]
        # a key by value: a hierarchy makes graphs of its own
        sizes = tuple(shape.clouds.in_degree.tolist())
        vectors = of_edges(
            graph, eigenvectors_of_each, self.num_eigenvectors, sizes, device=level.pos.device
        )
        if self.training:
            return with_random_signs(vectors, sizes)
        return vectors
