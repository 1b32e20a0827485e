"""Pictures hold what they say: the mask, the edges, the neighbourhoods, the weights."""

import concurrent.futures
import io
import sys

import fresh_python
import numpy as np
import pytest
import torch

from graphattn.errors import GraphError, GraphIndexError, MissingExtraError, ShapeError
from graphattn.graph.forms import band, of_function, product
from graphattn.graph.graph import AttentionGraph
from graphattn.graph.listed import checked
from graphattn.graph.pictures.html import block_shares
from graphattn.graphs.grid.axes import cells
from graphattn.graphs.grid.cells_and_windows import axis_neighbourhood
from graphattn.viz import plot
from graphattn.viz.choice import sources_of, spread_targets
from graphattn.viz.layouts.pick import layout_of, points_of
from graphattn.viz.style import broken

pytestmark = pytest.mark.slow


def listed(
    pairs: list[tuple[int, int]], num_targets: int, num_sources: int, **keep: str
) -> AttentionGraph:
    index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    return AttentionGraph(checked(index, num_targets, num_sources, **keep), "listed")


def random_graph(
    num_targets: int, num_sources: int, density: float, seed: int = 0
) -> AttentionGraph:
    chance = torch.rand(num_targets, num_sources, generator=torch.Generator().manual_seed(seed))
    target, source = torch.nonzero(chance < density, as_tuple=True)
    return AttentionGraph(
        checked(torch.stack((source, target)), num_targets, num_sources), "random"
    )


def causal(n: int) -> AttentionGraph:
    return AttentionGraph(band(n, n, lo=0), f"causal({n})")


def swin(height: int, width: int) -> AttentionGraph:
    return AttentionGraph(product((cells(height, 3, 1), cells(width, 5, 2))), "swin")


