"""EdgeWeights: unpacking, dense(), top(k), and the tensor that they stand for."""

import copy
import operator
import pickle

import numpy as np
import pytest
import torch
from attention_formula import WEIGHING, assert_near, tensors
from graph_table import GRAPHS

import graphattn as ga
from graphattn.errors import GraphError, OptionError

both = pytest.mark.parametrize("backend", WEIGHING)


def weights(graph, backend="auto", lead=(2,)):
    return ga.attention(*tensors(graph, lead), graph, backend=backend, return_weights=True).weights


@both
def test_it_unpacks_as_pyg_users_expect(backend):
    graph = GRAPHS["listed_bipartite"]()
    found = weights(graph, backend)
    edge_index, alpha = found
    assert torch.equal(edge_index, graph.edge_index)
    assert alpha is found.alpha
    assert alpha.shape == (2, 53, 6)
    assert repr(found) == "EdgeWeights(random bipartite: alpha 2x53x6, float64)"


@both
def test_what_was_not_asked_for_is_none(backend):
    graph = GRAPHS["causal"]()
    inputs = tensors(graph)
    assert isinstance(ga.attention(*inputs, graph, backend=backend), torch.Tensor)
    only_lse = ga.attention(*inputs, graph, backend=backend, return_lse=True)
    assert only_lse.weights is None
    only_weights = ga.attention(*inputs, graph, backend=backend, return_weights=True)
    assert only_weights.lse is None
    output, _, lse = only_lse
    assert_near(output, only_weights.output)
    assert lse.shape == (13, 6)


@both
@pytest.mark.parametrize("name", ["listed_bipartite", "isolated_targets", "longformer", "no_edges"])
def test_dense_weights_times_values_are_the_output(name, backend):
    graph = GRAPHS[name]()
    q, k, v = tensors(graph, (2,))
    found = ga.attention(q, k, v, graph, backend=backend, return_weights=True)
    dense = found.weights.dense()
    assert dense.shape == (2, 6, graph.num_targets, graph.num_sources)
    assert not dense[..., ~graph.mask()].any()
    assert_near(
        (dense @ v.repeat_interleave(2, -2).transpose(-3, -2)).transpose(-3, -2), found.output
    )


def test_copies_of_an_edge_are_added_up():
    graph = GRAPHS["repeated_edges"]()
    found = weights(graph, lead=())
    total = found.alpha[torch.tensor([0, 2, 4])].sum(0)  # 0 -> 1, three times
    assert_near(found.dense()[:, 1, 0], total)
    assert_near(
        found.dense().sum(-1),
        torch.ones(6, 5, dtype=torch.float64).index_fill(1, torch.tensor([2]), 0.0),
    )


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("name", ["listed_bipartite", "isolated_targets", "causal", "no_edges"])
def test_top(name, k):
    graph = GRAPHS[name]()
    found = weights(graph)
    top = found.top(k)
    assert top.source.shape == top.weight.shape == (2, graph.num_targets, 6, k)
    assert top.source.dtype == torch.int64
    dense = found.dense()
    for t in range(graph.num_targets):
        for batch, head in ((0, 1), (1, 5)):
            row = dense[batch, head, t]
            n = min(k, int(graph.in_degree[t]))
            strongest = torch.argsort(row, descending=True)[:n]
            assert top.source[batch, t, head].tolist() == [*strongest.tolist(), *[-1] * (k - n)]
            assert_near(top.weight[batch, t, head, :n], row[strongest])
            assert not top.weight[batch, t, head, n:].any()


def test_top_keeps_the_edge_order_among_equals():
    graph = ga.from_edge_index(
        torch.tensor([[4, 0, 2, 1], [0, 0, 0, 0]]), num_sources=5, num_targets=1
    )
    x = torch.ones(1, 1, 2)
    found = ga.attention(
        x, x.expand(5, 1, 2), x.expand(5, 1, 2), graph, return_weights=True
    ).weights
    assert found.top(3).source.flatten().tolist() == [4, 0, 2]


@pytest.mark.parametrize("k", [0, -1, 2.0, None])
def test_top_needs_a_k(k):
    with pytest.raises(OptionError, match=f"k must be a whole number >= 1, got {k}"):
        weights(GRAPHS["causal"]()).top(k)


def test_dense_refuses_what_does_not_fit_in_memory():
    graph = ga.graphs.sliding_window(100_000, 1, causal=True)
    found = ga.EdgeWeights(graph, torch.ones(100_000, 3))
    with pytest.raises(
        GraphError, match=r"dense\(\) of 100,000 x 100,000 .* use alpha, top\(k\) or graph"
    ):
        found.dense()
    assert found.top(1).source[77_777].tolist() == [[77_777]] * 3


