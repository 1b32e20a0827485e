"""Blocks and stacks with the weights of torch's, in both norm modes, output and every gradient."""

import pytest
import torch
from torch import nn

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, OptionError, ShapeError
from graphattn.models import Decoder, Encoder, EncoderDecoder
from graphattn.nn import (
    DropPath,
    FeedForward,
    KeyValueCache,
    MixtureOfExperts,
    Rotary,
    TransformerBlock,
    load_balancing_loss,
)

CAUSAL = graphs.causal(5)


def torch_layer(kind, norm_first, activation="relu", bias=True):
    torch.manual_seed(2)
    layer = kind(
        8,
        2,
        12,
        dropout=0.0,
        activation=activation,
        norm_first=norm_first,
        batch_first=True,
        bias=bias,
    ).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return layer


def grads(module, output):
    weights = [p for p in module.parameters() if p.requires_grad]
    return torch.cat(
        [g.sort().values.flatten() for g in torch.autograd.grad(output.square().sum(), weights)]
    )


def check(mine, theirs, output, expected):
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    found, wanted = (
        torch.sort(grads(*pair).abs()).values for pair in ((mine, output), (theirs, expected))
    )
    # parameters are split otherwise: as a set
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize(("activation", "bias"), [("relu", True), ("gelu", False)])
def test_encoder_layer(norm_first, activation, bias):
    theirs = torch_layer(nn.TransformerEncoderLayer, norm_first, activation, bias)
    mine, x = TransformerBlock.from_torch(theirs), torch.randn(3, 5, 8, dtype=torch.float64)
    check(mine, theirs, mine(x, graphs.full(5)), theirs(x))
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    check(mine, theirs, mine(x, CAUSAL), theirs(x, src_mask=mask))
    less = ga.from_mask(
        CAUSAL.mask().index_put((torch.tensor(4), torch.tensor(1)), torch.tensor(False))
    )
    assert (mine(x, less) - theirs(x, src_mask=mask)).abs().amax((0, 2)).gt(1e-4).tolist() == [
        False
    ] * 4 + [True]


@pytest.mark.parametrize("norm_first", [True, False])
def test_decoder_layer(norm_first):
    theirs = torch_layer(nn.TransformerDecoderLayer, norm_first)
    mine = TransformerBlock.from_torch(theirs)
    x, memory = (torch.randn(3, n, 8, dtype=torch.float64) for n in (5, 7))
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    check(mine, theirs, mine(x, CAUSAL, memory=memory), theirs(x, memory, tgt_mask=mask))
    few = ga.from_mask(torch.ones(5, 7).bool().triu())
    check(
        mine,
        theirs,
        mine(x, CAUSAL, memory=memory, memory_graph=few),
        theirs(x, memory, tgt_mask=mask, memory_mask=~few.mask()),
    )


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_whole_transformer(norm_first):
    torch.manual_seed(3)
    theirs = nn.Transformer(
        8, 2, 2, 2, 12, dropout=0.0, norm_first=norm_first, batch_first=True
    ).double()
    mine = EncoderDecoder.from_torch(theirs)
    source, target = (torch.randn(3, n, 8, dtype=torch.float64) for n in (7, 5))
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    output, expected = (
        mine(source, target, graphs.full(7), CAUSAL),
        theirs(source, target, tgt_mask=mask),
    )
    check(mine, theirs, output, expected)
    with torch.no_grad():
        cut = graphs.cross(5, 7) - ga.from_edge_index([[6], [2]], num_sources=7, num_targets=5)
        other = mine(source, target, graphs.full(7), CAUSAL, cut)
    assert (other - expected).abs().amax((0, 2)).gt(1e-6).tolist() == [
        False,
        False,
        True,
        True,
        True,
    ]


class Silent(nn.Module):
    def forward(self, x):
        return None


class Doubled(nn.TransformerEncoderLayer):
    def forward(self, *given, **named):
        return 2 * super().forward(*given, **named)


