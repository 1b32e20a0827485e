"""What can be named on the command line, as text alone: help need not wait for torch to list it."""

#: Every builder of :data:`graphattn.graphs.BUILDERS`, and the names that other libraries use for it.
PATTERNS: dict[str, tuple[str, ...]] = {
    "full": (),
    "self_loops": (),
    "causal": (),
    "prefix": (),
    "sliding_window": ("window",),
    "asymmetric_window": (),
    "sinks": (),
    "logsparse": (),
    "strided": (),
    "fixed": (),
    "block_local": (),
    "block_causal": (),
    "block_diffusion": (),
    "documents": (),
    "bidirectional_segments": (),
    "ranked": (),
    "global_tokens": (),
    "random_sources": (),
    "erdos_renyi": (),
    "top_k": (),
    "lsh_buckets": (),
    "cross": (),
    "cross_documents": (),
    "cell_partition": ("swin",),
    "cell_pooling": (),
    "halo": (),
    "grid_neighbourhood": ("natten",),
    "grid_ball": (),
    "knn": (),
    "radius": (),
    "ball_query": (),
    "curve_patches": (),
    "octree_windows": (),
    "voxel_windows": (),
    "stratified_windows": (),
    "clusters": (),
    "mesh_vertices": (),
    "mesh_faces": (),
    "mesh_edges": (),
    "geodesic_ball": (),
    "tree": (),
    "ancestors": (),
    "siblings": (),
    "circulant": (),
    "butterfly": (),
    "hierarchical": (),
    "expander": (),
    "random_regular": (),
    "small_world": (),
    "hypergraph": (),
    "between_types": (),
}
NAMES = {name: builder for builder, others in PATTERNS.items() for name in (builder, *others)}

_MESHES = (".off", ".obj", ".ply", ".stl")
#: Endings of the files that each loader of :mod:`graphattn.interop.files` reads.
ENDINGS: dict[str, tuple[str, ...]] = {
    "mesh": _MESHES,
    "points": (".xyz", ".pts", ".txt", ".csv", ".npy", *_MESHES),
    "edges": (".csv", ".txt", ".tsv", ".edges", ".npz", ".npy"),
    "mask": (".npy",),
}
#: What is told to be of a kind without ``--as``, and how to say it otherwise.
HELD = {
    "mesh": " ".join(_MESHES),
    "points": ".xyz .pts; .npy of floats (N, d); .txt .csv with --as points; the vertices of a mesh file",
    "edges": ".csv .txt .tsv .edges .npz; .npy of integers (2, E): source and target of each edge",
    "mask": ".npy of bool (T, S): True where target (row) t may read source (column) s",
}
#: Of :func:`graphattn.viz.plot`; others of matplotlib's are for photographs or for printers.
PICTURES = (".png", ".pdf", ".svg")
#: Of :func:`graphattn.interop.files.save_edges`.
SAVED = (".npz", ".csv")


def builder_name(what: str) -> str | None:
    """The builder that ``what`` names, if it names one; dashes are underscores."""
    return NAMES.get(what.replace("-", "_"))
