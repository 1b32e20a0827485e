"""The nodes drawn as reached are those of the product of the layers' masks."""

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, GraphIndexError, OptionError, ShapeError
from graphattn.viz import plot
from graphattn.viz.layouts.pick import points_of


def random_layer(num_targets: int, num_sources: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    return ga.from_mask(torch.rand(num_targets, num_sources, generator=generator) < 0.2)


def reached(masks, target: int) -> np.ndarray:
    """By the boolean product of dense masks, first layer first."""
    product = reduce(lambda before, mask: (mask.double() @ before.double()) > 0, masks)
    return product[target].nonzero().flatten().numpy()


def artist(figure, gid: str, panel: int = 0):
    (found,) = [a for a in figure.axes[panel].get_children() if a.get_gid() == gid]
    return found


def nodes_at(figure, level: int, size: int) -> list[int]:
    x = np.asarray(artist(figure, f"reached {level}").get_offsets())[:, 0]
    return np.rint(x * size - 0.5).astype(int).tolist()


SIZES = {"square": [13, 13, 13, 13], "pooled": [23, 11, 11, 5], "one layer": [7, 7]}


@pytest.mark.parametrize("name", SIZES)
def test_rows_hold_every_path_to_the_target(name):
    sizes = SIZES[name]
    graphs = [random_layer(t, s, seed) for seed, (s, t) in enumerate(pairwise(sizes))]
    figure = plot(graphs, target=3, layout="layers")
    masks = [graph.mask() for graph in graphs]
    total = 0
    for level in range(len(sizes) - 1):
        # of the nodes below these layers, who reaches the target
        wanted = reached(masks[level:], 3)
        total += len(wanted)
        assert nodes_at(figure, level, sizes[level]) == wanted.tolist()
        above = [3] if level == len(masks) - 1 else reached(masks[level + 1 :], 3)
        lines = artist(figure, f"edges of layer {level}").get_paths()
        assert len(lines) == int(masks[level][above].sum())
        assert {path.vertices[0, 1] for path in lines} <= {level}
    assert total > 0
    assert f"depends on {len(reached(masks, 3))} of {sizes[0]} sources" in figure.get_suptitle()


def test_the_order_of_the_layers_matters():
    graphs = [random_layer(13, 13, seed) for seed in range(2)]
    one, other = (plot(layers, target=3, layout="layers") for layers in (graphs, graphs[::-1]))
    assert nodes_at(one, 0, 13) != nodes_at(other, 0, 13)


def test_grid_panels_show_what_is_read_after_each_layer():
    plain, shifted = (
        ga.graphs.window_partition((6, 10), (3, 5), shift=s) for s in ((0, 0), (1, 2))
    )
    figure = plot([plain, shifted], target=33)
    masks = [plain.mask(), shifted.mask()]
    shades = []
    for layer in range(2):
        cells = artist(figure, "sources of 33", layer)
        centres = np.stack([path.vertices[:4].mean(0) for path in cells.get_paths()])
        column, row = np.rint(centres).astype(int).T
        wanted = reached(masks[: layer + 1], 33)
        assert (row * 10 + column).tolist() == wanted.tolist()
        shades.append(dict(zip(wanted.tolist(), map(tuple, cells.get_facecolor()), strict=True)))
        assert f"after layer {layer}: {len(wanted)} sources" in figure.axes[layer].get_title()
    assert len(shades[1]) > len(shades[0])
    # a source keeps its shade
    assert all(shades[1][node] == shade for node, shade in shades[0].items())
    new = set(shades[1]) - set(shades[0])
    assert {shades[1][node] for node in new}.isdisjoint(shades[0].values())


@pytest.mark.parametrize("d", [2, 3])
def test_points_are_marked_where_they_are(d):
    pos = torch.rand(67, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = ga.graphs.knn(pos, k=4)
    figure = plot([graph] * 2, pos, target=5)
    dots = artist(figure, "sources of 5", 1)
    place, sources = points_of(pos, None), reached([graph.mask()] * 2, 5)
    place.face(5)
    place.frame(place.close_up(5, sources, 0.5))
    wanted = place.flat(pos[sources].numpy())
    assert len(wanted) > 4
    np.testing.assert_allclose(
        np.sort(dots.get_offsets(), axis=0), np.sort(wanted, axis=0), atol=1e-9
    )


def test_a_schedule_and_its_residual():
    graph = ga.graphs.sliding_window(11, window=2, causal=True).without_self_loops()
    figure = plot([graph] * 2, target=7)
    assert nodes_at(figure, 0, 11) == [5]
    with_residual = plot([graph.with_self_loops()] * 2, target=7)
    assert nodes_at(with_residual, 0, 11) == [5, 6, 7]


@pytest.mark.slow
def test_many_layers_and_many_nodes_are_thinned_and_it_says_so():
    deep = plot([ga.graphs.grid_neighbourhood((13, 13), 3, causal=False)] * 8, target=80)
    assert "2 layers between are not shown" in deep.get_supxlabel()
    long = plot([ga.graphs.sliding_window(1_000_000, 1025, causal=True)] * 3, target=700_000)
    assert "depends on 3,073 of 1,000,000" in long.get_suptitle()
    assert "nodes 696,928 to 700,000" in long.get_supxlabel().replace("\n", " ")
    left, right = long.axes[0].get_xlim()
    assert left < 0.696_928 < 0.7 < right < 0.71


def test_a_target_that_reads_nothing():
    figure = plot([ga.from_edge_index(torch.tensor([[0], [1]]), 3, 3)], target=2, layout="layers")
    assert "depends on 0 of 3 sources" in figure.get_suptitle()


@pytest.mark.parametrize(
    ("layers", "target", "options", "error", "words"),
    [
        ([(5, 5)], 5, {}, GraphIndexError, r"target must be in \[0, 5\), the targets, got 5 to 5"),
        ([(5, 5), (5, 7)], 0, {}, GraphError, "layer 1 reads 7 sources"),
        ([(5, 7)], 0, {"pos": np.zeros((7, 2))}, GraphError, "drawn as rows"),
        (
            [(5, 7)],
            0,
            {"layout": "points", "pos": np.zeros((7, 2))},
            GraphError,
            "not one set with positions",
        ),
        ([(5, 5)], None, {}, OptionError, "give target="),
        (
            [(5, 5)],
            0,
            {"heads": 0, "highlight": 2},
            OptionError,
            "heads, highlight: only for one graph",
        ),
        ([(5, 5)], 0, {"layout": "sequence"}, GraphError, 'use "layers"'),
        (
            [(5, 7)],
            0,
            {"tokens": list("abc")},
            ShapeError,
            "all 7 sources of the first layer, got 3",
        ),
    ],
)
def test_refusals(layers, target, options, error, words):
    with pytest.raises(error, match=words):
        plot([random_layer(t, s, 0) for t, s in layers], target=target, **options)