def test_parts_put_in_a_torch_layer_are_copied_as_they_are():
    theirs, x = (
        torch_layer(nn.TransformerEncoderLayer, True, nn.GELU("tanh")),
        torch.randn(3, 5, 8).double(),
    )
    theirs.norm1, theirs.norm2.eps = nn.RMSNorm(8, 0.1).double(), 0.5
    frozen = (theirs.norm1.weight, theirs.self_attn.in_proj_weight, theirs.linear1.bias)
    for parameter in frozen:
        parameter.requires_grad_(False)
    mine = TransformerBlock.from_torch(theirs)
    check(mine, theirs, mine(x, graphs.full(5)), theirs(x))
    unlearned = [name for name, p in mine.named_parameters() if not p.requires_grad]
    weights = [f"attention.{each}_proj.weight" for each in "qkv"]
    assert sorted(unlearned) == sorted([*weights, "attention_norm.weight", "feed_forward.up.bias"])
    with torch.no_grad():
        mine.attention_norm.weight.add_(1)
    assert frozen[0].eq(1).all(), "they share no weights"
    for norm in (
        nn.LayerNorm(8, 0.3, bias=False),
        nn.RMSNorm(8),
        nn.Identity(),
        nn.BatchNorm1d(5),
        None,
    ):
        theirs = (
            nn.TransformerEncoder(torch_layer(nn.TransformerEncoderLayer, False), 2, norm)
            .double()
            .eval()
        )
        torch.testing.assert_close(
            Encoder.from_torch(theirs)(x, graphs.full(5)), theirs.requires_grad_()(x)
        )
    patched, unlike = (torch_layer(nn.TransformerEncoderLayer, True) for _ in range(2))
    patched.forward, unlike.dropout2.p = lambda x: x, 0.5
    for layer in (Doubled(8, 2), patched):
        with pytest.raises(OptionError, match=r"expected TransformerEncoderLayer or"):
            TransformerBlock.from_torch(layer)
    other = torch_layer(nn.TransformerEncoderLayer, True)
    other.dropout2 = nn.AlphaDropout(other.dropout1.p)
    for layer in (unlike, other):
        with pytest.raises(OptionError, match=r"dropout1, dropout2, .* differ"):
            TransformerBlock.from_torch(layer)
    with pytest.raises(OptionError, match=r"expected MultiheadAttention, and none"):
        ga.nn.GraphAttention.from_torch(torch.ao.nn.quantizable.MultiheadAttention(8, 2))


def test_connectivity_is_one_argument():
    encoder, x = Encoder(2, 8, 2), torch.randn(6, 8)
    local, full = graphs.sliding_window(6, 3, causal=True), graphs.full(6)
    assert not torch.equal(encoder(x, local), encoder(x, full))
    both = encoder(x, [local, full])
    torch.testing.assert_close(both, encoder(x, [graphs.sliding_window(..., 3, causal=True), full]))
    assert not torch.allclose(both, encoder(x, [full, local]))
    heads = ga.PerHead((local, full))
    torch.testing.assert_close(encoder(x, heads), encoder(x, [heads, heads]))
    with pytest.raises(GraphError, match="2 layers need as many graphs"):
        encoder(x, [local] * 3)


@pytest.mark.parametrize(
    "options",
    [{}, {"rotary": True}, {"num_kv_heads": 1, "norm": "rms", "activation": "gated_silu"}],
)
@pytest.mark.parametrize(
    "graph",
    [graphs.causal(7), graphs.sliding_window(7, 3, causal=True), graphs.prefix(7, 2)],
    ids=repr,
)
def test_a_cache_gives_what_the_whole_gives(options, graph):
    options = {**options, **({"rotary": Rotary(4)} if "rotary" in options else {})}
    decoder = Encoder(2, 8, 2, **options).double().eval()
    x, caches = torch.randn(3, 7, 8, dtype=torch.float64), [KeyValueCache(), KeyValueCache()]
    whole = decoder(x, graph)
    parts, past = [], 0
    for size in (2, 1, 3, 1):
        new = list(range(past, past + size))
        part = graph.subgraph(targets=new, sources=range(past + size))
        parts.append(decoder(x[:, new], part, caches=caches))
        past += size
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    assert caches[0].length == 7
    caches[0].reorder(torch.tensor([2, 0]))
    assert caches[0].key.shape[0] == 2


