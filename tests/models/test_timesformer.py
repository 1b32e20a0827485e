"""TimeSformer with the weights of transformers': divided attention, the class token copied and averaged."""

import copy
import pickle

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, ShapeError
from graphattn.models import TimeSformer, from_hf

transformers = pytest.importorskip("transformers", minversion="5.0")
T, P = 3, 4  # frames, places


def hf(kind=transformers.TimesformerForVideoClassification, **options):
    """A model of transformers, which takes square images alone, with norms and biases that are not the trivial ones."""
    torch.manual_seed(4)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    config = transformers.TimesformerConfig(image_size=10, patch_size=5, num_frames=T, **{**sizes, **options})
    made = kind(config).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


def videos(*size):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, *(size or (T, 10, 10)), dtype=torch.float64, generator=generator)


def by_place(x):
    """Frame by frame to place by place, behind the class token."""
    return torch.cat((x[:, :1], x[:, 1:].unflatten(1, (T, P)).transpose(1, 2).flatten(1, 2)), 1)


def close(mine, theirs):
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"qkv_bias": False, "hidden_act": "relu", "layer_norm_eps": 0.1}])
def test_every_layer_and_gradient(options):
    theirs, x = hf(**options), videos().requires_grad_()
    mine, wanted = from_hf(theirs), theirs(x.transpose(1, 2), output_hidden_states=True)
    assert isinstance(mine, TimeSformer)
    close(by_place(mine.nodes(x)), wanted.hidden_states[0])
    close(by_place(mine.layers[0](mine.nodes(x), T, mine.graphs)), wanted.hidden_states[1])
    close(mine(x), wanted.logits)
    found = []
    for model, logits in ((mine, mine(x)), (theirs, wanted.logits)):
        first, *rest = torch.autograd.grad(logits.square().sum(), [x, *model.parameters()])
        found.append((first, torch.cat([g.flatten() for g in rest]).sort().values))
    for one, other in zip(*found, strict=True):
        assert one.abs().max() > 0.01
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_model_without_a_head():
    theirs = hf(transformers.TimesformerModel)
    close(by_place(from_hf(theirs)(videos())), theirs(videos().transpose(1, 2)).last_hidden_state)


def test_a_frame_of_any_shape_reads_its_place_then_its_frame():
    """A wide image, which transformers cannot have; the graphs are written out, and one edge of each is removed."""
    torch.manual_seed(0)
    mine = TimeSformer((T, 4, 6), (2, 2), 1, 8, 2).double()
    places, block, x = 6, mine.layers[0], torch.randn(1, 19, 8, dtype=torch.float64)
    over_time, over_space = mine.graphs
    assert over_time.mask().tolist() == [[t % places == s % places for s in range(18)] for t in range(18)]
    assert over_space.mask().tolist() == [[t // 7 == s // 7 for s in range(21)] for t in range(21)]
    assert mine(videos(T, 4, 6)).shape == (2, 19, 8)

    def changed(*pair):
        return (
            torch.nonzero((block(x, T, pair) - block(x, T, mine.graphs)).abs().amax((0, 2)) > 1e-9).flatten().tolist()
        )

    less = over_time - ga.from_edge_index([[14], [8]], num_nodes=18)  # patch 8 (frame 1, place 2) less frame 2
    assert changed(less, over_space) == [0, *range(7, 13)]  # itself, then its frame; and the class token
    less = over_space - ga.from_edge_index([[10], [8]], num_nodes=21)  # frame 1: place 0 less place 2
    assert changed(over_time, less) == [7]
    less = over_space - ga.from_edge_index([[10], [7]], num_nodes=21)  # the copy of the class token in frame 1
    assert changed(over_time, less) == [0]
    past = graphs.grid_neighbourhood(mine.grid, (T, 1, 1), causal=(True, False, False))
    assert changed(past, over_space) == [0, *range(1, 13)]  # the last frame's past is all there is
    open_past = graphs.grid_neighbourhood(..., (T, 1, 1), causal=(True, False, False))
    rows = ga.disjoint_union([graphs.cell_partition((2, 3), (1, 3)).with_global_tokens(1)] * T)
    video = videos(T, 4, 6)
    assert torch.equal(mine(video, (open_past, graphs.cell_partition(..., (1, 3)))), mine(video, (past, rows)))
    assert not torch.allclose(mine(video, (past, rows)), mine(video, (past, over_space)))


def test_graphs_for_each_layer_and_copies():
    mine = from_hf(hf())
    apart = graphs.cell_partition((T, 2, 2), 1), graphs.cell_partition((T, 5), 1)
    each = [mine(videos(), given) for given in ([mine.graphs, apart], [apart, mine.graphs], mine.graphs, apart)]
    assert all(not torch.allclose(one, other, atol=1e-6) for i, one in enumerate(each) for other in each[:i])
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert torch.equal(other(videos()), mine(videos()))
    rates = [layer.drop_path.p for layer in from_hf(hf(drop_path_rate=1, num_hidden_layers=1)).layers]
    assert rates == [0.0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TimeSformer((4, 8), (4, 4), 1, 8, 2), OptionError, r"size must be \(time, height, width\)"),
        (
            lambda: from_hf(hf())(videos(T + 1, 10, 10)),
            ShapeError,
            r"grid of \(3, 2, 2\) patches; these .* \(4, 2, 2\)",
        ),
        (lambda: from_hf(hf())(videos(), [from_hf(hf()).graphs]), OptionError, "2 layers need as many pairs"),
        (
            lambda: from_hf(hf(attention_type="space_only")),
            OptionError,
            "attention_type = 'space_only' cannot be read; only 'divided_space_time' can",
        ),
        (lambda: from_hf(hf(hidden_dropout_prob=0.1)), OptionError, "hidden_dropout_prob = 0.1 cannot be read; only 0"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