def points(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def artist(figure, gid: str):
    found = [a for ax in figure.axes[:2] for a in ax.get_children() if a.get_gid() == gid]
    assert len(found) == 1, f"{len(found)} artists called {gid!r}"
    return found[0]


def png(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def caption(figure) -> str:
    return figure.get_supxlabel().replace("\n", " ")


GRAPHS = {
    "full": AttentionGraph(band(7, 7), "full"),
    "causal": causal(11),
    "window": AttentionGraph(band(13, 13, lo=-2, hi=2), "window"),
    "cross": AttentionGraph(band(5, 11, lo=-3, hi=2), "cross"),
    "grid": swin(7, 11),
    "isolated": listed([(0, 1), (2, 1)], 5, 5),
    "no edges": listed([], 5, 7),
    "repeated": listed([(1, 2), (0, 2), (1, 2)], 3, 3, duplicates="keep"),
    "hub": listed([(s, 3) for s in range(17)], 5, 17),
    "one node": listed([(0, 0)], 1, 1),
    "zero nodes": listed([], 0, 0),
    "network": random_graph(19, 19, 0.2),
    "long": AttentionGraph(band(1009, 1009, lo=0, hi=130), "long"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_draws_its_mask(name):
    graph, figure = GRAPHS[name], plot(GRAPHS[name])
    assert png(figure).startswith(b"\x89PNG")
    if graph.num_targets * graph.num_sources == 0 or name == "long":
        return
    axes = figure.axes[0]
    assert np.array_equal(np.asarray(axes.images[0].get_array()) > 0, graph.mask().numpy())
    left, right, bottom, top = axes.images[0].get_extent()
    assert (left, right, bottom, top) == (
        -0.5,
        graph.num_sources - 0.5,
        graph.num_targets - 0.5,
        -0.5,
    )
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("source", "target")


def test_large_mask_shows_shares_of_tiles():
    graph = random_graph(523, 769, 0.01)
    figure = plot(graph)
    share = figure.axes[0].images[0].get_array()
    mask = torch.nn.functional.pad(graph.mask().double(), (0, 0, 0, 2))[:, :]
    full = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(mask, (0, 1))[None], (5, 7))[0]
    inner = (slice(0, 523 // 5), slice(0, 769 // 7))
    np.testing.assert_allclose(np.ma.filled(share, 0.0)[inner], full[inner].numpy())
    assert "5 targets by 7 sources" in caption(figure)


def test_shares_count_the_ragged_border():
    full = AttentionGraph(band(7, 11), "full")
    assert torch.equal(block_shares(full.edges, 3, 5), torch.ones(3, 3).double())


def test_a_million_nodes_draw_in_a_second():
    figure = plot(causal(1_000_000))
    share = np.ma.filled(figure.axes[0].images[0].get_array(), 0.0)
    assert share[-1, 0] == 1.0
    assert share[0, -1] == 0.0
    assert "500,000,500,000 edges" in caption(figure)
    assert max(share.shape) <= 256


def test_a_costly_rule_is_described_instead():
    rule = AttentionGraph(of_function(20_011, 20_021, lambda t, s: t == s), "rule")
    figure = plot(rule, highlight=())
    assert "too costly" in figure.axes[0].texts[0].get_text()


@pytest.mark.parametrize("height", [2.8, 8.0])
def test_a_narrow_figure_has_its_legend_under_the_caption_and_a_tall_one_stacks_panels(height):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0, height), layout="constrained")
    plot(causal(64), highlight=[20, 40], figure=figure)
    figure.canvas.draw()
    boxes = [drawn.get_window_extent() for drawn in (figure._supxlabel, figure.legends[0])]
    assert caption(figure).startswith("Mask:")
    lines = figure.get_supxlabel()
    written = len(lines.rstrip().splitlines()) / (lines.count("\n") + 1)
    assert boxes[0].y1 - written * boxes[0].height >= boxes[1].y1
    left, right = (axes.get_position() for axes in figure.axes)
    assert (left.y0 > right.y1) == (height > 4.0)
    assert (left.x1 < right.x0) == (height < 4.0)


def heads_of(place, source, target):
    """Where heads are, (n, 2), and the unit vectors along which they point."""
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    place.ground(ax)
    sentences = place.edges(ax, np.array(source), np.array(target))
    heads = [drawn for drawn in ax.get_children() if drawn.get_gid() == "heads"]
    if not heads:
        return np.empty((0, 2)), np.empty((0, 2)), sentences
    return heads[0].get_offsets(), np.stack((heads[0].U, heads[0].V), 1), sentences


def test_a_head_points_from_a_source_to_its_target():
    at, way, _ = heads_of(points_of(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), None), [0], [1])
    np.testing.assert_allclose(at, [[0.58 * 3, 0.58 * 4]])
    np.testing.assert_allclose(way, [[0.6, 0.8]])
    graph = listed([(2, 0)], 1, 3)  # of two rows sources are below
    _, way, _ = heads_of(layout_of(graph), [2], [0])
    assert way[0, 1] > 0
    above, below = (heads_of(layout_of(causal(5)), *ends) for ends in (([1], [4]), ([4], [1])))
    assert above[1][0, 0] > 0 > below[1][0, 0]
    assert above[0][0, 1] > 0 > below[0][0, 1]


def test_a_line_that_two_edges_share_has_no_head_and_a_loop_has_none():
    place = points_of(points(4, 2), None)
    at, _, sentences = heads_of(place, [0, 1, 1, 3], [1, 0, 2, 3])
    assert len(at) == 1
    assert sentences == ["A line without a head runs both ways."]
    assert heads_of(place, [0, 1], [1, 0])[2] == ["Every line runs both ways."]
    assert heads_of(place, [0, 1], [1, 2])[2] == []
    # arcs of both ways are two lines
    assert len(heads_of(layout_of(causal(5)), [0, 1, 2], [1, 0, 2])[0]) == 2


def test_few_lines_to_a_marked_target_have_heads_where_there_is_room():
    pos = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.99, 0.01], [0.0, 1.0]])
    graph = listed([(0, 1), (2, 1), (3, 1)], 4, 4)
    figure = plot(graph, pos, highlight=1)
    assert len(artist(figure, "heads of 1").get_offsets()) == 2


@pytest.mark.parametrize("name", ["causal", "window", "cross", "network"])
def test_every_edge_of_a_small_graph_is_drawn(name):
    graph = GRAPHS[name]
    assert len(artist(plot(graph), "edges").get_paths()) == graph.num_edges


def test_copies_of_an_edge_are_drawn_once():
    assert len(artist(plot(GRAPHS["repeated"]), "edges").get_paths()) == 2


