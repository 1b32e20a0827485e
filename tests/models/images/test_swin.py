"""Swin with the weights of transformers': every stage, padding, shifts, merging; and what its nodes
depend on.
"""

import pytest
import torch
from hf_table import theirs, transformers
from torch.nn import functional as F

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, OptionError, ShapeError
from graphattn.models import Swin, from_transformers
from graphattn.models.from_transformers.weights import fill, renamed
from graphattn.models.images.merging import PatchMerging
from graphattn.models.images.swin_stage import window_graphs


def hf(kind=transformers.SwinModel, size=(24, 36), **options):
    """A model of transformers in float64 whose norms, biases and tables are not the trivial
    ones.
    """
    torch.manual_seed(4)
    sizes = {
        "embed_dim": 6,
        "depths": (2, 2),
        "num_heads": (2, 3),
        "window_size": 3,
        "patch_size": 2,
        "mlp_ratio": 2.0,
    }
    config = transformers.SwinConfig(image_size=size, num_labels=5, **{**sizes, **options})
    model = kind._from_config(config, attn_implementation="sdpa").double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


NAMES = {
    "^swin.": "",
    "embeddings.patch_embeddings.": "patches.",
    "embeddings.norm.": "patch_norm.",
    "encoder.layers.": "stages.",
    ".blocks.": ".layers.",
    "layers.(\\d+).attention.relative_position_bias.relative_position_bias_table": "biases.\\1.table.weight",
    ".attention.o_proj.": ".attention.out_proj.",
    ".mlp.fc1.": ".feed_forward.up.",
    ".mlp.fc2.": ".feed_forward.down.",
    ".layernorm_before.": ".attention_norm.",
    ".layernorm_after.": ".feed_forward_norm.",
    ".downsample.": ".merge.",
    "^layernorm.": "norm.",
    "^classifier.": "head.",
}


def converted(theirs):
    """Ours with their weights: an oracle, since ``ga.patch`` reaches Swin itself."""
    config = theirs.config
    sizes = config.embed_dim, config.depths, config.num_heads, config.window_size, config.patch_size
    classes = config.num_labels if hasattr(theirs, "classifier") else None
    options = {
        "hidden_ratio": config.mlp_ratio,
        "activation": config.hidden_act,
        "drop_path": config.drop_path_rate,
    }
    made = Swin(*sizes, num_classes=classes, **options).train(theirs.training)
    fill(made, renamed(theirs, NAMES))
    return made


