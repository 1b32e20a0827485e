"""One table of what is public, with small arguments: name -> a function of a graph, which has
tensors of its own.

Modules and tensors are made once, in float32, so that a mode of the caller is all that differs
between two calls.
"""

from collections.abc import Callable
from typing import Any

import torch

import graphattn as ga
from graphattn import analysis, nn
from graphattn.backends import BACKENDS
from graphattn.graphs.catalogue.inputs import octahedron_faces
from graphattn.nn.geometry import FEATURES as GEOMETRY
from graphattn.nn.normalizers import NORMALIZERS
from graphattn.nn.scores import SCORES

torch.manual_seed(0)
N, HEADS, HEAD_DIM, WIDTH = 13, 2, 4, 8
POINTS, NORMALS = torch.rand(48, 3), torch.nn.functional.normalize(torch.randn(48, 3), dim=1)
NODES, PARAMETERS = torch.randn(48, HEADS, HEAD_DIM), torch.randn(5, HEADS, HEAD_DIM)
FEATURES, EDGE_VALUES = torch.randn(48, WIDTH), torch.randint(5, (9999,))
EDGE_FEATURES = torch.randn(9999, 3)
OCTAHEDRON = torch.tensor([[1.0, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])[
    [4, 0, 1, 2, 3, 5]
]
FACES = octahedron_faces
WINDOWS = ga.graphs.window_partition((6, 6), cell=(3, 3))
CELLS = torch.cartesian_prod(*[torch.arange(3.0)] * 3)
NEAR = ga.graphs.serialized_hierarchy(CELLS, cell=1.0).levels[0].near[0]

GRAPHS: dict[str, Callable[[], Any]] = {
    "square": lambda: ga.graphs.sliding_window(N, 5, causal=False),
    "without self-loops": lambda: ga.graphs.circulant(N, (1, 3)).without_self_loops(),
    "multigraph": lambda: ga.from_edge_index(_ends(N, N, 41), N, N, duplicates="keep"),
    "empty": lambda: ga.from_edge_index(torch.empty(2, 0, dtype=torch.int64), N, N),
    "no nodes": lambda: ga.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 0, 0),
    "rectangular": lambda: ga.from_edge_index(_ends(7, N, 29), 7, N, duplicates="merge"),
}