@pytest.mark.parametrize("d", [2, 3])
def test_highlighted_sources_are_the_neighbourhood(d):
    graph, pos = random_graph(97, 97, 0.08), points(97, d)
    figure = plot(graph, pos, highlight=[5, 23])
    for target in (5, 23):
        dots = artist(figure, f"sources of {target}")
        place = points_of(pos, None)
        place.frame()
        wanted = place.flat(pos[graph.mask()[target]].numpy())
        assert len(wanted) > 0
        np.testing.assert_allclose(dots.get_offsets(), wanted)
    rows = [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_gid() == "row"]
    assert rows == [5, 23]


def test_lines_run_from_the_sources_to_the_target():
    graph, pos, queries = random_graph(13, 31, 0.3), points(31, 2), points(13, 2, seed=1)
    lines = artist(plot(graph, pos, queries=queries, highlight=7), "edges of 7")
    ends = np.stack([path.vertices for path in lines.get_paths()])
    np.testing.assert_allclose(ends[:, 0], pos[graph.mask()[7]].numpy())
    np.testing.assert_allclose(ends[:, 1], queries[[7]].expand(len(ends), 2).numpy())


def test_grid_tints_the_cells_of_the_neighbourhood():
    graph = AttentionGraph(
        product((axis_neighbourhood(7, 3), axis_neighbourhood(11, 5))), "neighbourhood"
    )
    cells = artist(plot(graph, highlight=9), "sources of 9").get_paths()
    centres = np.stack([path.vertices[:4].mean(0) for path in cells])
    rows, columns = np.nonzero(graph.mask()[9].reshape(7, 11).numpy())
    np.testing.assert_allclose(centres, np.stack((columns, rows), 1))
    assert len(centres) == 15


@pytest.mark.parametrize("number", [1, 3, 13])
def test_a_grid_keeps_its_cells_behind_global_tokens(number):
    """Tokens stand in rows of their own above the cells, whatever else was done with the graph."""
    import graphattn as ga

    cells = ga.graphs.window_partition((7, 11), 2, pad=True)
    grid = ga.graphs.grid_neighbourhood((7, 11), 3, causal=False) | cells
    graph = grid.with_global_tokens(number).without_self_loops()
    figure = plot(graph, highlight=number + 9)
    paths = artist(figure, f"sources of {number + 9}").get_paths()
    centres = np.stack([path.vertices[:4].mean(0) for path in paths])
    sources = np.nonzero(graph.mask()[number + 9].numpy())[0]
    on_grid = np.stack(np.divmod(sources[sources >= number] - number, 11)[::-1], 1)
    np.testing.assert_allclose(centres[number:], on_grid)
    assert (centres[:number, 1] <= -2).all()  # a row between them and the cells is empty
    assert len(np.unique(centres, axis=0)) == len(sources)
    come = "tokens come"
    if number == 1:
        come = "token comes"
    assert f"{number} global {come} first" in caption(figure)
    assert f"node = {number} + row * width + column" in caption(figure)
    png(figure)
    assert [label for label in _row_labels(figure) if label.startswith(("-", "\u2212"))] == []
    layers = plot([graph.with_self_loops()] * 2, target=number + 9)
    assert "after layer 0" in layers.axes[0].get_title()
    with pytest.raises(ShapeError, match=r"height \* width = 77 nodes"):
        plot(graph, size=(7 * 11 + number, 1))


def _row_labels(figure):
    """Labels of rows that are drawn: a locator has ticks beyond the limits, too."""
    labels = []
    for axes in figure.axes:
        low, high = sorted(axes.get_ylim())
        ticks = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        labels += [label.get_text() for place, label in ticks if low <= place <= high]
    return labels


def test_arcs_read_back_above_and_ahead_below():
    graph = listed([(0, 3), (4, 1)], 5, 5)
    heights = [
        path.vertices[16, 1] for path in artist(plot(graph, layout="sequence"), "edges").get_paths()
    ]
    starts = [
        path.vertices[0, 0] for path in artist(plot(graph, layout="sequence"), "edges").get_paths()
    ]
    assert dict(zip(starts, np.sign(heights), strict=True)) == {0.0: 1.0, 4.0: -1.0}


def test_the_caption_says_what_is_left_out():
    assert "Of 123,664 edges only those into" in caption(plot(GRAPHS["long"]))
    assert "At most 160 per target" in caption(plot(causal(1009), highlight=1000))
    loops = listed([(0, 0), (0, 1), (1, 0), (2, 1)], 3, 3)
    assert "Self-loops are not drawn" in caption(plot(loops, layout="network"))


