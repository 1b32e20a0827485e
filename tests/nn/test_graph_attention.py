"""The layer: what goes in, what comes out, in every dialect; against the operator and a dense
formula.
"""

import pytest
import torch
from attention_formula import BACKENDS, WEIGHING, assert_near, formula, gradients
from graph_table import GRAPHS
from torch_geometric import EdgeIndex

import graphattn as ga
from graphattn.nn import sources
from graphattn.nn.scores import Subtraction

both = pytest.mark.parametrize("backend", BACKENDS)
C, H = 30, 5


def features(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64).requires_grad_()


def layer(*args, seed=0, **options):
    torch.manual_seed(seed)
    made = ga.nn.GraphAttention(*args, **options).double()
    for parameter in made.parameters():  # biases start at zero, and a wrong one would not be seen
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def by_hand(made, x, graph, context=None, edge_attr=None, score_bias=None):
    """The layer from its weights and the formula, edge by edge where there are edge features."""
    context = x if context is None else context
    key, value = context if isinstance(context, tuple) else (context, context)
    q = made.q_proj(x).unflatten(-1, (made.num_heads, -1))
    k, v = (
        p(y).unflatten(-1, (made.num_kv_heads, -1))
        for p, y in ((made.k_proj, key), (made.v_proj, value))
    )
    if edge_attr is not None:  # a source of its own for every edge
        e = made.edge_proj(edge_attr).unflatten(-1, (made.num_kv_heads, -1))
        k, v = (y[..., graph.source, :, :] + e for y in (k, v))
        own = torch.stack((torch.arange(graph.num_edges), graph.target))
        graph = ga.from_edge_index(own, num_sources=graph.num_edges, num_targets=graph.num_targets)
    lead = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3])
    q, k, v = (y.expand(*lead, *y.shape[-3:]) for y in (q, k, v))
    heads, alpha, _ = formula(q, k, v, graph, score_bias)
    return made.out_proj(heads.flatten(-2)), alpha


def compare(made, found, wanted, inputs):
    assert_near(found, wanted)
    leaves = [*inputs, *made.parameters()]
    for mine, theirs in zip(gradients(found, leaves), gradients(wanted, leaves), strict=True):
        assert_near(mine, theirs)
    names = [name for name, _ in made.named_parameters()]
    found = dict(zip(names, gradients(found, list(made.parameters())), strict=True))
    assert all(grad.abs().sum() > 1e-6 for name, grad in found.items() if name != "k_proj.bias")


@pytest.mark.sample(4)
@both
@pytest.mark.parametrize("lead", [(), (2,), (3, 2)])
@pytest.mark.parametrize("name", ["causal", "listed_random", "isolated_targets"])
def test_self_and_cross_attention(name, lead, backend):
    graph = GRAPHS[name]()
    made = layer(C, H, backend=backend)
    if graph.is_square:
        x = features(*lead, graph.num_nodes, C)
        compare(made, made(x, graph), by_hand(made, x, graph)[0], [x])
        return
    x, context = (
        features(*lead, graph.num_targets, C),
        features(*lead, graph.num_sources, C, seed=1),
    )
    compare(
        made, made(x, graph, context=context), by_hand(made, x, graph, context)[0], [x, context]
    )
    compare(made, made((context, x), graph), by_hand(made, x, graph, context)[0], [x, context])


@both
@pytest.mark.parametrize("value_dim", [None, 5])
def test_widths_of_their_own_and_grouped_heads(backend, value_dim):
    graph = GRAPHS["listed_bipartite"]()
    sizes = {"qdim": 7, "kdim": 11, "vdim": 13, "head_dim": 7, "value_dim": value_dim}
    made = layer(C, 6, **sizes, num_kv_heads=3, backend=backend)
    x, key, value = features(2, 13, 7), features(2, 19, 11, seed=1), features(2, 19, 13, seed=2)
    output = made(x, graph, context=(key, value))
    assert output.shape == (2, 13, C)
    compare(made, output, by_hand(made, x, graph, (key, value))[0], [x, key, value])


@both
def test_bias_root_weight_and_out_proj_are_options(backend):
    graph = GRAPHS["listed_random"]()
    x = features(17, C)
    bare = layer(C, H, bias=False, backend=backend)
    assert set(dict(bare.named_parameters())) == {
        f"{p}_proj.weight" for p in ("q", "k", "v", "out")
    }
    compare(bare, bare(x, graph), by_hand(bare, x, graph)[0], [x])
    rooted = layer(C, H, root_weight=True, backend=backend)
    compare(rooted, rooted(x, graph), by_hand(rooted, x, graph)[0] + rooted.skip.root(x), [x])
    heads = layer(C, H, out_proj=False, backend=backend)
    assert heads.out_proj is None
    heads.out_proj = torch.nn.Identity()  # for by_hand
    wanted = by_hand(heads, x, graph)[0]
    heads.out_proj = None
    compare(heads, heads(x, graph), wanted, [x])


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["edges", "message_passing"])
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("edge_lead", [(), (2,)])
@pytest.mark.parametrize("name", ["listed_random", "isolated_targets"])
def test_edge_features(name, edge_lead, lead, backend):
    graph = GRAPHS[name]()
    made = layer(C, 6, kdim=C, num_kv_heads=3, edge_dim=11, backend=backend)
    x, context = (
        features(*lead, graph.num_targets, C),
        features(*lead, graph.num_sources, C, seed=1),
    )
    edge_attr = features(*edge_lead, graph.num_edges, 11, seed=2)
    found, weights = made(x, graph, context=context, edge_attr=edge_attr, return_weights=True)
    wanted, alpha = by_hand(made, x, graph, context, edge_attr)
    compare(made, found, wanted, [x, context, edge_attr])
    assert_near(weights.alpha, alpha)
    assert "edge features change a key from edge to edge" in str(ga.explain(graph, edge_attr=True))


