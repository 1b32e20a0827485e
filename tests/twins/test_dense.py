"""The judge is judged: by torch's own attention, by a loop, and by what it may import."""

import ast
import builtins
import dis
import functools
import inspect
import math
import sys
import types
from pathlib import Path

import pytest
import torch
from graph_table import GRAPHS
from torch import nn
from torch.nn import functional as F

from graphattn.exactness import DenseGraphAttention, dense_attention
from graphattn.nn import FeatureScore, GraphAttention, PositiveFeatures
from graphattn.nn.linear_attention import FEATURE_MAPS
from graphattn.nn.normalizers import NORMALIZERS
from graphattn.nn.scores import SCORES
from graphattn.twins import dense as twins

T, S, H, D, V = 7, 11, 3, 5, 2


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def operands(heads=H, kv_heads=H, value=V):
    return randn(T, heads, D), randn(S, kv_heads, D, seed=1), randn(S, kv_heads, value, seed=2)


def some_mask(empty=()):
    mask = randn(T, S, seed=3) > 0
    mask[:, 0] = True
    mask[list(empty)] = False
    return mask


def test_it_imports_torch_and_the_standard_library_alone():
    result = set()
    for node in ast.walk(ast.parse(Path(twins.__file__).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            result |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            result.add(node.module.split(".")[0])
    assert result <= {"torch"} | sys.stdlib_module_names
    assert not {"importlib", "sys"} & result


FORMULAS = {
    **{name: (score.dense, score) for name, score in SCORES.items()},
    "delta": (SCORES["subtraction"].dense_delta, SCORES["subtraction"]),
    "features": (FeatureScore.dense, FeatureScore),
    "positive features": (PositiveFeatures.dense, PositiveFeatures),
    **{f"{name} features": (entry.dense, None) for name, entry in FEATURE_MAPS.items()},
    **{
        name: (result.dense, result.of if isinstance(result.of, type) else None)
        for name, result in NORMALIZERS.items()
    },
}


def names_used(code):
    """Global names, and attributes, of a piece of code and of those inside it."""
    used = [
        (i.opname, i.argval)
        for i in dis.get_instructions(code)
        if i.opname in ("LOAD_GLOBAL", "LOAD_ATTR")
    ]
    used += [
        ("LOAD_ATTR", i.argval) for i in dis.get_instructions(code) if i.opname == "LOAD_METHOD"
    ]
    for inner in code.co_consts:
        used += names_used(inner) if isinstance(inner, types.CodeType) else []
    return used


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_beside_its_score_or_normalisation_shares_no_code_with_it(name):
    formula, owner = FORMULAS[name]
    formulas = [formula]
    own = {k for k, value in vars(owner or object).items() if inspect.isfunction(value)}
    while formulas:
        for kind, used in names_used((result := formulas.pop()).__code__):
            if kind == "LOAD_ATTR":
                assert used == "dense" or used not in own | {"forward", "as_dot"}, used
            elif used.startswith("_dense_"):
                formulas.append(result.__globals__[used])
            else:
                assert used in {"torch", "math", *dir(builtins)}, used


def test_equals_scaled_dot_product_attention():
    query, key, value = operands(heads=6, kv_heads=3)
    mask, bias = some_mask(), randn(6, T, S, seed=4)
    result = dense_attention(query, key, value, mask, bias, scale=0.3).output
    heads_first = (x.transpose(0, 1)[None] for x in (query, key, value))
    added = bias.masked_fill(~mask, -torch.inf)[None]
    truth = F.scaled_dot_product_attention(*heads_first, added, scale=0.3, enable_gqa=True)[
        0
    ].transpose(0, 1)
    torch.testing.assert_close(result, truth, rtol=0, atol=1e-14)


def test_equals_multihead_attention():
    torch.manual_seed(0)
    mha = nn.MultiheadAttention(12, 3, dtype=torch.float64)
    nn.init.normal_(mha.in_proj_bias)
    layer = GraphAttention.from_torch(mha)
    twin = DenseGraphAttention(layer.state_dict(), 3)
    x, memory, mask = randn(T, 12), randn(S, 12, seed=1), some_mask()
    truth, _ = mha(x, memory, memory, attn_mask=~mask)
    torch.testing.assert_close(twin(x, mask, memory), truth, rtol=0, atol=1e-13)


def test_equals_a_loop_with_every_option():
    query, key, value = operands(heads=6, kv_heads=2, value=D)
    mask, bias, edge = some_mask(empty=[2]), randn(6, T, S, seed=4), randn(T, S, 2, D, seed=5)
    copies = torch.randint(1, 4, (T, S), generator=torch.Generator().manual_seed(6)) * mask
    result = dense_attention(query, key, value, mask, bias, 0.7, 1.9, copies, edge)
    for t in range(T):
        for h in range(6):
            seen, scores = [], []
            for s in range(S):
                for _ in range(int(copies[t, s])):
                    product = 0.7 * sum(
                        (query[t, h] * (key[s, h // 3] + edge[t, s, h // 3])).tolist()
                    )
                    scores.append(1.9 * math.tanh(product / 1.9) + float(bias[h, t, s]))
                    seen.append(value[s, h // 3] + edge[t, s, h // 3])
            total = sum(math.exp(score) for score in scores)
            expected = sum(
                (math.exp(a) / total * v for a, v in zip(scores, seen, strict=True)), torch.zeros(D)
            )
            torch.testing.assert_close(result.output[t, h], expected.double(), rtol=0, atol=1e-13)
            assert float(result.lse[t, h]) == pytest.approx(
                math.log(total) if scores else -math.inf, abs=1e-13
            )
    assert float(result.weights[:, 2].abs().sum()) == 0.0
    torch.testing.assert_close(result.weights.sum(-1)[:, 3], torch.ones(6).double())


@pytest.mark.parametrize("name", NORMALIZERS)
def test_copies_of_an_edge_are_edges_whatever_the_normalisation(name):
    kind = NORMALIZERS[name]
    normalize = (
        functools.partial(kind.dense, kind.of(*[H] * (name == "sink")))
        if isinstance(kind.of, type)
        else kind.dense
    )
    query, key, value = operands()
    copies = torch.randint(0, 4, (T, S), generator=torch.Generator().manual_seed(6))
    result = dense_attention(
        query, key, value, some_mask(empty=[2]), multiplicity=copies, normalize=normalize
    )
    apart = torch.cat([some_mask(empty=[2]) & (copies > copy) for copy in range(3)], -1)
    truth = dense_attention(
        query, key.repeat(3, 1, 1), value.repeat(3, 1, 1), apart, normalize=normalize
    )
    torch.testing.assert_close(result.output, truth.output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", ["no edges", "bias of -inf"])
def test_a_silent_row_is_zero_with_zero_gradients(how):
    query, key, value = (x.requires_grad_() for x in operands())
    mask, bias = some_mask(), torch.zeros(1, T, S, dtype=torch.float64)
    if how == "no edges":
        mask[4] = False
    else:
        bias[:, 4] = -torch.inf
    bias.requires_grad_()
    output, weights, lse = dense_attention(query, key, value, mask, bias)
    assert bool((output[4] == 0).all())
    assert bool((lse[4] == -torch.inf).all())
    assert bool((weights[:, 4] == 0).all())
    grads = torch.autograd.grad(
        (output * 3).sum() + lse[lse > -torch.inf].sum(), (query, key, value, bias)
    )
    assert all(bool(torch.isfinite(grad).all()) for grad in grads)
    assert bool((grads[0][4] == 0).all())
    assert bool((grads[3][:, 4] == 0).all())
    assert all(bool(grad.abs().sum() > 0) for grad in grads)


def test_an_edge_of_minus_infinity_is_an_edge_removed():
    query, key, value = operands()
    mask, bias = some_mask(), randn(H, T, S, seed=4)
    gone = torch.zeros_like(mask)
    gone[1, 0] = gone[5, 3] = True
    removed = dense_attention(query, key, value, mask & ~gone, bias)
    masked = dense_attention(query, key, value, mask, bias.masked_fill(gone, -torch.inf))
    for a, b in zip(removed, masked, strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_gradients_are_the_finite_differences():
    query, key, value = (x.requires_grad_() for x in operands())
    bias = randn(H, T, S, seed=4).requires_grad_()
    mask = some_mask(empty=[2])
    assert torch.autograd.gradcheck(
        lambda *x: dense_attention(*x[:3], mask, x[3], softcap=1.5).output,
        (query, key, value, bias),
    )


def test_it_works_in_the_dtype_of_its_inputs():
    query, key, value = operands()
    truth = dense_attention(query, key, value, some_mask()).output
    narrow = dense_attention(*(x.bfloat16() for x in (query, key, value)), some_mask())
    assert {x.dtype for x in narrow} == {torch.bfloat16}
    assert 1e-4 < float((narrow.output - truth).abs().max()) < 5e-2


def test_no_sources_and_no_targets():
    none = torch.zeros(0, H, D)
    result = dense_attention(torch.ones(T, H, D), none, none, torch.zeros(T, 0, dtype=torch.bool))
    assert result.output.shape == (T, H, D)
    assert float(result.output.abs().sum()) == 0.0
    assert dense_attention(none, none, none, torch.zeros(0, 0, dtype=torch.bool)).output.shape == (
        0,
        H,
        D,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_kv_heads": 1, "bias": False},
        {"qdim": 5, "kdim": 7, "vdim": 11, "head_dim": 3},
        {"head_dim": 3, "value_dim": 5},
        {"edge_dim": 7, "root_weight": True},
        {"out_proj": False, "root_weight": True},
    ],
)
def test_the_layer_twin_takes_a_layers_parameters_and_no_others(options):
    layer = GraphAttention(12, 3, **options).double()
    twin = DenseGraphAttention(layer.state_dict(), 3)
    assert {k: v.shape for k, v in twin.state_dict().items()} == {
        k: v.shape for k, v in layer.state_dict().items()
    }
    graph = GRAPHS["cross"]()
    x, context = (
        randn(7, layer.qdim),
        (randn(13, layer.kdim, seed=1), randn(13, layer.vdim, seed=2)),
    )
    # full: edge order is row by row
    edge = randn(91, 7, seed=3) if layer.edge_dim is not None else None
    dense_edge = None if edge is None else edge.view(7, 13, 7)
    result = twin(x, graph.mask(), context, dense_edge)
    torch.testing.assert_close(
        result, layer(x, graph, context=context, edge_attr=edge), rtol=0, atol=1e-13
    )
    with pytest.raises(RuntimeError, match="Unexpected key"):
        DenseGraphAttention({**layer.state_dict(), "temperature": torch.ones(())}, 3)


def test_the_layer_twin_knows_pygs_gate():
    from torch_geometric.nn import TransformerConv

    torch.manual_seed(0)
    conv = TransformerConv(7, 5, heads=3, beta=True).double()
    layer = GraphAttention.from_pyg(conv)
    graph = GRAPHS["listed_random"]()
    x = randn(17, 7)
    twin = DenseGraphAttention(layer.state_dict(), 3)
    torch.testing.assert_close(twin(x, graph.mask()), conv(x, graph.edge_index), rtol=0, atol=1e-13)