@pytest.mark.parametrize("d", [2, 3])
def test_two_sets_of_points_have_no_self_loops(d):
    here = plot(listed([(0, 0), (1, 2)], 3, 3), points(3, d))
    assert here.get_suptitle().startswith("listed: 3 nodes, 2 edges")
    assert "Self-loops are not drawn" in caption(here)
    figure = plot(listed([(0, 0), (1, 2)], 3, 3), points(3, d), queries=points(3, d, seed=1))
    assert figure.get_suptitle().startswith("listed: 3 sources → 3 targets, 2 edges")
    assert "Self-loops" not in caption(figure)
    assert "Grey dots are sources, grey crosses are targets." in caption(figure)


def test_the_caption_names_the_marks_that_are_there():
    pos, queries = points(7, 2), points(5, 2, seed=1)
    on_a_mesh = plot(random_graph(5, 7, 0.4), pos, queries=queries, faces=[[0, 1, 2]])
    assert "Grey crosses are targets." in caption(on_a_mesh)
    assert "dots" not in caption(on_a_mesh)
    assert len(artist(on_a_mesh, "targets").get_offsets()) == 5
    assert "Grey" not in caption(plot(random_graph(7, 7, 0.4), pos))


@pytest.mark.parametrize(
    ("graph", "options", "words"),
    [
        (causal(5), {}, "Arcs above the line read earlier nodes."),
        (listed([(4, 1)], 5, 5), {"layout": "sequence"}, "Arcs below the line read later nodes."),
        (
            listed([(4, 1), (0, 3)], 5, 5),
            {"layout": "sequence"},
            "read earlier nodes and below it later ones.",
        ),
        (swin(7, 11), {"highlight": 3}, "Tinted cells are the sources of the marked target."),
    ],
)
def test_the_caption_says_how_edges_are_read_where_some_are_drawn(graph, options, words):
    assert words in caption(plot(graph, **options))
    nothing = listed([], graph.num_targets, graph.num_sources)
    where = {"size": (7, 11)} if graph.num_nodes == 77 else {"layout": "sequence"}
    assert "Arcs" not in caption(plot(nothing, **where))
    assert "Tinted" not in caption(plot(nothing, **where))


def test_without_a_highlight_no_edge_of_a_large_graph_is_drawn():
    said = caption(plot(GRAPHS["long"], highlight=()))
    assert "Edges are not drawn." in said
    assert "Arcs" not in said


def test_a_pair_of_tokens_says_that_there_are_two_sets():
    figure = plot(AttentionGraph(band(3, 3), "cross"), tokens=(["a", "b", "c"], ["x", "y", "z"]))
    assert figure.get_suptitle().startswith("cross: 3 sources → 3 targets, 9 edges")
    assert [text.get_text() for text in figure.axes[1].texts] == list("abcxyz")
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == list("xyz")
    half = plot(AttentionGraph(band(3, 3), "cross"), tokens=(None, ["x", "y", "z"]))
    assert [text.get_text() for text in half.axes[1].texts] == list("xyz")
    words = plot(AttentionGraph(band(2, 2), "full"), tokens=("ab", "cd"))  # two words, one set
    assert words.get_suptitle().startswith("full: 2 nodes")


def test_the_legend_counts_the_sources():
    figure = plot(
        causal(11), tokens=["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"], highlight=6
    )
    (text,) = figure.axes[1].get_legend().get_texts()
    assert text.get_text() == "“g” (6) reads 7 sources"


def test_targets_of_their_own_accord_share_no_source():
    graph = swin(14, 14)
    where = np.stack(np.divmod(np.arange(196), 14), 1).astype(float)
    chosen = spread_targets(graph, where)
    drawn = np.concatenate([sources_of(graph, target) for target in chosen])
    assert len(chosen) == 3
    assert len(np.unique(drawn)) == len(drawn)


def test_spread_targets_skip_the_isolated():
    assert spread_targets(GRAPHS["isolated"], np.arange(5.0)[:, None]) == [1]
    assert spread_targets(GRAPHS["no edges"], np.arange(5.0)[:, None]) == []


