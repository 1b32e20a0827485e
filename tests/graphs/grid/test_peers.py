"""Grids as transformers reads them: which input moves which output of its own layers."""

import pytest
import torch

from graphattn import graphs

transformers = pytest.importorskip("transformers")


def dependencies(function, nodes, width=8):
    """bool (T, S): whether output t moves with input s, from the derivatives of ``function`` (S, C)
    -> (T, C).
    """
    x = torch.randn(nodes, width, dtype=torch.float64)
    return torch.func.jacrev(function)(x).abs().amax((1, 3)) > 1e-12


def drawn(module):
    """The module in float64 with weights large enough to be measured."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def test_segment_anything_reads_windows():
    from transformers.models.sam.modeling_sam import SamVisionLayer

    config = transformers.SamVisionConfig(
        hidden_size=8, num_attention_heads=2, mlp_dim=8, image_size=12, patch_size=2, window_size=4,
        num_hidden_layers=1, attn_implementation="eager",
    )  # fmt: skip
    layer = drawn(SamVisionLayer(config, config.window_size))

    def run(x):
        out = layer(x.view(1, 6, 6, 8))
        return (out if isinstance(out, torch.Tensor) else out[0]).reshape(36, 8)

    assert torch.equal(dependencies(run, 36), graphs.window_partition((6, 6), 4, pad=True).mask())


def test_hiera_reads_mask_units():
    from transformers.models.hiera.modeling_hiera import HieraMaskUnitAttention

    layer = drawn(
        HieraMaskUnitAttention(8, 8, 2, query_stride=1, window_size=4, use_mask_unit_attn=True)
    )
    depends = dependencies(lambda x: layer(x[None])[0][0], 24)
    assert torch.equal(depends, graphs.documents(torch.arange(24) % 6, causal=False).mask())
    # units are interleaved
    assert not torch.equal(depends, graphs.documents(torch.arange(24) // 4, causal=False).mask())
