"""ViT with the weights of transformers': equal in logits, every node and every gradient, along any
graph.
"""

import pytest
import torch
from hf_table import theirs, transformers
from text_models import shaken

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, ShapeError
from graphattn.models import ViT, from_transformers
from graphattn.models.from_transformers.vit import NAMES
from graphattn.models.from_transformers.weights import fill, renamed
from graphattn.models.images.patches import PatchEmbedding

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
}
GRID, N = (2, 3), 7  # patches, and nodes with the class token


@pytest.fixture
def images():
    return torch.randn(2, 3, 8, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def close(mine, theirs):
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_tokens_in_front_of_the_patches(images):
    """DeiT's distillation token is a second one."""
    mine = ViT((8, 15), (4, 5), 2, 12, 3, num_tokens=2).double()
    around = graphs.grid_neighbourhood(GRID, (1, 3), causal=False, clamp=False).with_global_tokens(
        2
    )
    assert torch.equal(
        mine(images, graphs.grid_neighbourhood(..., (1, 3), causal=False, clamp=False)),
        mine(images, around),
    )
    # the class token less the other
    less = graphs.full(N + 1) - ga.from_edge_index([[1], [0]], num_nodes=N + 1)
    changed = (mine(images, [graphs.full(...), less]) - mine(images)).abs().amax((0, 2)) > 1e-6
    assert changed.tolist() == [True] + [False] * N


def local():
    return graphs.grid_neighbourhood(GRID, (1, 3), causal=False, clamp=False).with_global_tokens(1)


@pytest.mark.parametrize(
    "graph", [local(), graphs.causal(N), graphs.full(N) - graphs.global_tokens(N, (0,))], ids=repr
)
def test_any_graph_is_their_attention_mask(graph, images):
    model = theirs("ViT")
    wanted = model(images, attention_mask=graph.mask().expand(2, 1, N, N)).logits
    close(from_transformers(model)(images, graph), wanted)
    assert not torch.allclose(from_transformers(model)(images), wanted, atol=1e-3)


def test_a_pattern_on_a_grid_is_of_the_patches_behind_the_class_token(images):
    mine = from_transformers(theirs("ViT"))
    around = graphs.grid_neighbourhood(..., (1, 3), causal=False, clamp=False)
    written = mine(images, local())
    assert torch.equal(mine(images, around), written)
    assert torch.equal(mine(images, [around, local()]), written)
    assert torch.equal(mine(images, around.with_global_tokens(1)), written)
    # rows, as written
    assert torch.equal(mine(images, around & graphs.window_partition(..., (1, 3))), written)
    assert mine.graphs(around) is mine.graphs(around)  # with its plan
    assert mine.graphs(graphs.causal(...)).name == "causal(...)"  # of all nodes
    assert not torch.allclose(mine(images, graphs.window_partition(..., 1)), written, atol=1e-3)


def test_one_number_for_both_sides_and_paths_dropped_from_layer_to_layer():
    made = ViT(8, 4, 3, 8, 2, drop_path=0.2)
    assert (made.grid, made.patches.patch) == ((2, 2), (4, 4))
    assert [block.branch[1].p for block in made.encoder.layers] == pytest.approx([0.0, 0.1, 0.2])
    x = torch.randn(4, 3, 8, 8)
    assert not torch.equal(made(x), made(x))
    assert torch.equal(made.eval()(x), made(x))


def test_of_videos_it_is_a_vivit():
    torch.manual_seed(4)
    sizes = {
        "image_size": (8, 15),
        "num_frames": 4,
        "tubelet_size": (2, 4, 5),
        "hidden_act": "gelu",
    }
    model = shaken(
        transformers.VivitModel(transformers.VivitConfig(**sizes, **SIZES), add_pooling_layer=False)
    )
    mine, x = (
        ViT((4, 8, 15), (2, 4, 5), 2, 12, 3, 20, eps=1e-6).double().eval(),
        torch.randn(2, 3, 4, 8, 15).double(),
    )
    fill(mine, renamed(model, NAMES))
    close(mine(x), model(x.transpose(1, 2)).last_hidden_state)
    space, time = graphs.window_partition(..., (1, 2, 3)), graphs.window_partition(..., (2, 1, 1))
    written = [layer((2, 2, 3)).with_global_tokens(1) for layer in (space, time)]
    assert torch.equal(mine(x, [space, time]), mine(x, written))
    assert not torch.allclose(mine(x, [space, time]), mine(x), atol=1e-3)
    bare = ViT((4, 8, 15), (2, 4, 5), 2, 12, 3, num_tokens=0, num_classes=5)
    assert torch.equal(bare(x.float()), bare.head(bare.features(x.float()).mean(-2)))


def test_nodes_are_patches_row_by_row(images):
    layer = PatchEmbedding(3, 7, (4, 5)).double()
    nodes = layer(images).unflatten(-2, layer.grid((8, 15)))
    for row in range(2):
        for column in range(3):
            patch = images[:, :, 4 * row : 4 * row + 4, 5 * column : 5 * column + 5]
            by_hand = (
                torch.einsum("bchw,kchw->bk", patch, layer.projection.weight)
                + layer.projection.bias
            )
            close(nodes[:, row, column], by_hand)
    close(layer(images[0]), layer(images)[0])
    padding = PatchEmbedding(3, 7, (4, 5), pad=True).double()
    padding.load_state_dict(layer.state_dict())
    short = images[..., :6, :13]
    close(padding(short), layer(torch.nn.functional.pad(short, (0, 2, 0, 2))))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: ViT((2, 8, 8), (4, 4), 1, 8, 2),
            OptionError,
            r"patch must be \(time, height, width\), got \(4, 4\)",
        ),
        (
            lambda: ViT((8,), (4, 4), 1, 8, 2),
            OptionError,
            r"size must be \(height, width\), got \(8,\)",
        ),
        (
            lambda: ViT((8, 9), (4, 4), 1, 8, 2),
            ShapeError,
            r"multiple of the patch \(4, 4\) .* got \(8, 9\)",
        ),
        (
            lambda: ViT((8, 16), (4, 4), 1, 8, 2)(torch.randn(3, 16, 8)),
            ShapeError,
            r"grid of \(2, 4\) patches",
        ),
        (
            lambda: ViT((8, 8), (4, 4), 1, 8, 2)(torch.randn(3, 8, 8), graphs.full(6)),
            ShapeError,
            "x has 5 nodes .* but the graph has 6 targets",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
