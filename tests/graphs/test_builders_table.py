"""The table of builders, as the command line reads it."""

import inspect
import typing

import numpy as np
import pytest
import torch
from torch import Tensor

from graphattn import AttentionGraph, graphs

PLAIN = {int, float, str, bool, Tensor, np.ndarray, type(None), AttentionGraph}
PLAIN |= {tuple[int, ...], tuple[float, ...], tuple[bool, ...]}
SMALL = {
    "full": (5,),
    "self_loops": (5,),
    "causal": (5,),
    "prefix": (5, 2),
    "sliding_window": (5, 3),
    "asymmetric_window": (5, 2, 1),
    "sinks": (5, 2),
    "logsparse": (5,),
    "strided": (5, 2),
    "fixed": (5, 2),
    "block_local": (5, 2),
    "block_causal": (5, 2),
    "block_diffusion": (3, 2),
    "documents": (torch.tensor([0, 0, 1]),),
    "bidirectional_segments": (torch.tensor([-1, 0, 0]),),
    "ranked": (torch.tensor([1, 0, 2]),),
    "global_tokens": (5, (0,)),
    "random_sources": (5, 2),
    "erdos_renyi": (5, 0.5),
    "top_k": (torch.rand(3, 5), 2),
    "lsh_buckets": (torch.tensor([0, 1, 0]), 2),
    "cross": (3, 5),
    "cross_documents": (torch.tensor([0, 1]), torch.tensor([1, 0, 0])),
    "cell_partition": ((4, 6), (2, 3)),
    "cell_pooling": ((4, 6), (2, 3)),
    "halo": ((4, 6), (2, 3), 1),
    "grid_neighbourhood": ((4, 6), (3, 3)),
    "grid_ball": ((4, 6), 1.5),
    "knn": (torch.rand(7, 3), 2),
    "radius": (torch.rand(7, 3), 0.5),
    "ball_query": (torch.rand(7, 3), 0.5, 3),
    "curve_patches": (torch.rand(7, 3), 3),
    "octree_windows": (torch.rand(7, 3), 3),
    "voxel_windows": (torch.rand(7, 3), 0.5),
    "stratified_windows": (torch.rand(7, 3), 0.5, torch.tensor([0, 3])),
    "clusters": (torch.tensor([0, 0, 1]),),
    "mesh_vertices": (torch.tensor([[0, 1, 2]]),),
    "mesh_faces": (torch.tensor([[0, 1, 2]]),),
    "tree": (torch.tensor([-1, 0, 0]),),
    "ancestors": (torch.tensor([-1, 0, 0]),),
    "siblings": (torch.tensor([-1, 0, 0]),),
    "circulant": (5, (-1, 0, 1)),
    "butterfly": (5,),
    "hierarchical": (5, 2),
    "expander": (13,),
    "random_regular": (6, 3),
    "small_world": (7, 2, 0.5),
    "mesh_edges": (torch.tensor([[0, 1, 2]]),),
    "geodesic_ball": (torch.rand(3, 3), torch.tensor([[0, 1, 2]]), 0.5),
    "hypergraph": (torch.tensor([0, 1]), torch.tensor([0, 0])),
    "between_types": (torch.tensor([0, 1]), 0, 1),
}
LISTED = {"random_sources", "erdos_renyi", "top_k", "knn", "radius", "ball_query", "mesh_vertices", "mesh_faces"}
LISTED |= {"lsh_buckets"}
LISTED |= {"tree", "expander", "random_regular", "small_world", "mesh_edges", "geodesic_ball", "hypergraph"}


def kinds(annotation):
    """The plain types that an annotation is made of."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return {type(word) for word in typing.get_args(annotation)}
    if origin is tuple or not typing.get_args(annotation):
        return {annotation}
    return set().union(*map(kinds, typing.get_args(annotation)))


def test_every_builder_is_in_the_table_under_its_name():
    assert set(graphs.BUILDERS) == set(SMALL)
    assert all(graphs.BUILDERS[name] is getattr(graphs, name) for name in SMALL)


@pytest.mark.parametrize("name", graphs.BUILDERS)
def test_signatures_are_plain(name):
    for parameter, annotation in typing.get_type_hints(graphs.BUILDERS[name]).items():
        assert kinds(annotation) <= PLAIN, parameter
    assert inspect.getdoc(graphs.BUILDERS[name]).count("\n") > 10


@pytest.mark.parametrize("name", SMALL)
def test_names_of_graphs_begin_with_the_builder(name):
    graph = graphs.BUILDERS[name](*SMALL[name])
    assert isinstance(graph, AttentionGraph)
    assert graph.name.startswith(f"{name}(")
    assert graph.is_rule == (name not in LISTED)


def test_the_catalogue_shows_builders_alone():
    shown = {name for name in dir(graphs) if not name.startswith("__")}
    helpers = {"curve_order", "farthest_points", "inverse_distance_bias", "mesh_report", "voxel_ids"}
    helpers |= {"relative_position_index", "block_sparse", "composite"}
    helpers |= {"degree_matched_random"}
    helpers |= {"mesh_edge_ends"}
    helpers |= {"line_graph"}
    helpers |= {"ProgramGraphs", "program_graphs"}
    assert shown == {*SMALL, *helpers, "BUILDERS", "MeshReport", "zoo"} == set(graphs.__all__)