@pytest.mark.parametrize("k", [10**9, 10**18])
def test_top_refuses_a_table_that_does_not_fit(k):
    found = weights(GRAPHS["causal"]())
    with pytest.raises(
        GraphError, match=r"top\([\d,]+\) would take [\d,]+ bytes \(limit 4,294,967,296\)"
    ):
        found.top(k)


def test_iteration_is_pygs_pair_and_all_else_is_the_dense_tensor():
    graph = GRAPHS["listed_bipartite"]()
    for lead in ((), (2,), (3, 2)):
        found = weights(graph, lead=lead)
        dense = found.dense()
        assert [x.shape for x in found] == [graph.edge_index.shape, found.alpha.shape]
        assert found.shape == dense.shape == (*lead, 6, graph.num_targets, graph.num_sources)
        assert (len(found), found.ndim, found.dim()) == (len(dense), dense.ndim, dense.dim())
        assert (found.dtype, found.device, found.requires_grad) == (
            dense.dtype,
            dense.device,
            dense.requires_grad,
        )
        assert [found.size(), found.size(-1), found.numel()] == [
            dense.size(),
            dense.size(-1),
            dense.numel(),
        ]
        assert torch.equal(found[1], dense[1])
        assert found  # an object that is there, as before, and no tensor of unclear truth


INDICES = [
    0,
    -1,
    (1, 2),
    (slice(1), 3, 2),
    (..., 4),
    (slice(None), [0, 2]),
    None,
    (0, None),
    torch.tensor([1, 0]),
]
INDICES += [
    (1, slice(0, 6, 2), slice(2, 5)),
    (1, 2, 0, 0),
    (0, ..., slice(3)),
    True,
    (slice(None), True, 0),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("name", ["listed_bipartite", "repeated_edges"])
def test_an_index_is_one_of_the_dense_tensor(name, index):
    found = weights(GRAPHS[name]())
    assert torch.equal(found[index], found.dense()[index])
    wide = ga.EdgeWeights(found.graph, torch.stack((found.alpha, 2 * found.alpha)))
    further = (1, *(index if isinstance(index, tuple) else (index,)))
    assert torch.equal(wide[further], wide.dense()[further])


@pytest.mark.parametrize("index", [2, (0, 6), (0, 0, 0, 0, 0)])
def test_an_index_beyond_the_end_is_torchs_error(index):
    with pytest.raises(IndexError):
        weights(GRAPHS["causal"]())[index]


def test_functions_operators_and_numpy_read_the_dense_tensor():
    found = weights(GRAPHS["causal"]())
    dense = found.dense()
    for call in (
        lambda w: torch.stack([w, w]),
        lambda w: torch.cat((w, dense), 1),
        lambda w: torch.max(w, dim=-1).values,
        lambda w: torch.einsum("bhts,bhsd->bhtd", w, dense),
        lambda w: torch.nn.functional.pad(w, (0, 1)),
        lambda w: torch.where(w > 0.2, w, -w),
        lambda w: w.mean(1),
        lambda w: w.sum(dim=(0, 1)).argmax(-1),
        lambda w: w.transpose(-2, -1).reshape(2, 6, -1),
        lambda w: w.view(12, 13, 13) @ w.flatten(0, 1),
        lambda w: w.mT,
        lambda w: w.max(),
        lambda w: torch.zeros_like(dense).copy_(w),
        lambda w: torch.zeros_like(dense).add_(w, alpha=2),
        lambda w: dense.masked_fill(w == 0, -1.0),
        lambda w: 1 - w,
        lambda w: -w,
        lambda w: abs(w) ** 2,
        lambda w: torch.tensor(w.detach().cpu().numpy()),
        lambda w: torch.as_tensor(np.stack([w.detach(), w.detach()])),
        lambda w: torch.tensor(w.tolist()),
    ):
        assert torch.equal(call(found), call(dense))
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "pow",
        "matmul",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "floordiv",
        "mod",
    ):
        run = getattr(operator, name)
        pairs = [(found, dense + 1), (dense + 1, found), (found, found)]
        for x, y in pairs:
            expected = run(*(z.dense() if z is found else z for z in (x, y)))
            assert torch.equal(torch.nan_to_num(run(x, y)), torch.nan_to_num(expected)), name
    assert np.array_equal(np.asarray(found.detach()), dense.detach().numpy())
    assert np.asarray(found.detach(), dtype=np.float32).dtype == np.float32
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(found)