def images(size=(24, 36)):
    return torch.randn(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def close(mine, theirs):
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


DEEP = {"depths": (1, 3, 2), "num_heads": (1, 2, 3), "window_size": 4, "hidden_act": "relu"}


# also padded, odd, small
@pytest.mark.parametrize("size", [(24, 36), (20, 28), (23, 31), (12, 12), (40, 44)], ids=str)
def test_every_stage(size):
    theirs = hf(size=size, **(DEEP if size == (40, 44) else {}))
    mine, x = converted(theirs), images(size)
    assert isinstance(mine, Swin)
    wanted = theirs(x, output_hidden_states=True)
    for found, state in zip(mine.hidden(x), wanted.hidden_states, strict=True):
        close(found, state)
    close(mine.features(x), wanted.last_hidden_state)
    close(mine(x).mean(-2), wanted.pooler_output)


@pytest.mark.parametrize("size", [(24, 36), (20, 28)], ids=["whole", "padded"])
def test_gradients(size):
    theirs = hf(transformers.SwinForImageClassification, size, qkv_bias=False)
    mine, x = converted(theirs), images(size)
    found = []
    for model, result in ((mine, mine(x)), (theirs, theirs(x).logits)):
        found.append((result, torch.autograd.grad(result.square().sum(), list(model.parameters()))))
    close(found[0][0], found[1][0])
    mine_all, theirs_all = (
        torch.cat([g.flatten() for g in given]).sort().values for _, given in found
    )
    assert (mine_all != 0).double().mean() > 0.9
    torch.testing.assert_close(mine_all, theirs_all, rtol=1e-10, atol=1e-10)


def test_a_grid_one_cell_high_or_smaller_than_the_window():
    theirs = hf(size=(6, 40), depths=(2,), num_heads=(2,))
    close(converted(theirs)(images((6, 40))), theirs(images((6, 40))).last_hidden_state)
    mine = Swin(6, (2,), (2,), window=3, patch=(2, 2), hidden_ratio=2.0).double()
    # theirs refuses a window of 3 on 2 rows
    smaller = hf(size=(4, 10), depths=(2,), num_heads=(2,), window_size=2)
    tables = [bias.table.weight for bias in converted(smaller).stages[0].biases]
    state = {
        **mine.state_dict(),
        **{k: v for k, v in converted(smaller).state_dict().items() if "table" not in k},
    }
    for number, table in enumerate(tables):
        wide = F.pad(table.detach().unflatten(0, (3, 3)), (0, 0, 1, 1, 1, 1), value=9.0)
        state[f"stages.0.biases.{number}.table.weight"] = wide.flatten(0, 1)
    mine.load_state_dict(state)
    close(mine(images((4, 10))), smaller(images((4, 10))).last_hidden_state)


@pytest.mark.parametrize("version", [1, 2])
def test_a_removed_edge_changes_its_cell_alone(version):
    mine, x = (
        converted(hf()) if version == 1 else from_transformers(theirs("Swinv2", "Model")),
        images(),
    )
    plain, shifted = window_graphs((12, 18), 3)
    assert shifted.name == "window_partition((12, 18), (3, 3), shift=(1, 1))"
    close(mine.hidden(x, [[plain, shifted], None])[1], mine.hidden(x)[1])
    less = shifted - ga.from_edge_index([[23], [22]], num_nodes=216)  # nodes (1, 5) and (1, 4)
    assert less.num_edges == shifted.num_edges - 1
    entering, stage = mine.hidden(x)[0], mine.stages[0]
    stage.merge = None
    change = stage(entering, (12, 18), [plain, less]) - stage(entering, (12, 18))
    assert torch.nonzero(change.abs().amax((0, 2)) > 1e-9).flatten().tolist() == [22]
    for graph in (plain, graphs.grid_neighbourhood(..., 3, causal=False)):
        other = stage(entering, (12, 18), graph) - stage(entering, (12, 18))
        assert (other.abs().amax((0, 2)) > 1e-6).double().mean() > 0.9


def test_merging_reads_what_its_graph_says():
    merging, x = PatchMerging(2).double(), torch.randn(15, 2, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: merging(x, (3, 5)), x)
    assert torch.equal(jacobian.abs().sum((1, 3)) > 0, merging.graph((3, 5)).mask())


@pytest.mark.parametrize("size", [(24, 60), (22, 58)], ids=["whole", "padded"])
def test_what_the_last_nodes_depend_on_is_what_its_graphs_reach(size):
    mine = converted(hf(size=size, embed_dim=4, num_heads=(1, 1)))
    grids, layers = mine.grids(size), mine.graphs(size)
    reach = ga.analysis.reach(layers).mask()
    assert (len(layers), reach.all()) == (5, False)

    def last(x):
        for stage, grid in zip(mine.stages, grids, strict=True):
            x = stage(x, grid)
        return x

    start, some = mine.hidden(images(size))[0][0].detach(), list(range(0, reach.shape[1], 7))
    moved = start.repeat(len(some), 1, 1)
    moved[range(len(some)), some] += torch.randn(4, dtype=torch.float64)
    # (moved node, node of the last stage)
    depends = (last(moved) - last(start)).abs().amax(-1) > 1e-12
    assert torch.equal(depends, reach[:, some].T)


def test_another_graph_reads_the_same_tables():
    mine, x = Swin(4, (2, 1), (2, 2), window=3, patch=(2, 2)).double(), images((12, 20))
    around = graphs.grid_neighbourhood(..., (3, 3), causal=False)
    natten = mine.features(x, [around, around])
    close(
        natten,
        mine.features(x, [graphs.grid_neighbourhood((6, 10), (3, 3), causal=False), [around]]),
    )
    listed = ga.from_edge_index(
        graphs.grid_neighbourhood((6, 10), 3, causal=False).edge_index, num_nodes=60
    )
    close(natten, mine.features(x, [[listed, around], around]))
    heads = ga.PerHead((around((6, 10)), graphs.window_partition((6, 10), 3, pad=True)))
    assert not torch.allclose(natten, mine.features(x, [heads, around]))
    assert torch.equal(natten, mine.features(x, around))  # one pattern, in the size of every stage
    assert torch.equal(natten, mine.features(x, [around, around]))
    with pytest.raises(
        ShapeError, match=r"grid \(3, 5\) has 15 nodes, but its graph has 60 targets; a pattern"
    ):
        mine.features(x, around((6, 10)))
    with pytest.raises(GraphError, match="window must be above the length of every edge"):
        mine.features(x, [around, graphs.full(15)])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Swin(4, (1, 1), (1,)), OptionError, "must have one number per stage"),
        (
            lambda: Swin(4, (2,), (1,), 3)(torch.randn(1, 3, 9, 9), []),
            OptionError,
            "must be one, or 1, one for each stage",
        ),
        (
            lambda: Swin(4, (2,), (1,), 3)(torch.randn(1, 3, 9, 9), [[graphs.full(9)]]),
            OptionError,
            "graphs must be one, or 2, one for each layer of a stage, got 1",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
