"""Strides, offsets, the same bits every time, memory that nobody initialised."""

import functools

import pytest
import torch
from attention_formula import BACKENDS, assert_near, biases, gradients, taken, tensors
from graph_table import GRAPHS, KINDS

import graphattn as ga
from graphattn.backends import choose

each_backend = pytest.mark.parametrize("backend", BACKENDS)


def heads_first(x):
    return x.transpose(-3, -2).contiguous().transpose(-3, -2)


def width_first(x):
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


def every_other(x):
    return torch.stack((x, torch.full_like(x, torch.nan)), -1).flatten(-2)[..., ::2]


def offset(x):
    """One number past the start of the storage: 2 bytes off in half precision."""
    return torch.cat((x.new_full((1,), torch.nan), x.flatten()))[1:].view(x.shape)


def packed(x):
    """A part of a larger projection, as when one Linear makes query, key and value."""
    return torch.cat((x, torch.full_like(x, torch.nan)), -2)[..., : x.shape[-2], :]


@pytest.mark.sample(4)
@each_backend
@pytest.mark.parametrize("layout", [heads_first, width_first, every_other, offset, packed])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("listed_bipartite", torch.float64), ("causal", torch.float32), ("full", torch.bfloat16)],
)
def test_any_strides_and_offset(name, layout, dtype, backend):
    graph = GRAPHS[name]()
    inputs = tensors(graph, (2,), dtype=dtype)
    bias = biases(graph, (2,)).to(dtype)
    strange = [layout(x.detach()).requires_grad_() for x in inputs]
    for score_bias, extras in ((None, {}), (bias, {}), (None, {"return_lse": True})):
        outputs = []
        for given in (inputs, strange):
            found = ga.attention(*given, graph, score_bias, backend=backend, **extras)
            output = found.output if extras else found
            outputs.append([output, *gradients(output, given)])
        near = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-7}[dtype]
        # a BLAS need not give the same bits for another alignment
        for mine, theirs in zip(*outputs, strict=True):
            assert_near(mine, theirs, 0.0 if backend in ("edges", "message_passing") else near)


@each_backend
@pytest.mark.parametrize("extras", [{}, {"return_lse": True}])
def test_expanded_inputs(extras, backend):
    graph = GRAPHS["listed_bipartite"]()
    base = tensors(graph, (1,))
    outputs = []
    for copy in (lambda x: x.expand(3, -1, -1, -1), lambda x: x.expand(3, -1, -1, -1).contiguous()):
        found = ga.attention(*map(copy, base), graph, backend=backend, **extras)
        output = found.output if extras else found
        outputs.append([output, *gradients(output, base)])
    for mine, theirs in zip(*outputs, strict=True):
        assert torch.equal(mine, theirs)


@each_backend
@pytest.mark.parametrize("extras", [{}, {"return_lse": True}])
@pytest.mark.parametrize("layout", [heads_first, width_first, every_other, offset])
def test_any_strides_of_the_gradient(layout, extras, backend):
    graph = GRAPHS["listed_bipartite"]()
    inputs = tensors(graph, (2,))
    found = ga.attention(*inputs, graph, backend=backend, **extras)
    output = found.output if extras else found
    weight = torch.randn_like(output)
    wanted = torch.autograd.grad(output, inputs, weight, retain_graph=True)
    found = torch.autograd.grad(output, inputs, layout(weight), retain_graph=True)
    for mine, theirs in zip(found, wanted, strict=True):
        # a matrix product adds up in another order when a factor lies otherwise
        assert_near(mine, theirs)
    ones = torch.autograd.grad(output, inputs, torch.ones_like(output), retain_graph=True)
    stride_zero = torch.autograd.grad(output.sum(), inputs)
    for mine, theirs in zip(stride_zero, ones, strict=True):
        assert_near(mine, theirs)