def test_moves_and_casts_keep_edges():
    found = ga.attention(
        *tensors(graph := GRAPHS["causal"](), (2,)), graph, return_weights=True
    ).weights
    for call in (
        lambda w: w.detach(),
        lambda w: w.to(torch.float32),
        lambda w: w.cpu().float(),
        lambda w: w.clone(),
        lambda w: w.half().double(),
        lambda w: w.contiguous(),
        copy.copy,
        lambda w: copy.deepcopy(w.detach()),
        lambda w: pickle.loads(pickle.dumps(w.detach())),
    ):
        other = call(found)
        assert isinstance(other, ga.EdgeWeights)
        assert other.alpha.shape == found.alpha.shape
        assert_near(other.dense().double(), found.dense(), 2e-3)
    assert not found.detach().requires_grad
    assert found.to(torch.float32).dtype == torch.float32


def test_what_would_write_to_them_is_refused():
    found = weights(GRAPHS["causal"]())
    dense = found.dense().detach()
    with pytest.raises(OptionError, match=r"read-only; write to weights\.dense"):
        torch.add(dense, dense, out=found)
    with pytest.raises(OptionError, match="read-only"):
        torch.relu_(found)
    with pytest.raises(AttributeError, match=r"read-only: call mul_ of weights\.dense"):
        found.mul_(2)
    with pytest.raises(TypeError, match="item assignment"):
        found[0] = dense[0]
    with pytest.raises(AttributeError, match="no attribute 'attentions'"):
        found.attentions  # noqa: B018


def test_gradients_of_weights_are_weights():
    graph = ga.PerHead([GRAPHS["causal"](), GRAPHS["causal"]() - ga.graphs.shifted(13, -2)])
    inputs = tensors(graph, (2,))
    result = ga.attention(*inputs, graph, return_weights=True)
    loss = result.output.sin().sum() + (result.weights * result.weights).sum()
    expected = torch.autograd.grad(loss, result.weights.alpha, retain_graph=True)[0]
    (found,) = torch.autograd.grad(loss, result.weights, retain_graph=True)
    assert isinstance(found, ga.EdgeWeights)
    assert torch.equal(found.alpha, expected)
    assert found.heads is graph
    both = torch.autograd.grad(
        [loss], (inputs[0], result.weights), create_graph=True, allow_unused=True
    )
    assert isinstance(both[1], ga.EdgeWeights)
    assert both[0].shape == inputs[0].shape
    unused = torch.autograd.grad(inputs[0].sum(), [result.weights], allow_unused=True)
    assert unused == (None,)
    (of_dense,) = torch.autograd.grad(
        result.weights, inputs[0], torch.ones_like(result.weights.dense()), True
    )
    assert_near(of_dense, torch.zeros_like(of_dense), 1e-12)  # a target's weights sum to 1
    seen = []
    result.weights.register_hook(lambda grad: seen.append(grad))
    result.weights.register_hook(lambda grad: grad.clone())
    result.weights.retain_grad()
    torch.autograd.backward(loss, inputs=[result.weights, *inputs], retain_graph=True)
    assert torch.equal(seen[0].dense(), result.weights.grad.dense())
    assert torch.equal(seen[0].alpha, expected)
    result.weights.register_hook(lambda grad: grad.dense())
    with pytest.raises(
        OptionError, match="must return None or weights of the same edges, got Tensor"
    ):
        loss.backward()


def test_sizes_need_no_memory_and_a_large_tensor_is_refused_by_its_bytes():
    graph = ga.graphs.sliding_window(40_000, 2, causal=True)
    found = ga.EdgeWeights(graph, torch.ones(graph.num_edges, 3))
    assert found.shape == (3, 40_000, 40_000)
    assert found.numel() == 3 * 40_000**2
    assert found.detach().cpu().device.type == "cpu"
    for use in (lambda w: w.mean(), lambda w: w[0], torch.sum, np.asarray):
        with pytest.raises(
            GraphError,
            match=r"would take [\d,]+ bytes \(limit .* use alpha, top\(k\) or graph, which",
        ):
            use(found)
    less = ga.graphs.sliding_window(20_000, 1, causal=True)
    several = ga.EdgeWeights(less, torch.ones(20_000, 3))
    with pytest.raises(GraphError, match="4,800,000,000 bytes"):
        several[:]
    assert several.top(1).source.shape == (20_000, 3, 1)
