"""Graphs of examples from masks, functions, ids and batches of other libraries."""

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_dense_batch

import graphattn as ga
from graphattn.convert import from_block_mask, from_mask_mod
from graphattn.errors import GraphError

KINDS = ("bool", "mha", "additive")


def _of_kind(edges: Tensor, kind: str) -> Tensor:
    if kind == "bool":
        return edges
    if kind == "mha":
        return ~edges
    return torch.zeros(edges.shape).masked_fill(~edges, -torch.inf)


def _masks(graph: ga.PerExample) -> Tensor:
    """bool (B, H, T, S)."""
    rows = [torch.stack([head.mask() for head in one.of_heads]) for one in graph.graphs]
    most = max(map(len, rows))
    return torch.stack([row.expand(most, *row.shape[1:]) for row in rows])


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_examples_are_graphs_of_examples(kind: str) -> None:
    edges = torch.rand(5, 3, 7, 11) < 0.4
    edges[..., 0] = True
    for given in (edges[:, 0], edges[:, :1], edges):
        if given.dim() == 3 and kind == "mha":
            continue  # of examples and heads there
        found = ga.from_mask(_of_kind(given, kind), kind)
        assert isinstance(found, ga.PerExample)
        assert torch.equal(_masks(found), given if given.dim() == 4 else given[:, None])
    heads = ga.from_mask(_of_kind(edges[:1], kind), kind)
    assert isinstance(heads, ga.PerHead)
    assert heads.graphs[2].name.endswith("mask[h=2]")
    assert ga.from_mask(_of_kind(edges, kind), kind).graphs[1].graphs[2].name.endswith("[b=1, h=2]")


def test_the_three_dimensions_of_mha_are_examples_and_heads() -> None:
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True).double().eval()
    x, mask = torch.randn(2, 4, 12, dtype=torch.float64), torch.rand(6, 4, 4) > 0.6
    mask[..., 0] = False
    expected = module(x, x, x, attn_mask=mask)[0]
    layer = ga.nn.GraphAttention.from_torch(module)
    found = layer(x, ga.from_mask(mask, "mha", heads=3))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(GraphError, match=r"\(B H, T, S\): pass heads=H; .* pass mask\[:, None\]"):
        ga.from_mask(mask, "mha")
    with pytest.raises(
        GraphError, match=r"mask must be \(B H, T, S\) with heads=4, got \(6, 4, 4\)"
    ):
        ga.from_mask(mask, "mha", heads=4)