@pytest.mark.parametrize(
    ("graph", "arguments", "words"),
    [
        (
            causal(5),
            {"pos": torch.zeros(7, 2)},
            r"pos must have shape \(5, 2\) or \(5, 3\), got \(7, 2\)",
        ),
        (causal(5), {"pos": torch.zeros(5, 7)}, r"\(5, 3\), got \(5, 7\)"),
        (
            causal(5),
            {"pos": torch.zeros(5, 2), "queries": torch.zeros(5, 3)},
            r"queries must have shape \(5, 2\), got \(5, 3\)",
        ),
        (causal(5), {"pos": torch.full((5, 2), float("nan"))}, "finite"),
        (causal(5), {"pos": torch.zeros(5, 2), "faces": [[0, 1, 5]]}, r"faces must be in \[0, 5\)"),
        (
            causal(5),
            {"pos": torch.zeros(5, 2), "faces": torch.zeros(3, 3)},
            "faces must be integers",
        ),
        (causal(6), {"size": (2, 2)}, "height . width = 6 nodes"),
        (causal(6), {"size": (2, 3), "image": torch.zeros(3, 2)}, r"\(2, 3\), got \(3, 2\)"),
        (causal(5), {"tokens": ["a", "b"]}, "name all 5 targets.* got 2"),
        (GRAPHS["cross"], {"tokens": ["a"] * 5}, "pair"),
        (causal(3), {"tokens": (["a"] * 3, ["b"] * 4)}, "name all 3 sources.* got 4"),
    ],
)
def test_shapes_that_do_not_fit(graph, arguments, words):
    with pytest.raises(ShapeError, match=words):
        plot(graph, **arguments)


@pytest.mark.parametrize(
    ("graph", "arguments", "words"),
    [
        (causal(5), {"layout": "spiral"}, 'layout must be "sequence", "two rows"'),
        (causal(5), {"layout": "points"}, "needs pos"),
        (causal(5), {"layout": "sequence", "pos": torch.zeros(5, 2)}, 'pos is for layout "points"'),
        (GRAPHS["cross"], {"layout": "sequence"}, "needs a square graph"),
        (GRAPHS["cross"], {"pos": torch.zeros(11, 2)}, "pass queries, those of the 5 targets"),
        (
            causal(3),
            {"pos": torch.zeros(3, 2), "tokens": (["a"] * 3, ["b"] * 3)},
            "pass queries, those of the 3 targets",
        ),
        (
            causal(3),
            {"layout": "sequence", "tokens": (["a"] * 3, ["b"] * 3)},
            'has one set of nodes.*"two rows"',
        ),
        (causal(1009), {"layout": "network"}, "at most 1000 nodes"),
        (causal(11), {"highlight": range(7)}, "at most 6 targets"),
        (
            causal(2**62),
            {},
            "at most 16,777,216; got 4,611,686,018,427,387,904: draw a smaller graph",
        ),
        (causal(11), {"highlight": [0.5]}, "integers .int64. of targets"),
        (causal(11), {"figure": "fig"}, "got str"),
    ],
)
def test_pictures_that_cannot_be(graph, arguments, words):
    with pytest.raises(GraphError, match=words):
        plot(graph, **arguments)


def test_no_such_target():
    with pytest.raises(GraphIndexError, match=r"highlight must be in \[0, 11\)"):
        plot(causal(11), highlight=11)


def test_it_draws_into_a_given_figure_and_not_over_one():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subfigures(1, 2)
    assert plot(causal(5), figure=left) is left
    assert len(left.axes) == 2
    assert not right.axes
    png(figure)
    with pytest.raises(GraphError, match="must be empty"):
        plot(causal(5), figure=left)


def test_threads_draw_the_same_picture():
    graph = random_graph(29, 29, 0.2)
    alone = png(plot(graph))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert set(pool.map(lambda _: png(plot(graph)), range(4))) == {alone}


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        MissingExtraError, match=r"needs matplotlib: pip install 'graphattn\[plot\]'"
    ):
        plot(causal(5))


def test_neither_import_nor_plot_touches_pyplot():
    code = (
        "import sys, graphattn.viz; assert 'matplotlib' not in sys.modules\n"
        "graphattn.viz.plot(graphattn.graphs.full(5)); assert 'matplotlib.pyplot' not in "
        "sys.modules"
    )
    fresh_python.run(code, expect=0)


