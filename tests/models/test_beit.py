"""BEiT with the weights of transformers': relative tables with rows of the class token, of each layer or shared."""

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError
from graphattn.models import BEiT, from_hf

transformers = pytest.importorskip("transformers", minversion="5.0")
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
N = 10  # a class token and 3 x 3 patches
EACH, SHARED = {"use_relative_position_bias": True}, {"use_shared_relative_position_bias": True}


def hf(kind=transformers.BeitForImageClassification, **options):
    torch.manual_seed(4)
    config = transformers.BeitConfig(patch_size=4, num_labels=5, **{"image_size": 12, **SIZES, **options})
    model = kind._from_config(config, attn_implementation="sdpa").double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture
def images():
    return torch.randn(2, 3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def close(mine, theirs):
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [EACH, SHARED, {"use_absolute_position_embeddings": True, "layer_scale_init_value": 0.0}],
    ids=["each", "shared", "absolute"],
)
def test_classifier_and_gradients(options, images):
    theirs, found = hf(**options), []
    mine = from_hf(theirs)
    assert isinstance(mine, BEiT)
    for model in (mine, theirs):
        result = model(images) if model is mine else model(images).logits
        given = torch.autograd.grad(result.square().sum(), list(model.parameters()))
        found.append((result, torch.cat([g.flatten() for g in given]).sort().values))
    close(found[0][0], found[1][0])
    assert found[0][1].abs().max() > 0.1
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-9, atol=1e-10)


def test_model_and_its_pooler(images):
    for options in ({"hidden_act": "relu", "layer_norm_eps": 0.1}, {"use_mean_pooling": False}):
        theirs = hf(transformers.BeitModel, **EACH, **options)
        mine, wanted = from_hf(theirs), theirs(images)
        close(mine(images), wanted.last_hidden_state)
        close(mine.pooled(mine(images)), wanted.pooler_output)
    plain = hf(transformers.BeitModel, drop_path_rate=0.2, hidden_dropout_prob=0.25).train()
    blocks = from_hf(plain).encoder.layers
    assert [(b.branch[0].p, b.branch[1].p) for b in blocks] == [(0.25, 0.0), (0.25, pytest.approx(0.2))]


def test_any_graph_is_their_attention_mask(images):
    theirs = hf(transformers.BeitModel, **EACH)
    mine, rows = from_hf(theirs), graphs.cell_partition((3, 3), (1, 3)).with_global_tokens(1)
    mask = torch.zeros(2, 1, N, N, dtype=torch.float64).masked_fill(~rows.mask(), -torch.inf)  # added to their biases
    wanted = theirs(images, attention_mask=mask).last_hidden_state
    close(mine(images, graphs.cell_partition(..., (1, 3))), wanted)
    listed = ga.from_edge_index(rows.edge_index.flip(1), num_nodes=N)  # edges in another order
    close(mine(images, [listed, rows]), wanted)
    assert not torch.allclose(mine(images), wanted, atol=1e-3)
    less = graphs.full(N) - ga.from_edge_index([[6], [2]], num_nodes=N)
    changed = (mine(images, [graphs.full(...), less]) - mine(images)).abs().amax((0, 2)) > 1e-6
    assert changed.tolist() == [node == 2 for node in range(N)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BEiT(8, 4, 1, 8, 2, relative="all"), 'relative must be "each", "shared" or "none", got \'all\''),
        (lambda: from_hf(hf(**EACH, **SHARED)), "cannot be read together"),
        (lambda: from_hf(hf(**EACH, image_size=(12, 8))), r"image_size = \(12, 8\)"),
        (lambda: from_hf(hf(use_mask_token=True)), "use_mask_token=True"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(OptionError, match=message):
        make()
