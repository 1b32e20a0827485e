"""TimeSformer with the weights of transformers': divided attention, the class token copied and
averaged.
"""

import copy
import pickle

import pytest
import torch
from hf_table import theirs
from models.from_transformers import from_transformers
from models.timesformer import TimeSformer

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, ShapeError

T, P = 3, 4  # frames, places


def videos(*size):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, *(size or (T, 10, 10)), dtype=torch.float64, generator=generator)


def test_a_frame_of_any_shape_reads_its_place_then_its_frame():
    """A wide image, which transformers cannot have; the graphs are written out, and one edge of
    each is removed.
    """
    torch.manual_seed(0)
    mine = TimeSformer((T, 4, 6), (2, 2), 1, 8, 2).double()
    places, block, x = 6, mine.layers[0], torch.randn(1, 19, 8, dtype=torch.float64)
    over_time, over_space = mine.graphs
    assert over_time.mask().tolist() == [
        [t % places == s % places for s in range(18)] for t in range(18)
    ]
    assert over_space.mask().tolist() == [[t // 7 == s // 7 for s in range(21)] for t in range(21)]
    assert mine(videos(T, 4, 6)).shape == (2, 19, 8)

    def changed(*pair):
        return (
            torch.nonzero((block(x, T, pair) - block(x, T, mine.graphs)).abs().amax((0, 2)) > 1e-9)
            .flatten()
            .tolist()
        )

    # patch 8 (frame 1, place 2) less frame 2
    less = over_time - ga.from_edge_index([[14], [8]], num_nodes=18)
    # itself, then its frame; and the class token
    assert changed(less, over_space) == [0, *range(7, 13)]
    # frame 1: place 0 less place 2
    less = over_space - ga.from_edge_index([[10], [8]], num_nodes=21)
    assert changed(over_time, less) == [7]
    # the copy of the class token in frame 1
    less = over_space - ga.from_edge_index([[10], [7]], num_nodes=21)
    assert changed(over_time, less) == [0]
    past = graphs.grid_neighbourhood(mine.grid, (T, 1, 1), causal=(True, False, False))
    assert changed(past, over_space) == [0, *range(1, 13)]  # the last frame's past is all there is
    open_past = graphs.grid_neighbourhood(..., (T, 1, 1), causal=(True, False, False))
    rows = ga.disjoint_union([graphs.window_partition((2, 3), (1, 3)).with_global_tokens(1)] * T)
    video = videos(T, 4, 6)
    assert torch.equal(
        mine(video, (open_past, graphs.window_partition(..., (1, 3)))), mine(video, (past, rows))
    )
    assert not torch.allclose(mine(video, (past, rows)), mine(video, (past, over_space)))


def test_graphs_for_each_layer_and_copies():
    mine = from_transformers(theirs("Timesformer"))
    apart = graphs.window_partition((T, 2, 2), 1), graphs.window_partition((T, 5), 1)
    each = [
        mine(videos(), given)
        for given in ([mine.graphs, apart], [apart, mine.graphs], mine.graphs, apart)
    ]
    assert all(
        not torch.allclose(one, other, atol=1e-6)
        for i, one in enumerate(each)
        for other in each[:i]
    )
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert torch.equal(other(videos()), mine(videos()))
    rates = [
        layer.drop_path.p
        for layer in from_transformers(
            theirs("Timesformer", drop_path_rate=1, num_hidden_layers=1)
        ).layers
    ]
    assert rates == [0.0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: TimeSformer((4, 8), (4, 4), 1, 8, 2),
            OptionError,
            r"size must be \(time, height, width\)",
        ),
        (
            lambda: from_transformers(theirs("Timesformer"))(videos(T + 1, 10, 10)),
            ShapeError,
            r"grid of \(3, 2, 2\) patches, .* got \(4, 2, 2\)",
        ),
        (
            lambda: from_transformers(theirs("Timesformer"))(
                videos(), [from_transformers(theirs("Timesformer")).graphs]
            ),
            OptionError,
            "2 layers need as many pairs",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