def test_a_mask_is_no_graph():
    with pytest.raises(
        GraphError, match=r"graph must be an .* got Tensor; .* wrap it with graphattn\.from_mask"
    ):
        plot(torch.ones(5, 5).bool())


def test_many_arcs_are_thinned_to_a_few_targets():
    graph = AttentionGraph(band(64, 64, lo=-8, hi=0), "window")
    figure = plot(graph)
    assert "Of 540 edges only those into 3 targets are drawn." in caption(figure)
    assert len(figure.axes[1].get_legend().get_texts()) == 3


def test_targets_of_their_own_accord_may_share_a_global_source():
    window = AttentionGraph(band(999, 999, lo=-30, hi=0), "window")
    star = AttentionGraph(of_function(999, 999, lambda t, s: s == 500), "star")
    assert len(spread_targets(window | star, np.arange(999.0)[:, None])) == 3


def test_a_thin_line_of_a_large_mask_is_seen():
    """One source that all read: an edge in each row of its cells, 1 in 32, is well apart from
    white.
    """
    star = listed([(1000, t) for t in range(4096)], 4096, 4096)
    full = listed([(s, t) for t in range(32) for s in range(32)], 4096, 4096)
    axes = plot(full | star).axes[0]
    (image,) = axes.images
    column = image.to_rgba(image.get_array())[:, 1000 // 32]
    assert image.get_array()[40, 1000 // 32] == 1 / 32
    assert (column[:, 0] < 0.6).all()
    assert (image.to_rgba(image.get_array())[40, 5, 3]) == 0.0  # no edge, nothing drawn


def test_titles_break_between_phrases():
    title = (
        "sliding_window(4096, 257, causal=False) | global_tokens(4096, [0, 1]): 4,096 nodes, "
        "9 edges, density 0.1"
    )
    assert broken(title, 200) == title
    assert broken(title, 45).splitlines() == [
        "sliding_window(4096, 257, causal=False) |",
        "global_tokens(4096, [0, 1]):",
        "4,096 nodes, 9 edges, density 0.1",
    ]
    assert max(map(len, broken("x" * 99 + ": 3 nodes", 40).splitlines())) <= 40


def test_a_cloud_fills_its_panel():
    figure = plot(random_graph(97, 97, 0.05), points(97, 2))
    mask, cloud = (axes.get_position().width * figure.get_figwidth() for axes in figure.axes[:2])
    assert cloud > 1.3 * mask


def test_a_window_of_a_long_sequence_is_shown_close_up():
    figure = plot(
        AttentionGraph(band(1_000_000, 1_000_000, lo=0, hi=99), "window"), highlight=500_000
    )
    close = figure.axes[-1]
    assert close.get_title() == "close-up of target 500,000"
    left, right = close.get_xlim()
    assert 499_700 < left < 499_901 < 500_000 < right < 500_100
    (dots,) = [a for a in close.get_children() if a.get_gid() == "sources of 500000"]
    assert np.asarray(dots.get_offsets())[:, 0].tolist() == list(range(499_901, 500_001))
    assert len(plot(AttentionGraph(band(161, 161, lo=0, hi=99), "wide"), highlight=150).axes) == 2


def test_a_lone_target_faces_the_eye():
    pos = points(67, 3)
    for target in (int(pos[:, 0].argmin()), int(pos[:, 0].argmax())):
        place = points_of(pos, None)
        place.face(target)
        place.frame()
        (drawn,) = artist(
            plot(random_graph(67, 67, 0.5), pos, highlight=target), f"target {target}"
        ).get_offsets()
        np.testing.assert_allclose(drawn, place.flat(pos[[target]].numpy())[0])
        out = (pos[target] - (pos.min(0).values + pos.max(0).values) / 2).numpy()
        azimuth = np.radians(place.view.azimuth)
        assert out[:2] @ [np.cos(azimuth), np.sin(azimuth)] > 0.8 * np.hypot(*out[:2])


def test_faces_are_lit_whichever_way_round_they_are_given():
    pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0.1]])
    shades = []
    for faces in ([[0, 1, 2], [1, 3, 2]], [[0, 2, 1], [1, 2, 3]], [[0, 2, 1], [1, 3, 2]]):
        figure = plot(AttentionGraph(band(4, 4), "full"), pos, faces=faces)
        shades.append(np.asarray(artist(figure, "surface").get_array()))
    np.testing.assert_allclose(shades[0], shades[1], atol=1e-6)
    np.testing.assert_allclose(shades[0], shades[2], atol=1e-6)