def test_experts_chosen_all_are_a_dense_mixture_and_order_does_not_matter():
    experts = [FeedForward(4, 6).double() for _ in range(3)]
    moe, x = (
        MixtureOfExperts(experts, 4, top_k=3).double(),
        torch.randn(2, 5, 4, dtype=torch.float64),
    )
    gate = torch.softmax(moe.router(x), -1)
    dense = sum(gate[..., e, None] * expert(x) for e, expert in enumerate(experts))
    torch.testing.assert_close(moe(x), dense, rtol=0, atol=1e-12)
    sparse = MixtureOfExperts(experts, 4, top_k=1).double()
    order = torch.randperm(5)
    torch.testing.assert_close(sparse(x)[:, order], sparse(x[:, order]), rtol=0, atol=1e-14)
    graph = sparse.graph(x[0])
    assert graph.in_degree.tolist() == [1] * 5
    stack = Encoder(2, 4, 2, feed_forward=MixtureOfExperts(experts, 4, top_k=2)).double()
    stack(x, graphs.causal(5)).sum().backward()
    first, second = (layer.feed_forward for layer in stack.layers)
    assert first is not second, "each layer learns its own"
    assert first.router.weight.grad.abs().max() > 0


def test_a_router_of_one_expert_learns_as_a_switch_transformer():
    experts, x = (
        [FeedForward(4, 6).double() for _ in range(3)],
        torch.randn(5, 4, dtype=torch.float64),
    )
    moe = MixtureOfExperts(experts, 4, top_k=1).double()
    gate, best = torch.softmax(moe.router(x), -1).max(-1)
    wanted = torch.stack([g * experts[e](t) for g, e, t in zip(gate, best, x, strict=True)])
    torch.testing.assert_close(moe(x), wanted, rtol=0, atol=1e-14)
    moe(x).sum().backward()
    assert moe.router.weight.grad.abs().max() > 0
    even, one = 10 * torch.eye(4), torch.tensor([[9.0, 0, 0, 0]]).expand(4, 4)
    assert load_balancing_loss(even, 1) == pytest.approx(1.0)
    assert load_balancing_loss(one, 1) == pytest.approx(4.0, abs=0.01)


@pytest.mark.slow
def test_modules_among_the_options_are_not_shared_and_activations_may_be_functions():
    score = ga.nn.scores.Additive(2, 4)
    stack = Decoder(2, 8, 2, score=score, activation=nn.GELU(), rotary=Rotary(4), edge_dim=3)
    first, second = (layer.attention for layer in stack.layers)
    scores = [part.score for part in (first, second, stack.layers[0].cross_attention)]
    assert len({id(one.weight) for one in (*scores, score)}) == 4
    assert (first.rotary, stack.layers[0].cross_attention.rotary) == (second.rotary, None)
    x, memory = torch.randn(5, 8), torch.randn(7, 8)
    assert (
        stack(x, CAUSAL, memory, edge_attr=torch.randn(15, 3), positions=torch.arange(5)).shape
        == x.shape
    )
    assert len(list(stack.layers[0].feed_forward.parameters())) == 4
    torch.manual_seed(0)
    mine = Encoder(1, 8, 2, activation=nn.functional.gelu)
    torch.manual_seed(0)
    assert torch.equal(mine(x, CAUSAL), Encoder(1, 8, 2, activation="gelu")(x, CAUSAL))


