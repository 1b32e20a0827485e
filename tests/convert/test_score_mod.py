"""Score functions of FlexAttention, as people write them, beside FlexAttention itself."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import graphattn as ga
from graphattn.convert import from_score_mod
from graphattn.errors import GraphError, OptionError, ShapeError

B, H, KV, N, D, V = 2, 6, 3, 17, 5, 7
torch.manual_seed(0)
TABLE = torch.randn(H, 2 * N - 1, dtype=torch.float64, requires_grad=True)
NORMS = torch.rand(B, H, N, dtype=torch.float64)
DOCUMENT = torch.arange(N) // 6
SINK = torch.randn(H, dtype=torch.float64, requires_grad=True)


def within_documents(score, b, h, q, kv):
    return torch.where(DOCUMENT[q] == DOCUMENT[kv], score, -float("inf"))


def alibi(score, b, h, q, kv):
    return score + (kv - q) * torch.exp2(-((h + 1) * 8.0 / H))


def table(score, b, h, q, kv):
    return (score + TABLE[h, q - kv + N - 1]).masked_fill((q + kv) % 5 == 1, -torch.inf)


def of_examples(score, b, h, q, kv):
    return score - 0.5 * NORMS[b, h, kv]


def softcap(score, b, h, q, kv):
    return 2.0 * torch.tanh(score / 2.0)


def squared(score, b, h, q, kv):
    return score * score


def silu(score, b, h, q, kv):
    return torch.nn.functional.silu(score) + (q - kv)


def trigonometric(score, b, h, q, kv):
    return torch.sin(score * (h + 1)) + torch.cos(score)


def logit_of_the_first(score, b, h, q, kv):
    return torch.where(kv == 0, SINK[h], score)


def scaled_by_example(score, b, h, q, kv):
    return score * NORMS[b, h, kv]


ADDITIVE = (within_documents, alibi, table, of_examples)
OTHERS = (softcap, squared, silu, trigonometric, logit_of_the_first, scaled_by_example)


def tensors():
    drawn = torch.Generator().manual_seed(1)
    shapes = ((B, N, H, D), (B, N, KV, D), (B, N, KV, V))
    return [
        torch.randn(shape, generator=drawn, dtype=torch.float64, requires_grad=True)
        for shape in shapes
    ]


def dense(query, key, value, mask, mod, scale):
    """The formula on all pairs, of which the CPU's FlexAttention has no gradient."""
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    k, v = (x.repeat_interleave(H // KV, 1) for x in (k, v))
    score = (D**-0.5 if scale is None else scale) * (q @ k.mT)
    b, h, t, s = torch.meshgrid(*map(torch.arange, score.shape), indexing="ij")
    score = mod(score, b, h, t, s).masked_fill(~mask, -torch.inf)
    return (score.softmax(-1) @ v).transpose(1, 2)


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("mod", [*ADDITIVE, *OTHERS], ids=lambda mod: mod.__name__)
def test_outputs_and_gradients_are_flex_attentions(mod, scale):
    torch.manual_seed(2)
    mask = torch.rand(N, N) > 0.4
    mask.fill_diagonal_(True)
    graph = ga.from_mask(mask)
    query, key, value = tensors()
    arguments = from_score_mod(mod, graph, B=B, H=H, scale=scale, dtype=torch.float64)
    assert ("score_bias" in arguments) == (mod in ADDITIVE)
    found = ga.attention(query, key, value, graph, **arguments)
    blocks = create_block_mask(lambda b, h, q, kv: mask[q, kv], None, None, N, N, device="cpu")
    heads_first = [x.detach().transpose(1, 2) for x in (query, key, value)]
    with torch.no_grad():
        theirs = flex_attention(
            *heads_first, score_mod=mod, block_mask=blocks, scale=scale, enable_gqa=True
        ).transpose(1, 2)
    assert torch.allclose(found, theirs, rtol=0, atol=1e-12)
    expected = dense(query, key, value, mask, mod, scale)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    inputs = [query, key, value]
    if mod is table:
        inputs.append(TABLE)
    if mod is logit_of_the_first:
        inputs.append(SINK)
    cotangent = torch.randn(found.shape, dtype=torch.float64)
    mine, theirs = (torch.autograd.grad(y, inputs, cotangent) for y in (found, expected))
    for one, other in zip(mine, theirs, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-11)
        assert one.abs().sum() > 0
    mask[4, 4] = False
    fewer = ga.from_mask(mask)
    arguments = from_score_mod(mod, fewer, B=B, H=H, scale=scale, dtype=torch.float64)
    without = ga.attention(query, key, value, fewer, **arguments)
    assert not torch.allclose(without[:, 4], found[:, 4])
    assert torch.allclose(without[:, :4], found[:, :4], rtol=0, atol=1e-14)


def test_what_looks_additive_is_read_from_its_operations():
    graph = ga.graphs.causal(5)

    def is_bias(mod):
        return "score_bias" in from_score_mod(mod, graph, H=H)

    assert is_bias(lambda score, b, h, q, kv: score)
    assert is_bias(lambda score, b, h, q, kv: 1.0 + (score - h).to(score.dtype))
    assert not is_bias(lambda score, b, h, q, kv: score.clamp(-1e30, 1e30))
    assert not is_bias(lambda score, b, h, q, kv: torch.where(q > 3, score, -1e30))
    assert not is_bias(lambda score, b, h, q, kv: h - score)
    assert not is_bias(lambda score, b, h, q, kv: score + score)
    assert not is_bias(lambda score, b, h, q, kv: score.long() + 0.0)
    assert not is_bias(lambda score, b, h, q, kv: torch.where(score > 9, score, -torch.inf))
    assert not is_bias(lambda score, b, h, q, kv: torch.add(h, score, alpha=2))
    for constant in (torch.zeros, torch.ones):
        assert not is_bias(lambda score, b, h, q, kv, c=constant: torch.where(q > 3, score, c(())))
    assert is_bias(lambda score, b, h, q, kv: torch.where(q > 3, score, -torch.tensor(torch.inf)))
    assert not is_bias(lambda s, b, h, q, kv: torch.where(q > 3, s, torch.tensor(-torch.inf).exp()))


@pytest.mark.parametrize("mod", [*ADDITIVE, *OTHERS], ids=lambda mod: mod.__name__)
@pytest.mark.parametrize("shared", [False, True], ids=["masks of their own", "one mask"])
def test_examples_count_their_own_nodes(mod, shared):
    """A mask that reads b is a PerExample, whose q_idx and kv_idx are those of each example."""
    query, key, value = tensors()
    masks = torch.rand(B, N, N, generator=torch.Generator().manual_seed(5)) < 0.4
    masks |= torch.eye(N, dtype=torch.bool)
    if shared:
        masks = masks[:1].expand(B, N, N)
    if shared:
        graph = ga.PerExample([ga.from_mask(masks[0])] * B)
    else:
        graph = ga.convert.from_mask_mod(lambda b, h, q, kv: masks[b, q, kv], N, N, B=B)
        assert isinstance(graph, ga.PerExample)
    arguments = from_score_mod(mod, graph, H=H, dtype=torch.float64)
    found = ga.attention(query, key, value, graph, **arguments)
    for example in range(B):

        def own(score, b, h, q, kv, example=example):
            return mod(score, torch.as_tensor(example), h, q, kv)

        rows = (x[example : example + 1] for x in (query, key, value))
        expected = dense(*rows, masks[example], own, None)
        assert torch.allclose(found[example], expected[0], rtol=0, atol=1e-12)


def test_a_score_is_of_one_graph():
    graph = ga.graphs.causal(N)
    query, key, value = tensors()
    score = from_score_mod(trigonometric, graph, H=H)["score"]
    flipped = ga.from_edge_index(graph.edge_index.flip(1), num_nodes=N)
    for other in (flipped, ga.graphs.full(N)):
        with pytest.raises(GraphError, match="score is of other edges"):
            ga.attention(query, key, value, other, score=score)
    same = ga.from_edge_index(graph.edge_index, num_nodes=N)
    found = ga.attention(query, key, value, same, score=score)
    assert torch.equal(found, ga.attention(query, key, value, graph, score=score))
    with pytest.raises(GraphError, match=r"for ga\.attention, not for a layer"):
        ga.nn.GraphAttention(H * D, H, score=score)(torch.randn(N, H * D), graph)


def test_a_graph_without_edges_gives_zeros():
    graph = ga.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=N)
    query, key, value = tensors()
    for mod in (alibi, trigonometric):
        arguments = from_score_mod(mod, graph, H=H, dtype=torch.float64)
        assert not ga.attention(query, key, value, graph, **arguments).any()


@pytest.mark.parametrize("backend", ["edges", "message_passing"])
def test_a_score_of_the_operator(backend):
    """A function of queries and keys, which no score_mod is."""
    graph = ga.graphs.sliding_window(N, 5, causal=True)
    query, key, value = tensors()

    def distance(query, key, edge_attr):
        return -(query - key).square().sum(-1)

    found = ga.attention(query, key, value, graph, score=distance, backend=backend)
    key, value = (x.repeat_interleave(H // KV, -2) for x in (key, value))
    scores = -(query[:, :, None] - key[:, None]).square().sum(-1)
    scores = scores.masked_fill(~graph.mask()[..., None], -torch.inf)
    expected = torch.einsum("btsh,bshd->bthd", scores.softmax(2), value)
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_a_score_compiles_whole():
    graph = ga.graphs.full(N)  # more edges than a sum adds in one step
    inputs = tensors()
    table = torch.randn(H, dtype=torch.float64, requires_grad=True)
    arguments = from_score_mod(lambda score, b, h, q, k: score**2 + table[h] * q, graph, H=H)

    def call(query, key, value):
        return ga.attention(query, key, value, graph, **arguments)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    found, expected = compiled(*inputs), call(*inputs)
    assert torch.allclose(found, expected, atol=1e-12)
    inputs = [*inputs, table]
    both = [torch.autograd.grad(y.square().sum(), inputs) for y in (found, expected)]
    for mine, theirs in zip(*both, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-12)
        assert mine.abs().sum() > 0


def test_a_score_of_a_single_example_on_half_precision():
    graph = ga.graphs.causal(N)
    query, key, value = (x[0].detach().bfloat16() for x in tensors())
    found = ga.attention(query, key, value, graph, **from_score_mod(squared, graph))
    wide = [x.double() for x in (query, key, value)]
    expected = ga.attention(*wide, graph, **from_score_mod(squared, graph, dtype=torch.float64))
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.double(), expected, atol=2e-2)


def test_refusals():
    graph = ga.graphs.causal(N)
    query, key, value = tensors()
    with pytest.raises(GraphError, match="score_mod reads h: pass H="):
        from_score_mod(alibi, graph)
    with pytest.raises(GraphError, match="score_mod reads b: pass B="):
        from_score_mod(scaled_by_example, graph, H=H)
    score = from_score_mod(scaled_by_example, graph, B=B, H=H)["score"]
    with pytest.raises(ShapeError, match="B=2 examples"):
        ga.attention(query[0], key[0], value[0], graph, score=score)
    with pytest.raises(OptionError, match="requires the dot product"):
        ga.attention(query, key, value, graph, score=score, scale=2.0)
    edge = torch.zeros(graph.num_edges, H, D)
    with pytest.raises(OptionError, match="a score excludes edge_key"):
        ga.attention(query, key, value, graph, score=score, edge_key=edge)