def test_tokens_are_words_not_formulas():
    figure = plot(causal(3), tokens=["$\\foo$", "a$", "$b$"], highlight=0)
    assert png(figure).startswith(b"\x89PNG")
    drawn = [label for axes in figure.axes[:2] for label in axes.get_xticklabels()]
    assert len(drawn) == 6
    (named,) = figure.axes[1].get_legend().get_texts()
    for text, words in zip(
        (*drawn, named),
        (*2 * ["$\\foo$", "a$", "$b$"], "“$\\foo$” (0) reads 1 source"),
        strict=True,
    ):
        # what matplotlib draws, and that it is no formula
        assert text._preprocess_math(text.get_text()) == (
            words,
            False,
        )
    names = (["$\\x$", "b"], ["$c$", "d$"])
    for layout, tokens in (("two rows", names), ("network", names[0])):
        assert png(
            plot(AttentionGraph(band(2, 2), "$\\full$"), tokens=tokens, layout=layout, highlight=1)
        )


def test_long_tokens_are_cut_alike():
    figure = plot(causal(5), tokens=["antidisestablishmentarianism", "a", "b", "c", "d"])
    masks, arcs = (
        [label.get_text() for label in axes.get_xticklabels()] for axes in figure.axes[:2]
    )
    assert masks == arcs == ["antidisestabl…", "a", "b", "c", "d"]


@pytest.mark.parametrize("highlight", [(), [5, 40, 60]])
def test_one_column_of_a_paper_is_enough(highlight):
    """In 3.3 by 2.2 inches all words are within the figure, and none lie on another."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3, 2.2))
    plot(
        AttentionGraph(band(64, 64, lo=0, hi=8), "window"),
        figure=figure,
        highlight=highlight,
        caption=False,
    )
    figure.draw_without_rendering()
    words = [
        figure._suptitle,
        *(part for axes in figure.axes for part in (axes.xaxis.label, axes.yaxis.label)),
    ]
    words += [text for legend in figure.legends for text in legend.get_texts()]
    words += [
        tick.label1
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis._update_ticks()
    ]
    boxes = [word.get_window_extent() for word in words if word.get_text() and word.get_visible()]
    assert len(boxes) > 10
    for i, box in enumerate(boxes):
        assert min(box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1) >= 0
        assert not any(box.overlaps(other) for other in boxes[:i])
    assert figure.get_suptitle() == "window"
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == [
        f"target {target}" for target in highlight
    ]


def test_without_title_legend_or_caption():
    figure = plot(causal(64), highlight=3, title=False, legend=False, caption=False)
    assert not figure.get_supxlabel()
    assert not figure.get_suptitle()
    assert figure.axes[1].get_legend() is None
    assert len(plot(causal(64), highlight=3).axes[1].get_legend().get_texts()) == 1


def test_a_global_token_is_among_the_targets_of_their_own_accord():
    window = AttentionGraph(band(512, 512, lo=-8, hi=8), "window")
    hub = AttentionGraph(of_function(512, 512, lambda t, s: (t == 77) | (s == 77)), "hub")
    where = np.arange(512.0)[:, None]
    assert 77 in spread_targets(window | hub, where)
    assert 77 not in spread_targets(window, where)
    assert len(spread_targets(window | hub, where)) == 3


def test_a_grid_of_three_axes_says_that_it_lies_on_a_line():
    video = AttentionGraph(product((cells(2, 2), cells(6, 3), cells(5, 5))), "video")
    words = "The grid of 2 x 6 x 5 cells lies on one line, the last axis fastest."
    assert words in caption(plot(video))
    assert words in caption(plot(video | AttentionGraph(band(60, 60, lo=0, hi=0), "loops")))
    assert "on one line" not in caption(plot(causal(60)))


def test_graphs_of_heads_and_layers_say_what_to_pass():
    import graphattn as ga

    heads = ga.PerHead((ga.graphs.causal(5), ga.graphs.self_loops(5)))
    for given, words in (
        (heads, r"got PerHead; pass one of its \.graphs, or \.union\(\)"),
        (ga.graphs.causal(...), r"got Pattern; .*pattern\(num_nodes\)"),
    ):
        with pytest.raises(GraphError, match=words):
            plot(given)
