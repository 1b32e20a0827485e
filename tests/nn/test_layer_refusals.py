"""Every refusal of the layer, by its words."""

import networkx
import pytest
import torch

import graphattn as ga
from graphattn.errors import BackendError, GraphError, GraphIndexError, OptionError, ShapeError

G = ga.nn.GraphAttention
GRAPH = ga.graphs.cross(5, 7)
X, CONTEXT = torch.randn(5, 12), torch.randn(7, 12)

CONSTRUCTION = {
    "no heads": (lambda: G(12, 0), "embed_dim and num_heads must be >= 1, got 12 and 0"),
    "no width": (lambda: G(0, 3), "embed_dim and num_heads must be >= 1, got 0 and 3"),
    "odd": (lambda: G(12, 5), "embed_dim must be a multiple of num_heads, got 12 and 5; or give head_dim"),
    "head_dim": (lambda: G(12, 5, head_dim=0), "head_dim must be >= 1, got 0"),
    "kv heads": (lambda: G(12, 6, num_kv_heads=4), "num_kv_heads must divide num_heads = 6, got 4"),
    "no kv heads": (lambda: G(12, 6, num_kv_heads=0), "num_kv_heads must divide num_heads = 6, got 0"),
    "out_proj": (
        lambda: G(12, 3, head_dim=5, out_proj=False),
        r"without out_proj the output is num_heads \* head_dim = 15 wide, but embed_dim is 12",
    ),
    "dropout": (lambda: G(12, 3, dropout=1.5), r"dropout must be in \[0, 1\], got 1.5"),
    "dropout nan": (lambda: G(12, 3, dropout=float("nan")), r"dropout must be in \[0, 1\], got nan"),
}


@pytest.mark.parametrize("name", CONSTRUCTION)
def test_construction(name):
    build, words = CONSTRUCTION[name]
    with pytest.raises(OptionError, match=words):
        build()


SHAPES = {
    "x": ((torch.randn(5, 11), GRAPH, CONTEXT), {}, r"x must have shape \(\.\.\., T, 12\), got \(5, 11\)$"),
    "vector": ((torch.randn(12), GRAPH, CONTEXT), {}, r"x must have shape \(\.\.\., T, 12\), got \(12,\)"),
    "not a tensor": ((X.numpy(), GRAPH, CONTEXT), {}, r"x must have shape \(\.\.\., T, 12\), got ndarray"),
    "a list": ((X.tolist(), GRAPH), {}, r"x must be a tensor or a pair \(sources, targets\), got a list of 5"),
    "context": ((X, GRAPH, torch.randn(7, 13)), {}, r"context must have shape \(\.\.\., S, 12\), got \(7, 13\)$"),
    "sources": ((X, GRAPH), {}, r"key has 5 nodes .* but the graph has 7 sources"),
    "targets": ((CONTEXT, GRAPH, CONTEXT), {}, r"query has 7 nodes .* but the graph has 5 targets"),
    "pair turned round": (((X, CONTEXT), GRAPH), {}, r"query has 7 nodes .* but the graph has 5 targets"),
    "pair of three": ((X, GRAPH, (CONTEXT, CONTEXT, CONTEXT)), {}, r"pair \(for keys, for values\), got a tuple of 3"),
    "x of three": (((X, CONTEXT, X), GRAPH), {}, r"x must be .* \(sources, targets\), got a tuple of 3"),
    "bias": ((X, GRAPH, CONTEXT), {"score_bias": torch.zeros(5, 7)}, r"score_bias must have shape \(35,\), \(35, 3\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    args, options, words = SHAPES[name]
    with pytest.raises(ShapeError, match=words):
        G(12, 3)(*args, **options)


def test_context_is_asked_for_where_it_is_missing():
    with pytest.raises(ShapeError, match=r"context must have shape \(\.\.\., S, 13\), got \(5, 12\); pass context"):
        G(12, 3, kdim=13)(X, GRAPH)


def test_a_pair_and_a_context_say_the_same_thing_twice():
    with pytest.raises(OptionError, match=r"pass x as a pair \(sources, targets\), or x and context; not both"):
        G(12, 3)((CONTEXT, X), GRAPH, CONTEXT)


def test_edge_features_need_an_edge_dim_and_the_other_way_round():
    with pytest.raises(OptionError, match="edge_attr was given, but the layer was built without edge_dim"):
        G(12, 3)(X, GRAPH, CONTEXT, torch.zeros(35, 4))
    made = G(12, 3, edge_dim=4)
    with pytest.raises(OptionError, match=r"built with edge_dim=4: pass edge_attr \(\.\.\., 35, 4\), one row per edge"):
        made(X, GRAPH, CONTEXT)
    for wrong in (torch.zeros(34, 4), torch.zeros(35, 5), torch.zeros(4)):
        with pytest.raises(ShapeError, match=r"edge_attr must have shape \(\.\.\., 35, 4\).*; got \("):
            made(X, GRAPH, CONTEXT, wrong)
    with pytest.raises(ShapeError, match=r"edge_attr must be a tensor .* got list"):
        made(X, GRAPH, CONTEXT, [[0.0] * 4] * 35)


def test_a_named_backend_refuses_with_its_reasons():
    made = G(12, 3, edge_dim=4, backend="dense")
    with pytest.raises(BackendError, match="'dense' cannot run") as caught:
        made(X, GRAPH, CONTEXT, torch.zeros(35, 4))
    assert "edge features differ from edge to edge" in caught.value.reasons[0]
    with pytest.raises(
        BackendError, match=r'backend must be "auto" or one of dense, edges, message_passing, got \'fast\''
    ):
        G(12, 3, backend="fast")(X, GRAPH, CONTEXT)


def test_edge_index_is_checked_at_every_call():
    made = G(12, 3)
    with pytest.raises(GraphIndexError, match=r"source 9 is outside \[0, 5\)"):
        made(X, torch.tensor([[0, 9], [1, 2]]))
    with pytest.raises(GraphError, match=r"repeated edges. Pass duplicates="):
        made(X, torch.tensor([[0, 0], [1, 1]]))
    with pytest.raises(GraphError, match=r"expected \[2, E\], got \[3, 2\]; pass edge_index.t\(\)"):
        made(X, torch.tensor([[0, 1], [1, 2], [3, 4]]))
    with pytest.raises(GraphError, match="must be an integer tensor"):
        made(X, networkx.path_graph(5))