def _ends(sources: int, targets: int, edges: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(sources)
    rows = [torch.randint(size, (edges,), generator=made) for size in (sources, targets)]
    return torch.cat((torch.stack(rows), torch.stack(rows)[:, :5]), 1)


def _pair(graph: Any, x: torch.Tensor) -> dict[str, Any]:
    """Of x the targets' rows, and the sources' as a context where they are others."""
    return {} if graph.is_square else {"context": x[: graph.num_sources]}


def _layer(**options: Any) -> Callable[[Any], Any]:
    layer = nn.GraphAttention(WIDTH, HEADS, **options)
    attr = {"edge_attr": EDGE_FEATURES} if "edge_dim" in options else {}

    def run(graph: Any, x: torch.Tensor = FEATURES) -> Any:
        known = {name: value[: graph.num_edges] for name, value in attr.items()}
        return layer(x[: graph.num_targets], graph, **_pair(graph, x), **known)

    run.example = FEATURES  # type: ignore[attr-defined]
    return run


def _of_points(function: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    def run(graph: Any, pos: torch.Tensor = POINTS) -> Any:
        known = dict(options)
        normals = NORMALS[: graph.num_sources]
        if "normals" in options:
            known["normals"] = normals
        if not graph.is_square:
            known["queries"] = pos[: graph.num_targets]
            known |= (
                {"queries_normals": NORMALS[: graph.num_targets]} if "normals" in options else {}
            )
        return function(graph, pos[: graph.num_sources], **known)

    run.example = POINTS  # type: ignore[attr-defined]
    return run


def _of_frames(graph: Any, pos: torch.Tensor = POINTS) -> Any:
    queries = None if graph.is_square else pos[: graph.num_targets]
    return nn.local_frames(graph, pos[: graph.num_sources], NORMALS[: graph.num_targets], queries)


def _contextual(table: Any, graph: Any) -> Any:
    pos = POINTS
    queries = None if graph.is_square else pos[: graph.num_targets]
    return table(
        graph,
        NODES[: graph.num_targets],
        NODES[: graph.num_sources],
        pos[: graph.num_sources],
        queries,
    )


def _with(module: Any, call: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A call of a module that is made once."""
    return lambda graph: call(module, graph)


#: Functions of a graph whose numbers are integers, or are computed in float32 whatever the mode.
MEASURES: dict[str, Callable[[Any], Any]] = {
    name: getattr(analysis, name)
    for name in (
        "commute_time", "conductance", "connectivity", "effective_resistance", "facts", "flops", "forman_curvature",
        "hops", "influence_distribution", "jacobian_bound", "leaks", "ollivier_ricci_curvature", "path_counts",
        "reach", "receptive_field", "spectral_gap", "tile_fill", "universality",
    )
}  # fmt: skip
MEASURES |= {
    "audit": lambda graph: analysis.audit(graph.mask(), graph),
    "spread": lambda graph: analysis.spread(NODES[: graph.num_sources, 0]),
    "kept": lambda graph: analysis.kept(graph, graph).edges,
}
ENCODINGS: dict[str, Callable[[Any], Any]] = {
    "laplacian_eigenvector_pe": lambda graph: nn.laplacian_eigenvector_pe(graph, 3),
    "random_walk_pe": lambda graph: nn.random_walk_pe(graph, 5),
    "relative_walk_pe": lambda graph: nn.relative_walk_pe(ga.graphs.circulant(N, (1, 2)), 4, graph),
    "relative_positions": _of_points(nn.relative_positions),
    "edge_geometry": _of_points(
        nn.edge_geometry, features=tuple(GEOMETRY.keys() - {"barycentric"}), normals=NORMALS
    ),
    "local_frames": _of_frames,
    "local_pca": _of_points(nn.local_pca),
    "local_descriptors": lambda graph: nn.local_descriptors(POINTS),
    "shape_descriptors": lambda graph: nn.shape_descriptors(POINTS),
    "inverse_distance_bias": _of_points(ga.nn.inverse_distance_bias),
    "find_nonfinite": lambda graph: len(
        analysis.find_nonfinite(
            NODES[: graph.num_targets],
            NODES[: graph.num_sources],
            NODES[: graph.num_sources],
            graph,
        )
    ),
    "ALiBi": nn.ALiBi(HEADS),
    "T5Bias": nn.T5Bias(HEADS),
    "ShortestPathBias": _with(
        nn.ShortestPathBias(HEADS, 5), lambda bias, graph: bias(graph, ga.graphs.circulant(N, (1,)))
    ),
    "EdgeTypeBias": _with(
        nn.EdgeTypeBias(5, HEADS), lambda table, graph: table(graph, EDGE_VALUES[: graph.num_edges])
    ),
}
#: Learned layers, whose products follow autocast.
LAYERS: dict[str, Callable[[Any], Any]] = {
    "inverse_distance_interpolate": lambda graph: nn.inverse_distance_interpolate(
        FEATURES[: graph.num_sources],
        graph,
        POINTS[: graph.num_sources],
        POINTS[: graph.num_targets] + 0.01,
    ),
    "pool": lambda graph: [
        nn.pool(FEATURES[: graph.num_sources], graph, how) for how in ("mean", "max", "sum")
    ],
    "EdgeTensors": lambda graph: ga.attention(
        NODES[: graph.num_targets],
        NODES[: graph.num_sources],
        NODES[: graph.num_sources],
        nn.EdgeTensors(graph),
    ),
    "GraphAttention": _layer(),
    "GraphAttention, edges": _layer(edge_dim=3, root_weight=True),
    "OffsetBias": _of_points(nn.OffsetBias(HEADS)),
    "ContextualTable": _with(nn.ContextualTable(HEADS, HEAD_DIM, 5, step=0.1), _contextual),
    "TransformerBlock": _with(
        nn.TransformerBlock(WIDTH, HEADS, 11),
        lambda block, graph: block(FEATURES[: graph.num_targets], graph),
    ),
    "EquivariantAttention": _with(
        nn.EquivariantAttention(WIDTH, HEADS, cutoff=1.0),
        lambda layer, graph: layer(
            FEATURES[: graph.num_targets], graph, POINTS[: graph.num_targets]
        ),
    ),
    "FeatureScore": _layer(score=nn.FeatureScore(), normalize="sum"),
    "PositiveFeatures": _layer(
        score=nn.FeatureScore(nn.PositiveFeatures(HEAD_DIM, 7)), normalize="sum"
    ),
    "Rotary": _layer(rotary=nn.Rotary(HEAD_DIM)),
    "LinearScaling": _layer(rotary=nn.Rotary(HEAD_DIM, scaling=nn.LinearScaling(2.0))),
    "Llama3Scaling": _layer(rotary=nn.Rotary(HEAD_DIM, scaling=nn.Llama3Scaling(2.0, 64))),
}
LAYERS |= {f"score {name}": _layer(score=name) for name in SCORES}
LAYERS |= {
    f"normalize {name}": _layer(
        normalize=name, score=nn.FeatureScore() if name == "sum" else "scaled_dot"
    )
    for name in NORMALIZERS
}
LAYERS |= {
    f"backend {name}": lambda graph, name=name: ga.attention(
        NODES[: graph.num_targets],
        NODES[: graph.num_sources],
        NODES[: graph.num_sources],
        graph,
        backend=name,
    )
    for name in BACKENDS
}
#: Modules and functions of features alone; "square" stands for them.
ALONE: dict[str, Callable[[Any], Any]] = {
    "FourierFeatures": _with(nn.FourierFeatures(3, 5), lambda features, _: features(POINTS)),
    "SinusoidalPosition": _with(
        nn.SinusoidalPosition(WIDTH), lambda encoding, _: encoding(FEATURES)
    ),
    "grid_positions": lambda _: nn.grid_positions((3, 5)),
    "mesh_elements": lambda _: nn.mesh_elements(OCTAHEDRON, FACES, "faces")[0],
    "heat_distance": lambda _: nn.heat_distance(OCTAHEDRON, FACES, torch.tensor([0])),
    "mesh_edge_geometry": lambda _: nn.mesh_edge_geometry(OCTAHEDRON, FACES),
    "mesh_normals": lambda _: nn.mesh_normals(OCTAHEDRON, FACES),
    "SwinBias": _with(nn.SwinBias((3, 3), HEADS), lambda bias, _: bias(WINDOWS)),
    "load_balancing_loss": lambda _: nn.load_balancing_loss(FEATURES, 2),
}
ALONE_LEARNED: dict[str, Callable[[Any], Any]] = {
    "LearnedPosition": _with(nn.LearnedPosition(48, WIDTH), lambda table, _: table(FEATURES)),
    "SwinV2Bias": _with(nn.SwinV2Bias((3, 3), HEADS, hidden=7), lambda bias, _: bias(WINDOWS)),
    "FeedForward": _with(nn.FeedForward(WIDTH, 11), lambda module, _: module(FEATURES)),
    "DecomposedBias": _with(
        nn.DecomposedBias((6, 8), HEAD_DIM), lambda bias, _: torch.cat(bias(NODES, NODES), -1)
    ),
    "DropPath": _with(nn.DropPath(0.5).eval(), lambda module, _: module(FEATURES)),
    "MixtureOfExperts": _with(
        nn.MixtureOfExperts([nn.FeedForward(WIDTH, 5) for _ in range(3)], WIDTH, 3),
        lambda module, _: module(FEATURES),
    ),
    "CellConv": _with(
        nn.CellConv(WIDTH, 5), lambda module, _: module(FEATURES[: len(CELLS)], NEAR)
    ),
}
#: Public names of ``graphattn.nn`` and ``graphattn.analysis`` that are no functions of a graph or of
#: features.
NOT_CALLED = {
    "KeyValueCache": "state of a layer",
    "record_weights": "a context",
    "Facts": "a result",
    "measure_leaks": "takes a module",
    "jacobian_norms": "takes a module",
}
