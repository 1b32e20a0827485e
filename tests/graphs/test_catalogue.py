"""The table of builders, as the command line reads it."""

import inspect
import typing

import numpy as np
import pytest
import torch
from torch import Tensor

from graphattn import AttentionGraph, disjoint_union, graphs, shapes
from graphattn.graphs.catalogue import inputs
from graphattn.graphs.expression import from_expression

PLAIN = {int, float, str, bool, Tensor, np.ndarray, type(None), AttentionGraph}
PLAIN |= {tuple[str, Tensor], tuple[int, int], tuple[int, ...], tuple[float, ...], tuple[bool, ...]}


def small_calls():
    """Of each builder the arguments, by name, of its first call in the zoo."""
    found = {}

    def recorded(name, build):
        def call(*args, **options):
            found.setdefault(name, inspect.signature(build).bind(*args, **options).arguments)
            return build(*args, **options)

        return call

    names = {
        **{name: getattr(graphs, name) for name in graphs.__all__},
        **{name: getattr(inputs, name) for name in inputs.__all__},
        "torch": torch,
        "disjoint_union": disjoint_union,
        "farthest_points": shapes.farthest_points,
        "voxel_ids": shapes.voxel_ids,
    }
    names |= {name: recorded(name, build) for name, build in graphs.BUILDERS.items()}
    for named in graphs.zoo().values():
        if any(f"{name}(" in named.code for name in graphs.BUILDERS.keys() - found.keys()):
            eval(named.code, names)
    return found


SMALL = small_calls()
LISTED = {
    "random_neighbours",
    "erdos_renyi",
    "top_k",
    "knn",
    "radius",
    "ball_query",
    "mesh_vertices",
    "mesh_faces",
    "mesh_cells",
    "containing",
}
LISTED |= {"lsh_buckets"}
LISTED |= {
    "tree",
    "expander",
    "random_regular",
    "small_world",
    "mesh_edges",
    "geodesic_ball",
    "hypergraph",
}
LISTED |= {"icosphere"}


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
        if parameter not in ("score", "return"):  # a function of queries and keys
            assert kinds(annotation) <= PLAIN, parameter
    assert inspect.getdoc(graphs.BUILDERS[name]).count("\n") > 10


@pytest.mark.parametrize("name", SMALL)
def test_names_of_graphs_begin_with_the_builder(name):
    graph = graphs.BUILDERS[name](**SMALL[name])
    assert isinstance(graph, AttentionGraph)
    assert graph.name.startswith(f"{name}(")
    assert graph.is_rule == (name not in LISTED)


CALLS = [
    "causal(8)", "sliding_window(8, 3, causal=False)", "global_tokens(9, (4,))", "sparse_fixed(9, 3)",
    "sliding_window(3, (1, 2), num_sources=5)", "block_local(9, 3, look_back=1, causal=False)",
    "block_sparse(causal(3), 2, num_nodes=5)", "composite([[full(2), None], [None, causal(3)]])",
    "window_partition((7, 14), (7, 7), shift=(0, 3))",
]  # fmt: skip


@pytest.mark.parametrize("text", CALLS)
def test_names_read_as_calls(text):
    assert from_expression(text).name == text


def test_names_leave_out_what_is_long():
    assert (
        graphs.documents(torch.arange(9), causal=False).name
        == "documents([0, 1, 2, 3, ...], causal=False)"
    )
    for options in ("k=3", "k=3, dilation=2", "k=3, self_loops=True"):
        assert eval(f"graphs.knn(inputs.sphere, {options})").name == f"knn({options})"
    for options in ("patch=3", "patch=3, curve='hilbert', cell=0.5, shrink='cloud'"):
        assert (
            eval(f"graphs.curve_patches(inputs.sphere, {options})").name
            == f"curve_patches({options})"
        )
    assert (
        graphs.mesh_faces(inputs.octahedron_faces, share="vertex").name
        == "mesh_faces(share='vertex')"
    )


def test_the_catalogue_shows_builders_alone():
    shown = {name for name in dir(graphs) if not name.startswith("__")}
    helpers = {"voxel_downsample", "block_sparse", "composite", "degree_matched_random"}
    helpers |= {"line_graph", "hierarchy", "serialized_hierarchy", "prefix_tree", "on_sphere"}
    classes = {
        "Level",
        "CloudCache",
        "Hierarchy",
        "HierarchyRecipe",
        "Pattern",
        "PrefixTree",
        "Relations",
    }
    assert shown == {*SMALL, *helpers, *classes, "BUILDERS", "zoo"} == set(graphs.__all__)
