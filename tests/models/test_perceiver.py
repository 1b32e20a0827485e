"""Perceiver IO with the weights of transformers'; what the order of its inputs changes."""

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError, ShapeError
from graphattn.models import Perceiver, from_hf
from graphattn.models.perceiver import Reading

transformers = pytest.importorskip("transformers", minversion="5.0")
decoders = pytest.importorskip("transformers.models.perceiver.modeling_perceiver")


def shaken(model):
    """In float64, with norms, biases and tokens that are not the trivial ones."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def close(mine, theirs, tolerance=1e-12):
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def same_gradients(mine, theirs, output, wanted):
    found = []
    for model, result in ((mine, output), (theirs, wanted)):
        given = torch.autograd.grad((result * result.detach().cos()).sum(), list(model.parameters()), allow_unused=True)
        found.append(torch.cat([g.flatten() for g in given if g is not None]).sort().values)
    assert found[0].abs().max() > 0.1
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-10)


def perceiver(decoder=None, **options):
    torch.manual_seed(4)
    sizes = {"num_latents": 5, "d_latents": 12, "d_model": 10, "num_self_attends_per_block": 2, "num_labels": 7}
    heads = {"num_self_attention_heads": 3, "num_cross_attention_heads": 2, "attention_probs_dropout_prob": 0.0}
    config = transformers.PerceiverConfig(**{**sizes, **heads, **options})
    made = transformers.PerceiverModel(config, decoder=None if decoder is None else decoder(config))
    return shaken(made)


def inputs(batch=2):
    return torch.randn(batch, 11, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_blocks": 3, "use_query_residual": False, "cross_attention_shape_for_attention": "q"},
        {
            "qk_channels": 18,
            "v_channels": 12,
            "self_attention_widening_factor": 2,
            "cross_attention_widening_factor": 3,
        },
    ],
    ids=["plain", "three blocks", "widths"],
)
def test_perceiver(options):
    theirs, x = perceiver(**options), inputs()
    mine, wanted = from_hf(theirs), theirs(x).last_hidden_state
    assert isinstance(mine, Perceiver)
    close(mine(x), wanted)
    same_gradients(mine, theirs, mine(x), wanted)


def classes(config):
    positions = {"num_channels": 12, "index_dims": 1}
    return decoders.PerceiverClassificationDecoder(
        config, num_channels=12, trainable_position_encoding_kwargs=positions, use_query_residual=True
    )


def four_outputs(config):
    positions = {"num_channels": 8, "index_dims": 4}
    return decoders.PerceiverBasicDecoder(
        config,
        3,
        num_channels=8,
        output_index_dims=4,
        trainable_position_encoding_kwargs=positions,
        num_heads=2,
        qk_channels=6,
    )


@pytest.mark.parametrize("decoder", [classes, four_outputs])
def test_perceiver_io(decoder):
    theirs, x = perceiver(decoder), inputs()
    mine, wanted = from_hf(theirs), theirs(x).logits
    assert wanted.shape == ((2, 7) if decoder is classes else (2, 4, 3))
    close(mine(x), wanted)
    same_gradients(mine, theirs, mine(x), wanted)


def test_the_order_of_inputs_does_not_matter_but_their_edges_do():
    mine, x = from_hf(perceiver(four_outputs)), inputs()
    order = torch.randperm(11, generator=torch.Generator().manual_seed(2))
    close(mine(x[:, order]), mine(x))
    graph = graphs.cross(5, 11) & ga.from_rule(lambda t, s: (t + s) % 3 > 0, 5, 11)
    some = mine(x, read_graph=graph)
    assert not torch.allclose(some, mine(x), atol=1e-3)
    assert not torch.allclose(mine(x[:, order], read_graph=graph), some, atol=1e-3)
    close(mine(x[:, order], read_graph=graph.subgraph(sources=order)), some)


def test_each_of_the_three_graphs():
    mine, x = from_hf(perceiver(four_outputs)), inputs()
    apart = graphs.cell_partition((5,), 1)  # latents do not read each other
    less = graphs.cross(5, 11) - ga.from_edge_index([[8], [3]], num_sources=11, num_targets=5)

    def latents(**given):
        return from_hf(perceiver())(x, **given)

    change = (latents(latent_graph=apart, read_graph=less) - latents(latent_graph=apart)).abs().amax((0, 2)) > 1e-9
    assert change.tolist() == [latent == 3 for latent in range(5)]
    assert ((latents(read_graph=less) - latents()).abs().amax((0, 2)) > 1e-9).all()
    once = graphs.cross(4, 5) - ga.from_edge_index([[2], [1]], num_sources=5, num_targets=4)
    change = (mine(x, write_graph=once) - mine(x)).abs().amax((0, 2)) > 1e-9
    assert change.tolist() == [output == 1 for output in range(4)]
    close(mine(x, mine.queries[:2]), mine(x)[:, :2])
    close(mine(x[0]), mine(x)[0])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Perceiver(3, 8, 4, 1, 2)(torch.randn(5, 4), torch.randn(2, 8)), OptionError, "built without outputs"),
        (lambda: Reading(8, 6, 4), OptionError, "inner must be a multiple of num_heads, got 6 and 4"),
        (
            lambda: Reading(8, 6, 2, value_inner=7),
            OptionError,
            "value_inner must be a multiple of num_heads, got 7 and 2",
        ),
        (
            lambda: from_hf(perceiver(lambda c: decoders.PerceiverBasicDecoder(c, 3, "none", num_channels=8))),
            OptionError,
            "queries are trainable",
        ),
        (lambda: Perceiver(3, 8, 4, 1, 2)(torch.randn(5, 6)), ShapeError, r"\(\.\.\., S, 4\), got \(5, 6\)"),
        (lambda: Perceiver(3, 8, 4, 1, 2)(torch.randn(5, 4).long()), ShapeError, "inputs is torch.int64, and"),
        (lambda: Perceiver(3, 8, 4, 1, 2)(None), ShapeError, "inputs must have shape .* got NoneType"),
        (lambda: Perceiver(3, 8, 4, 1, 2, write={"num_heads": 2}), OptionError, "built without: give outputs"),
        (lambda: Perceiver(3, 8, 4, 1, 2, outputs=(0, 8)), OptionError, "outputs must be a whole number >= 1, got 0"),
        (
            lambda: Perceiver(3, 8, 4, 1, 2, read={"heads": 2}),
            OptionError,
            "no option 'heads'; did you mean 'num_heads'",
        ),
        (lambda: Perceiver(3, 8, 4, 1, 2, final_norm=True), OptionError, "final_norm is no option"),
        (
            lambda: Perceiver(3, 8, 4, 1, 2, outputs=(2, 6))(torch.randn(5, 4), torch.randn(2, 7)),
            ShapeError,
            r"queries must have shape \(..., N, 6\), got \(2, 7\)",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
