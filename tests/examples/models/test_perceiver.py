"""Perceiver IO with the weights of transformers'; what the order of its inputs changes."""

import pytest
import torch
from hf_table import decoders, four_outputs, theirs
from models.from_transformers import from_transformers
from models.perceiver import CrossAttentionBlock, Perceiver

import graphattn as ga
from graphattn import graphs
from graphattn.errors import OptionError


def close(mine, theirs, tolerance=1e-12):
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def inputs(batch=2):
    return torch.randn(
        batch, 11, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def test_the_order_of_inputs_does_not_matter_but_their_edges_do():
    mine, x = from_transformers(theirs("Perceiver", decoder=four_outputs)), inputs()
    order = torch.randperm(11, generator=torch.Generator().manual_seed(2))
    close(mine(x[:, order]), mine(x))
    graph = graphs.cross(5, 11) & ga.from_rule(lambda t, s: (t + s) % 3 > 0, 5, 11)
    some = mine(x, read_graph=graph)
    assert not torch.allclose(some, mine(x), atol=1e-5)
    assert not torch.allclose(mine(x[:, order], read_graph=graph), some, atol=1e-5)
    close(mine(x[:, order], read_graph=graph.subgraph(sources=order)), some)


def test_each_of_the_three_graphs():
    mine, x = from_transformers(theirs("Perceiver", decoder=four_outputs)), inputs()
    apart = graphs.window_partition((5,), 1)  # latents do not read each other
    less = graphs.cross(5, 11) - ga.from_edge_index([[8], [3]], num_sources=11, num_targets=5)

    def latents(**given):
        return from_transformers(theirs("Perceiver"))(x, **given)

    change = (
        latents(latent_graph=apart, read_graph=less) - latents(latent_graph=apart)
    ).abs().amax((0, 2)) > 1e-9
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
        (
            lambda: Perceiver(3, 8, 4, 1, 2)(torch.randn(5, 4), torch.randn(2, 8)),
            OptionError,
            "require outputs",
        ),
        (
            lambda: CrossAttentionBlock(8, 6, 4),
            OptionError,
            "inner must be a multiple of num_heads, got 6 and 4",
        ),
        (
            lambda: CrossAttentionBlock(8, 6, 2, value_inner=7),
            OptionError,
            "value_inner must be a multiple of num_heads, got 7 and 2",
        ),
        (
            lambda: from_transformers(
                theirs(
                    "Perceiver",
                    decoder=lambda c: decoders.PerceiverBasicDecoder(c, 3, "none", num_channels=8),
                )
            ),
            OptionError,
            "with trainable queries",
        ),
        (lambda: Perceiver(3, 8, 4, 1, 2, write={"num_heads": 2}), OptionError, "requires outputs"),
        (
            lambda: Perceiver(3, 8, 4, 1, 2, final_norm=True),
            OptionError,
            "final_norm must be left out",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
