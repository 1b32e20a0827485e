"""The seven models of the guide's page "Port a model": outputs and all gradients, in float64."""

import importlib
import re
from pathlib import Path

import pytest
import torch

import graphattn as ga

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "port_a_model.md"
PARTS = re.split(r"^## (.*)\n", PAGE.read_text("utf-8"), flags=re.MULTILINE)
BLOCKS = {
    name: re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)
    for name, text in zip(PARTS[1::2], PARTS[2::2], strict=True)
}
NEAR = {"SAM": 1e-5}  # its softmax is in float32


@pytest.mark.parametrize("name", BLOCKS)
def test_a_port_has_the_outputs_and_gradients_of_the_original(name, monkeypatch):
    monkeypatch.setattr(torch, "randn", _float64(torch.randn))
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        names = {}
        exec(compile(BLOCKS[name], name, "exec"), names)
    finally:
        torch.set_default_dtype(default)
    inputs = [x.detach().requires_grad_() for x in names["inputs"]]
    leaves = [*inputs, *names["parameters"]]
    before, after = (names[call](*inputs) for call in ("before", "after"))
    assert after.dtype == torch.float64
    near = NEAR.get(name, 1e-11)
    assert torch.allclose(before, after, rtol=near, atol=near)
    cotangent = torch.randn(before.shape, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(output, leaves, cotangent, allow_unused=True)
        for output in (before, after)
    ]
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            scale = float(theirs.abs().max())
            assert torch.allclose(mine, theirs, rtol=0, atol=near * max(1.0, scale))
            assert scale > 0


def _float64(draw):
    def drawn(*size, **options):
        return draw(*size, **{"dtype": torch.float64} | options)

    return drawn


def same(found, expected, leaves, near=1e-11):
    assert torch.allclose(found, expected, rtol=0, atol=near)
    cotangent = torch.randn_like(expected)
    both = [torch.autograd.grad(y, leaves, cotangent) for y in (found, expected)]
    for mine, theirs in zip(*both, strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=near * max(1.0, theirs.abs().max()))
        assert theirs.abs().sum() > 0


def package(name):
    """A module of a package that need not be installed, or that is built for another torch."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name}: {error}")


def test_the_convolution_that_anemoi_ships():
    conv = package("anemoi.models.layers.conv").GraphTransformerConv(out_channels=6)
    graph = ga.graphs.icosphere(1)
    query, key, value = torch.randn(3, graph.num_nodes, 4, 6, dtype=torch.float64).unbind(0)
    leaves = [x.clone().requires_grad_() for x in (query, key, value)]
    leaves.append(torch.randn(graph.num_edges, 4, 6, dtype=torch.float64, requires_grad=True))
    size = (graph.num_nodes, graph.num_nodes)
    expected = conv(*leaves, graph.edge_index, size)
    found = ga.attention(*leaves[:3], graph, edge_key=leaves[3], edge_value=leaves[3])
    same(found, expected, leaves)


@pytest.mark.parametrize("causal", [False, True])
def test_an_attention_of_x_transformers(causal):
    x_transformers = package("x_transformers.x_transformers")
    theirs = x_transformers.Attention(24, heads=4, dim_head=6, causal=causal).double()
    layer = ga.nn.GraphAttention(24, 4, head_dim=6, bias=False)
    for name, projection in (
        ("q_proj", theirs.to_q),
        ("k_proj", theirs.to_k),
        ("v_proj", theirs.to_v),
        ("out_proj", theirs.to_out),
    ):
        setattr(layer, name, projection)
    x = torch.randn(2, 9, 24, dtype=torch.float64, requires_grad=True)
    pattern = ga.graphs.causal(...) if causal else ga.graphs.full(...)
    # its softmax is in float32
    same(layer(x, pattern), theirs(x), [x, *theirs.parameters()], near=1e-5)


def test_a_window_of_timms_swin():
    timm = package("timm.models.swin_transformer")
    theirs = timm.WindowAttention(24, num_heads=4, window_size=(3, 5)).double()
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    bias = ga.nn.SwinBias((3, 5), num_heads=4).double()
    bias.table.weight = theirs.relative_position_bias_table
    graph = ga.graphs.window_partition((6, 10), (3, 5))
    image = torch.randn(2, 6, 10, 24, dtype=torch.float64, requires_grad=True)
    windows = image.unflatten(2, (2, 5)).unflatten(1, (2, 3)).transpose(2, 3)  # (B, 2, 2, 3, 5, C)
    expected = theirs(windows.flatten(3, 4).flatten(0, 2)).view_as(windows)
    expected = expected.transpose(2, 3).flatten(3, 4).flatten(1, 2)
    query, key, value = theirs.qkv(image.flatten(1, 2)).unflatten(-1, (3, 4, 6)).unbind(-3)
    rows = ga.attention(query, key, value, graph, score_bias=bias(graph))
    found = theirs.proj(rows.flatten(-2)).view_as(image)
    same(found, expected, [image, *theirs.parameters()])