def test_lengths_leave_each_example_the_graph_of_its_own_size():
    x, lengths, table = (
        torch.randn(3, 5, 8).double(),
        torch.tensor([5, 2, 3]),
        torch.randn(5, 5, 1).double(),
    )
    model, full = EncoderDecoder(Encoder(2, 8, 2), Decoder(1, 8, 2)).double(), graphs.full(...)
    written = model(x, x[:, :2], full, graphs.causal(...), lengths=lengths)
    alibi = ga.nn.ALiBi(2).double()
    plain, sloped, biased = (
        model.encoder(x, full, lengths=lengths, score_bias=bias)
        for bias in (None, alibi, table.view(25, 1))
    )
    for i, n in enumerate(lengths.tolist()):
        one, close = x[i, :n], {"rtol": 0, "atol": 1e-12}
        torch.testing.assert_close(plain[i, :n], model.encoder(one, full), **close)
        torch.testing.assert_close(
            sloped[i, :n], model.encoder(one, full, score_bias=alibi), **close
        )
        own = table[:n, :n].reshape(-1, 1)
        torch.testing.assert_close(biased[i, :n], model.encoder(one, full, score_bias=own), **close)
        torch.testing.assert_close(
            written[i], model(one, x[i, :2], full, graphs.causal(...)), **close
        )
    with pytest.raises(ShapeError, match=r"lengths must be in \[1, 6\), of the tokens, got 0 to 3"):
        model.encoder(x, full, lengths=torch.tensor([0, 2, 3]))
    with pytest.raises(ShapeError, match=r"lengths must be integers .* \(3,\), got bool"):
        model.encoder(x, full, lengths=torch.ones(3).bool())


def test_biases_and_edge_features_of_each_layer_and_biases_of_positions():
    x, wide = torch.randn(5, 8), graphs.full(5)
    stack, bias = Encoder(2, 8, 2, edge_dim=3), ga.nn.T5Bias(2, num_buckets=8)
    nn.init.normal_(bias.table.weight)
    attr = [torch.randn(g.num_edges, 3) for g in (CAUSAL, wide)]
    biases = [torch.randn(CAUSAL.num_edges, 2), bias]
    each = nn.ModuleList([bias, ga.nn.ALiBi(2)])
    torch.testing.assert_close(
        stack(x, CAUSAL, score_bias=each, edge_attr=attr[0]),
        stack(x, CAUSAL, score_bias=list(each), edge_attr=attr[0]),
    )
    found = stack(x, [CAUSAL, wide], score_bias=biases, edge_attr=attr)
    wanted = stack.layers[0](x, CAUSAL, score_bias=biases[0], edge_attr=attr[0])
    wanted = stack.norm(stack.layers[1](wanted, wide, score_bias=bias(wide), edge_attr=attr[1]))
    torch.testing.assert_close(found, wanted)
    stack, positions = Encoder(2, 8, 2), torch.arange(5) * 9
    found = stack(x, CAUSAL, score_bias=bias, positions=positions)
    torch.testing.assert_close(found, stack(x, CAUSAL, score_bias=bias(CAUSAL, positions)))
    assert not torch.allclose(found, stack(x, CAUSAL, score_bias=bias))


def test_drop_path_drops_whole_examples_and_keeps_the_mean():
    torch.manual_seed(0)
    x, path = torch.ones(4000, 2, 3), DropPath(0.25)
    dropped = path(x)
    assert dropped.flatten(1).unique(dim=0)[:, 0].tolist() == pytest.approx([0.0, 4 / 3])
    assert dropped.mean() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(path.eval()(x), x)


