"""Named patterns: points."""

from functools import partial

from .pattern import Named

_named = partial(Named, "points")
NAMED: tuple[Named, ...] = (
    _named(
        "kNN",
        "the k nearest points",
        "knn(sphere, 6)",
        also="k nearest neighbours, k-nearest neighbors",
    ),
    _named(
        "mutual kNN",
        "both are among the nearest of the other",
        "knn(sphere, 6) & knn(sphere, 6).reverse()",
    ),
    _named(
        "symmetric kNN",
        "one is among the nearest of the other",
        "knn(sphere, 6) | knn(sphere, 6).reverse()",
    ),
    _named(
        "dilated kNN",
        "every d-th of the k * d nearest points, itself included",
        "knn(sphere, 6, dilation=2, self_loops=True)",
        "Li 2019",
    ),
    _named(
        "kNN in a batch", "the nearest points of the same cloud", "knn(square, 4, batch=two_clouds)"
    ),
    _named(
        "DGCNN",
        "the nearest in feature space, anew in every layer",
        "knn(torch.cos(sphere @ torch.tensor([[3.0, 1, 2], [1, 4, 1], [2, 1, 5]]).double()), 6)",
        "Wang 2019",
    ),
    _named(
        "radius",
        "all points within a distance",
        "radius(sphere, 0.7, self_loops=True)",
        also="radius graph, ball, neighbours within a distance",
    ),
    _named(
        "ball query",
        "the first k points within a distance, the first of them repeated: a multigraph",
        "ball_query(sphere, 0.7, 12)",
        "Qi 2017",
    ),
    _named(
        "PointNet++ grouping",
        "a sampled point reads the points within a distance",
        "radius(sphere, 0.7, queries=sphere[farthest_points(sphere, 12)])",
        "Qi 2017",
    ),
    _named(
        "PointNet++ interpolation",
        "a point reads its 3 nearest sampled points, weighed by inverse_distance_bias",
        "knn(sphere[farthest_points(sphere, 12)], 3, queries=sphere)",
        "Qi 2017",
    ),
    _named(
        "Point Transformer",
        "the 16 nearest points, itself included",
        "knn(sphere, 16, self_loops=True)",
        "Zhao 2021",
    ),
    _named(
        "Point Transformer, down",
        "a sampled point reads its nearest points",
        "knn(sphere, 16, queries=sphere[farthest_points(sphere, 12)])",
        "Zhao 2021",
    ),
    _named(
        "Point Transformer V2, pooling",
        "a voxel reads its points",
        "clusters(voxel_ids(square, 0.25))",
        "Wu 2022",
    ),
    _named(
        "Point Transformer V2, unpooling",
        "a point reads its voxel",
        "clusters(voxel_ids(square, 0.25)).reverse()",
        "Wu 2022",
    ),
    _named(
        "Point Transformer V3, z",
        "patches along Morton's curve; the last one borrows",
        'curve_patches(square, 10, "z")',
        "Wu 2024",
    ),
    _named(
        "Point Transformer V3, z-trans",
        "the same with the first two axes exchanged",
        'curve_patches(square, 10, "z-trans")',
        "Wu 2024",
    ),
    _named(
        "Point Transformer V3, hilbert",
        "patches along Hilbert's curve, which never jumps",
        'curve_patches(cells, 12, "hilbert", bits=3)',
        "Wu 2024",
    ),
    _named(
        "Point Transformer V3, hilbert-trans",
        "the same with the first two axes exchanged",
        'curve_patches(cells, 12, "hilbert-trans", bits=3)',
        "Wu 2024",
    ),
    _named(
        "OctFormer",
        "windows of equally many points along Morton's curve",
        "octree_windows(cells, 8)",
        "Wang 2023",
    ),
    _named(
        "OctFormer, dilated",
        "the same, d ranks apart",
        "octree_windows(cells, 8, dilation=4)",
        "Wang 2023",
    ),
    _named(
        "Stratified Transformer",
        "a cube of space densely, a wider one at sampled points",
        "stratified_windows(square, 0.25, farthest_points(square, 12))",
        "Lai 2022",
    ),
    _named(
        "Swin3D", "the points in the same cube of space", "voxel_windows(square, 0.25)", "Yang 2023"
    ),
    _named(
        "Swin3D, shifted",
        "the cubes half a side further on",
        "voxel_windows(square, 0.25, shift=0.125)",
        "Yang 2023",
    ),
    _named("PCT", "every point reads every point", "full(48)", "Guo 2021"),
    _named(
        "ISAB, first layer", "a few inducing points read all points", "cross(8, 48)", "Lee 2019"
    ),
    _named("ISAB, second layer", "points read the inducing points", "cross(48, 8)", "Lee 2019"),
    _named("PMA", "seed vectors read all points: pooling", "cross(4, 48)", "Lee 2019"),
    _named("Perceiver, encoding", "latents read all inputs", "cross(16, 48)", "Jaegle 2021"),
    _named("Perceiver, processing", "latents read latents", "full(16)", "Jaegle 2021"),
    _named("Perceiver, decoding", "outputs read all latents", "cross(24, 16)", "Jaegle 2022"),
    _named(
        "superpoints",
        "the points of the same cluster",
        "documents(voxel_ids(square, 0.3), causal=False)",
        "Landrieu 2018",
    ),
    _named(
        "superpoint graph",
        "a cluster reads the clusters whose members its own members read",
        "clusters(voxel_ids(square, 0.2)) @ knn(square, 4) @ clusters(voxel_ids(square, "
        "0.2)).reverse()",
        "Robert 2023",
    ),
)