@pytest.mark.parametrize("backend", WEIGHING)
def test_weights_follow_the_callers_edge_order(backend):
    graph = GRAPHS["listed_random"]()
    made, x = layer(C, H, backend=backend), features(17, C)
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(1))
    wanted = made(x, graph, return_weights=True)[1].alpha[order]
    for edges in (
        graph.edge_index[:, order],
        EdgeIndex(graph.edge_index[:, order], sparse_size=(17, 17)),
        ga.from_edge_index(graph.edge_index[:, order], num_nodes=17),
    ):
        edge_index, alpha = made(x, edges, return_weights=True)[1]
        assert torch.equal(edge_index, graph.edge_index[:, order])
        assert_near(alpha, wanted)


@both
def test_a_graph_an_edge_index_and_an_edgeindex_are_one(backend):
    graph = GRAPHS["listed_bipartite"]()
    made = layer(C, H, backend=backend)
    x, context = features(13, C), features(19, C, seed=1)
    wanted = made(x, graph, context=context)
    edge_index = graph.edge_index
    assert edge_index.max() < 19 - 1 or graph.out_degree[-1] > 0
    sorted_index = EdgeIndex(edge_index, sparse_size=(19, 13)).sort_by("col").values
    for edges in (
        edge_index,
        edge_index.int(),
        EdgeIndex(edge_index),
        EdgeIndex(edge_index, sparse_size=(19, 13)),
        sorted_index,
    ):
        assert_near(made(x, edges, context=context), wanted)
        assert_near(made((context, x), edges), wanted)


def test_isolated_nodes_at_the_end_are_not_lost():
    made, x = layer(C, H), features(7, C)
    output = made(x, torch.tensor([[0, 1], [1, 0]]))
    assert output.shape == (7, C)
    assert_near(output[2:], made.out_proj.bias.expand(5, -1))


@both
def test_dropout_is_only_for_training(backend):
    graph = GRAPHS["full"]()
    made, x = layer(C, H, dropout=0.5, backend=backend), features(11, C)
    plain = layer(C, H, backend=backend)
    assert not torch.allclose(made(x, graph), plain(x, graph))
    torch.manual_seed(3)
    one = made(x, graph)
    torch.manual_seed(3)
    assert torch.equal(made(x, graph), one)
    assert_near(made.eval()(x, graph), plain(x, graph))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, ""),
        (
            {"kdim": 7, "num_kv_heads": 1, "edge_dim": 3, "dropout": 0.1, "backend": "dense"},
            ", kdim=7, num_kv_heads=1, edge_dim=3, dropout=0.1, backend='dense'",
        ),
        (
            {"qdim": 2, "vdim": 3, "head_dim": 11, "bias": False, "root_weight": True},
            ", qdim=2, vdim=3, head_dim=11, bias=False, root_weight=True",
        ),
        ({"out_proj": False, "head_dim": 6}, ", out_proj=False"),
        (
            {"out_proj": False, "head_dim": 4, "value_dim": 6},
            ", head_dim=4, value_dim=6, out_proj=False",
        ),
    ],
)
def test_repr_shows_what_is_not_default(options, text):
    made = ga.nn.GraphAttention(30, 5, **options)
    assert repr(made) == f"GraphAttention(embed_dim=30, num_heads=5{text})"
    again = eval(repr(made), {"GraphAttention": ga.nn.GraphAttention})
    assert again.state_dict().keys() == made.state_dict().keys()


def test_it_starts_as_multihead_attention_does():
    torch.manual_seed(0)
    made = ga.nn.GraphAttention(64, 8)
    bound = (6 / 128) ** 0.5
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            assert 0.95 * bound < parameter.abs().max() <= bound
    before = made.q_proj.weight.clone()
    made.reset_parameters()
    assert not torch.equal(before, made.q_proj.weight)


def test_a_score_that_is_given_keeps_its_numbers():
    score = Subtraction(2, 3, edge_dim=3)
    before = {name: value.clone() for name, value in score.state_dict().items()}
    made = ga.nn.GraphAttention(6, 2, score=score, edge_dim=3)
    assert made.score is score
    assert all(map(torch.equal, score.state_dict().values(), before.values()))
    made.reset_parameters()
    assert not torch.equal(score.gamma[0].weight, before["gamma.0.weight"])


@pytest.mark.parametrize("second", [False, True])
def test_autocast_keeps_one_copy_of_x_and_adds_its_gradients_in_float32(second, monkeypatch):
    torch.manual_seed(0)
    graph, made, saved = GRAPHS["listed_random"](), ga.nn.GraphAttention(C, H), {}
    leaves = [torch.randn(graph.num_targets, C, requires_grad=True), *made.parameters()]

    def pack(y):
        if y.dtype == torch.bfloat16 and torch.equal(y, leaves[0].bfloat16()):
            saved[y.untyped_storage().data_ptr()] = y
        return y

    def found():
        saved.clear()
        with (
            torch.autocast("cpu", torch.bfloat16),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda y: y),
        ):
            output = made(leaves[0].clone(), graph)  # autocast itself keeps one copy of a leaf
        first = torch.autograd.grad(output.float().sin().sum(), leaves, create_graph=second)
        more = torch.autograd.grad(first[0].square().sum(), leaves) if second else ()
        return len(saved), (output, *first, *more)

    once, results = found()
    monkeypatch.setattr(sources, "cast_once", lambda x, *layers: (x,) * len(layers))
    each, wanted = found()
    assert (once, each) == (1, 3)
    assert all(torch.equal(a, b) for a, b in zip(results, wanted, strict=True))