def test_dropout_is_where_torch_has_it():
    torch.manual_seed(1)
    theirs = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.5, batch_first=True).double()
    mine, x = TransformerBlock.from_torch(theirs), torch.randn(64, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(mine.eval()(x, graphs.full(5)), theirs.eval()(x))
    spread = [
        m.train()(x, *g).detach().std(0).mean()
        for m, g in ((mine, (graphs.full(5),)), (theirs, ()))
    ]
    assert spread[0] == pytest.approx(float(spread[1]), rel=0.1)


def test_drop_path_grows_from_block_to_block():
    for given, wanted in ((0.2, [0.0, 0.1, 0.2]), ([0.3, 0.0, 0.1], [0.3, 0.0, 0.1])):
        for stack in (Encoder(3, 8, 2, drop_path=given), Decoder(3, 8, 2, drop_path=given)):
            assert [layer.branch[1].p for layer in stack.layers] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda x: TransformerBlock(8, 2, norm="batch"),
            OptionError,
            'norm must be "layer" or "rms"',
        ),
        (
            lambda x: TransformerBlock(8, 2, activation="tanh"),
            OptionError,
            "activation must be one of relu, gelu",
        ),
        (
            lambda x: TransformerBlock(8, 2)(x, CAUSAL, memory=x),
            OptionError,
            "built without cross=True",
        ),
        (lambda x: TransformerBlock(8, 2, cross=True)(x, CAUSAL), OptionError, "pass memory"),
        (
            lambda x: TransformerBlock(8, 2)(x, CAUSAL, positions=torch.arange(5)),
            OptionError,
            "built without rotary",
        ),
        (
            lambda x: Encoder(2, 8, 2)(x, CAUSAL, edge_attr=[x]),
            OptionError,
            "edge_attr must be one, or 2, one for each layer, got 1",
        ),
        (
            lambda x: Encoder(2, 8, 2, drop_path=[0.1]),
            OptionError,
            "drop_path must be one, or 2, one for each layer, got 1",
        ),
        (lambda x: Decoder(2, 8, 2, cross=False), OptionError, "leave out cross"),
        (
            lambda x: TransformerBlock(8, 2, 16, feed_forward=nn.Linear(8, 8)),
            OptionError,
            "hidden=16 configures the default feed-forward",
        ),
        (
            lambda x: TransformerBlock(8, 2, feed_forward=nn.Linear(8, 1))(x, CAUSAL),
            ShapeError,
            r"the result of feed_forward must have shape \(5, 8\), got a Tensor \(5, 1\)",
        ),
        (
            lambda x: TransformerBlock(8, 2)(x, CAUSAL, memory_graph=CAUSAL),
            OptionError,
            "memory_graph and memory_bias require",
        ),
        (
            lambda x: TransformerBlock(8, 2)(x, CAUSAL, memory_bias=x[0, 0]),
            OptionError,
            "memory_graph and memory_bias require",
        ),
        (lambda x: Encoder(2, 8, 2)(x, None, caches=[KeyValueCache()] * 2), GraphError, "graph"),
        (
            lambda x: MixtureOfExperts([nn.Linear(8, 6)], 8, 1)(x),
            ShapeError,
            r"the result of experts\[0\] must have shape \(5, 8\), got a Tensor \(5, 6\)",
        ),
        (
            lambda x: MixtureOfExperts([Silent()], 8, 1).graph(x[None]),
            ShapeError,
            r"x must have shape \(N, 8\), got a Tensor \(1, 5, 8\)",
        ),
        (lambda x: TransformerBlock.from_torch(nn.Linear(2, 2)), OptionError, "got Linear"),
        (
            lambda x: Encoder.from_torch(nn.Linear(2, 2)),
            OptionError,
            r"expected TransformerEncoder, and none",
        ),
        (
            lambda x: ga.nn.GraphAttention(8, 2, rotary=Rotary(4))(
                x, CAUSAL, context=x + 1, positions=torch.arange(5)
            ),
            OptionError,
            "must be a pair",
        ),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make(torch.randn(5, 8))


def test_a_learned_bias_for_each_edge_of_each_layer():
    torch.manual_seed(0)
    layers = [graphs.sliding_window(5, 2, causal=True), CAUSAL, CAUSAL]
    stack, x = Encoder(3, 8, 2).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    bias = nn.ParameterList(
        torch.randn(graph.num_edges, 2, dtype=torch.float64) for graph in layers
    )
    wanted = x
    for layer, graph, its in zip(stack.layers, layers, bias, strict=True):
        wanted = layer(wanted, graph, score_bias=its)
    wanted = stack.norm(wanted)
    theirs = torch.autograd.grad(wanted.square().sum(), list(bias), retain_graph=True)
    for given in (bias, list(bias)):
        found = stack(x, layers, score_bias=given)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
        for mine, other in zip(
            torch.autograd.grad(found.square().sum(), list(bias)), theirs, strict=True
        ):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)
            assert mine.abs().sum() > 0
    assert not stack.encodes_positions(bias)
    with pytest.raises(
        OptionError, match="score_bias must be one, or 3, one for each layer, got 2"
    ):
        stack(x, layers, score_bias=bias[:2])