@pytest.mark.sample(3)
@each_backend
@pytest.mark.parametrize("threads", [1, 2])  # a race needs two
def test_the_same_bits_every_time(threads, backend, request):
    request.addfinalizer(functools.partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(threads)
    made = torch.Generator().manual_seed(5)
    edges = torch.stack(
        (torch.randint(59, (997,), generator=made), torch.randint(7, (997,), generator=made) ** 2)
    )
    graph = ga.from_edge_index(edges, num_sources=59, num_targets=37, duplicates="merge")
    inputs = tensors(graph, dtype=torch.float32)
    bias = biases(graph).float().detach().requires_grad_()
    first = None
    for _ in range(5):
        output = ga.attention(*inputs, graph, bias, backend=backend)
        found = [output, *torch.autograd.grad(output.square().sum(), (*inputs, bias))]
        first = first or found
        assert all(torch.equal(a, b) for a, b in zip(found, first, strict=True))


@pytest.fixture
def deterministic():
    """What torch.empty returns is NaN, and operations without a deterministic form raise (C15)."""
    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("extras", "name", "backend"),
    [
        (extras, *pair)
        for extras in ({}, {"return_lse": True, "return_weights": True})
        for pair in taken(
            (*KINDS, "no_edges", "zero_targets", "zero_sources", "union_of_blocks"),
            return_weights=bool(extras),
        )
    ],
)
@pytest.mark.usefixtures("deterministic")
def test_uninitialised_memory_is_nowhere_seen(extras, name, backend):
    assert torch.empty(3).isnan().all()
    graph = GRAPHS[name]()
    inputs = tensors(graph)
    found = ga.attention(*inputs, graph, backend=backend, **extras)
    output = found.output if extras else found
    assert output.isfinite().all()
    assert all(grad.isfinite().all() for grad in gradients(output, inputs))
    if extras:
        assert found.weights.alpha.isfinite().all()
        assert not found.lse.isnan().any()
        assert_near(
            found.weights.dense().sum(-1).mT, (graph.in_degree > 0)[:, None].expand(-1, 6).double()
        )


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["cuda", "cpu"],
)
def test_a_lack_of_memory_is_told_with_what_needs_less(monkeypatch, error):
    def full(graph, inputs, **wanted):
        raise error

    graph = ga.graphs.sliding_window(1031, 7, causal=True)
    inputs = [torch.zeros(3, 1031, 2, 16) for _ in range(3)]
    monkeypatch.setattr(choose.BACKENDS["dense"], "run", full)
    with pytest.raises(type(error)) as raised:
        ga.attention(*inputs, graph, backend="dense")
    (note,) = raised.value.__notes__
    assert raised.value is error
    assert "on 'dense' a forward pass holds about" in note
    assert "a batch of 3, 2 heads of 16 and 16 numbers in torch.float32" in note
    assert "Try: backend='" in note
    assert "backend='dense'" not in note
    monkeypatch.setattr(choose.BACKENDS["dense"], "run", lambda graph, inputs, **wanted: 1 // 0)
    with pytest.raises(ZeroDivisionError) as other:
        ga.attention(*inputs, graph, backend="dense")
    assert not hasattr(other.value, "__notes__")


def test_what_a_call_keeps_for_its_backward_is_said_and_kept(monkeypatch):
    monkeypatch.setattr(ga.backends.edges, "LARGE", 1)
    for window, softcap in ((7, None), (29, None), (7, 2.0)):
        graph, kept = ga.graphs.sliding_window(1031, window, causal=True).materialise(), {}
        query, key, value = (
            torch.zeros(1031, heads, width, requires_grad=True) for heads, width in SIZES
        )

        def hold(x, kept=kept):
            kept[x.data_ptr()] = x.nbytes if x.is_floating_point() else 0
            return x

        with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
            ga.attention(query, key, value, graph, softcap=softcap, backend="edges")
        nodes, edges = sum(x.nbytes for x in (query, key, value)), 4 * 6 * graph.num_edges
        edges = 0 if softcap or window == 29 else edges
        assert sum(kept.values()) == nodes + edges
        options = {"heads": 6, "kv_heads": 3, "head_dim": 5, "value_dim": 3, "softcap": softcap}
        (note, *_) = {c.name: c.notes for c in ga.explain(graph, **options).candidates}["edges"]
        assert (
            f"keeps {nodes / 1e9:.2f} GB of queries, keys and values and {edges / 1e9:.2f} GB of weights"
            in note
        )
    monkeypatch.undo()
    assert not {c.name: c.notes for c in ga.explain(graph, **options).candidates}["edges"]


SIZES = ((6, 5), (3, 5), (3, 3))  # heads and widths of query, key and value