def test_equal_masks_are_one_graph() -> None:
    masks = (torch.rand(3, 2, 7, 7) < 0.5)[[0, 1, 0, 2, 1]]
    masks[3, 1] = masks[3, 0]
    found = ga.from_mask(masks)
    assert isinstance(found.graphs[3], ga.AttentionGraph)
    for one, other in ((0, 2), (1, 4)):
        pairs = zip(found.graphs[one].graphs, found.graphs[other].graphs, strict=True)
        assert all(first is second for first, second in pairs)
    assert len(set(ga.from_mask(masks[:, :1]).graphs)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_number_is_named_with_its_example(kind: str) -> None:
    mask = torch.zeros(3, 1, 5, 5)
    mask[2, 0, 4, 1] = -0.5
    words = {"additive": r"got -0.5 at \[2, 0, 4, 1\] \(1 such"}
    with pytest.raises(GraphError, match=words.get(kind, r"a negative number at \[2, 0, 4, 1\]")):
        ga.from_mask(mask, kind)


def test_a_model_s_padding_mask_is_attention_of_its_examples() -> None:
    lengths = torch.tensor([3, 7, 5])
    allowed = (torch.arange(7) < lengths[:, None])[:, None, None, :].expand(3, 1, 7, 7)
    x = torch.randn(3, 7, 4, 5, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *[x.transpose(1, 2)] * 3, attn_mask=allowed
    ).transpose(1, 2)
    additive = torch.zeros(3, 1, 7, 7).masked_fill(~allowed, torch.finfo(torch.float32).min)
    for graph in (ga.from_mask(allowed), ga.from_mask(additive, "additive")):
        torch.testing.assert_close(ga.attention(x, x, x, graph), expected, rtol=0, atol=1e-12)


LENGTHS = torch.tensor([5, 11, 7])


def _prefix(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
    return (kv < LENGTHS[b]) & (q + h >= kv)


@pytest.mark.parametrize("heads", [None, 2])
def test_a_mask_mod_of_the_batch_is_a_graph_of_each_example(heads: int | None) -> None:
    def mask_mod(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return _prefix(b, h * (heads or 0), q, kv)

    expected = flex.create_mask(mask_mod, 3, heads or 1, 13, 11, device="cpu")
    found = from_mask_mod(mask_mod, 13, 11, B=3, H=heads)
    assert torch.equal(_masks(found), expected)
    names = [head.name for head in found.graphs[2].of_heads]
    assert names == [f"mask_mod[h={h}, b=2]" for h in range(2)] if heads else ["mask_mod[b=2]"]
    block_mask = flex.create_block_mask(mask_mod, 3, heads, 13, 11, device="cpu", BLOCK_SIZE=4)
    assert torch.equal(_masks(from_block_mask(block_mask)), expected)
    broadcast = flex.create_block_mask(mask_mod, None, heads, 13, 11, device="cpu", BLOCK_SIZE=128)
    if heads is None:
        assert torch.equal(_masks(from_block_mask(broadcast, B=3)), expected)


def test_a_mask_mod_that_ignores_the_batch_is_one_graph() -> None:
    found = from_mask_mod(lambda b, h, q, kv: q >= kv, 7, B=5, H=2)
    assert found.equals(ga.graphs.causal(7))


def test_flex_attention_with_a_mask_of_the_batch_is_the_same_attention() -> None:
    x = torch.randn(3, 11, 2, 8, dtype=torch.float64)
    block_mask = flex.create_block_mask(_prefix, 3, 2, 11, 11, device="cpu")
    expected = flex.flex_attention(*[x.transpose(1, 2)] * 3, block_mask=block_mask).transpose(1, 2)
    output = ga.attention(x, x, x, from_block_mask(block_mask))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_ids_of_examples_are_documents_of_each(causal: bool) -> None:
    ids = torch.tensor([[0, 0, 1, 1, 1], [2, 0, 2, 0, 1], [0, 0, 1, 1, 1]])
    for given in (ids, ids.tolist(), ids.numpy()):
        found = ga.graphs.documents(given, causal=causal)
        same = ids[:, :, None] == ids[:, None, :]
        if causal:
            same = same.tril()
        assert torch.equal(_masks(found)[:, 0], same)
        assert found.graphs[0] is found.graphs[2]
    with pytest.raises(GraphError, match="a graph for each example, got none"):
        ga.graphs.documents(ids[:0], causal=False)


def test_a_batch_of_pyg_is_one_graph_or_one_for_each_shape() -> None:
    shapes = []
    for nodes in (5, 3, 7):
        graph = ga.from_mask(torch.rand(nodes, nodes) < 0.6)
        shapes.append(Data(x=torch.randn(nodes, 12), edge_index=graph.edge_index, num_nodes=nodes))
    batch = Batch.from_data_list(shapes)
    layer = ga.nn.GraphAttention(12, 4)
    flat = layer(batch.x, ga.from_pyg(batch))
    dense, there = to_dense_batch(batch.x, batch.batch)
    graphs = ga.from_pyg(batch, per_example=True)
    assert [graph.num_targets for graph in graphs.graphs] == [5, 3, 7]
    torch.testing.assert_close(layer(dense, graphs)[there], flat)
    with pytest.raises(GraphError, match="must be a PyG Batch for per_example=True, got a Data"):
        ga.from_pyg(shapes[0], per_example=True)


@pytest.mark.parametrize("convert", ["to_mask_mod", "to_block_mask", "to_mask", "to_scipy"])
def test_converters_of_one_graph_say_how_to_get_one(convert: str) -> None:
    graphs = ga.PerExample([ga.graphs.causal(5), ga.graphs.full(5)])
    with pytest.raises(GraphError, match=r"got PerExample; pass one of its \.graphs, or \.union"):
        getattr(ga.convert, convert)(graphs)
