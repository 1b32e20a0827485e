"""The block kernel beside its definition: steps, cuts, threads, numbers that are not finite."""

import math

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.kernels.blocks import operator
from graphattn.kernels.blocks.definition import plain
from graphattn.kernels.blocks.exponents import unit_of_levels
from graphattn.kernels.llvm.native import Target
from graphattn.plans.pieces import cuts, pieces

LONG = {
    # steps of 192 sources, several cuts, and pieces that begin anywhere
    "window": lambda: ga.graphs.sliding_window(701, 263, causal=False),
    "causal": lambda: ga.graphs.causal(641),
    "hubs": lambda: (
        ga.graphs.sliding_window(601, 5, causal=False) | ga.graphs.global_tokens(601, [7, 430])
    ),
    "cells": lambda: ga.graphs.window_partition((14, 21), cell=(7, 7), shift=(3, 3)),
    "at random": lambda: ga.from_mask(
        torch.rand(301, 229, generator=torch.Generator().manual_seed(3)) < 0.02
    ),
}


def operands(graph, dtype=torch.float64, batch=2, heads=6, kv_heads=3, width=19, value_width=5):
    generator = torch.Generator().manual_seed(1)
    shapes = (
        (graph.num_targets, heads, width),
        (graph.num_sources, kv_heads, width),
        (graph.num_sources, kv_heads, value_width),
    )
    return [
        torch.randn(batch, *shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in shapes
    ]


def plan_of(graph, dtype, heads):
    itemsize = torch.promote_types(dtype, torch.float32).itemsize
    lanes = Target.of_host().vector_bytes // itemsize
    plan = pieces(graph, lanes)
    return *plan, *cuts(graph, lanes, heads), plan.work


def attend(graph, inputs, scale=0.3, softcap=0.0, biases=(None, None, None), thresholds=None):
    plan = plan_of(graph, inputs[0].dtype, inputs[1].shape[0] * inputs[1].shape[2])
    table, *places = biases
    rest = (table, *plan, *places, thresholds)
    return operator.attend(*inputs, *rest, scale, softcap, tracked=True), rest


def biases_of(graph, heads=6, dtype=torch.float64, in_order=True):
    """A table with a row for every pair, and places: consecutive ones, or any with repeats."""
    generator = torch.Generator().manual_seed(5)
    sizes = (graph.num_targets, graph.num_sources)
    if in_order:
        of_targets, of_sources = (torch.arange(size) for size in sizes)
    else:
        of_targets, of_sources = (torch.randint(0, 41, (n,), generator=generator) for n in sizes)
    of_targets = of_targets - of_targets.min() + of_sources.max()
    rows = int(of_targets.max() - of_sources.min()) + 1
    table = torch.randn(rows, heads, generator=generator, dtype=dtype).requires_grad_()
    return table, of_targets.int(), of_sources.int()


def gradients(outputs, inputs, unit=0.3):
    output, levels, totals = outputs
    lse = operator.log_sums(levels, totals, torch.arange(output.shape[1]), unit)
    loss = (output * output.detach().cos()).sum() + lse.masked_fill(lse.isinf(), 0.0).sin().sum()
    return torch.autograd.grad(loss, inputs)


@pytest.mark.sample(3)
@pytest.mark.parametrize("softcap", [0.0, 1.3])
@pytest.mark.parametrize("name", LONG)
def test_it_is_its_definition(name, softcap):
    graph = LONG[name]()
    inputs = operands(graph)
    found, plan = attend(graph, inputs, softcap=softcap)
    wanted = plain(*inputs, *plan, 0.3, softcap)
    count = graph.num_targets  # the other places of a block are of nobody
    for a, b in zip(found[1:], wanted[1:], strict=True):
        assert torch.allclose(a[..., :count], b[..., :count], rtol=1e-12, atol=1e-12)
    unit = softcap or 0.3
    results = [(x[0], *gradients(x, inputs, unit)) for x in (found, wanted)]
    for a, b in zip(*results, strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.sample(3)
@pytest.mark.parametrize("softcap", [0.0, 1.3])
@pytest.mark.parametrize("scale", [-0.4, 0.0, 1e-40])
def test_a_scale_may_be_negative_or_nothing(scale, softcap):
    graph = LONG["window"]()
    inputs = operands(graph, batch=1)
    found, plan = attend(graph, inputs, scale, softcap)
    wanted = plain(*inputs, *plan, scale, softcap)
    unit = unit_of_levels(scale, softcap)
    results = [(x[0], *gradients(x, inputs, unit)) for x in (found, wanted)]
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= 1e-12


@pytest.mark.sample(3)
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("scale", [0.3, -0.4, 0.0])
@pytest.mark.parametrize("name", LONG)
def test_a_bias_is_a_row_of_a_table(name, scale, in_order):
    graph = LONG[name]()
    inputs = operands(graph)
    biases = biases_of(graph, in_order=in_order)
    leaves = [*inputs, biases[0]]
    found, rest = attend(graph, inputs, scale, biases=biases)
    wanted = plain(*inputs, *rest, scale, 0.0)
    results = [(x[0], *gradients(x, leaves, unit_of_levels(scale, 0.0))) for x in (found, wanted)]
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max().clamp(min=1.0)
    assert results[1][-1].abs().max() > 0
    with torch.no_grad():
        biases[0][biases[1][0] - biases[2][0], 2] += 1.0  # of the pair 0, 0
        changed, _ = attend(graph, inputs, scale, biases=biases)
    heads = (changed[0] != found[0]).any(-1).any(0).any(0)
    assert heads.tolist() == [head == 2 for head in range(6)]


def test_a_bias_of_minus_infinity_removes_edges():
    graph = LONG["causal"]()
    inputs = operands(graph)
    table, *places = biases_of(graph)
    far = torch.arange(table.shape[0]) >= graph.num_sources - 1 + 91
    removed = table.masked_fill(far[:, None], -torch.inf).detach().requires_grad_()
    found, _ = attend(graph, inputs, biases=(removed, *places))
    near = ga.graphs.sliding_window(graph.num_targets, 91, causal=True)
    wanted, _ = attend(near, inputs, biases=(table, *places))
    of_found = (found[0], *gradients(found, [*inputs, removed]))
    of_wanted = (wanted[0], *gradients(wanted, [*inputs, table]))
    for a, b in zip(of_found, of_wanted, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.sample(3)
@pytest.mark.parametrize("softcap", [0.0, 1.3])
@pytest.mark.parametrize("scale", [0.3, -0.4])
@pytest.mark.parametrize("name", LONG)
def test_weights_may_be_sigmoids(name, scale, softcap):
    graph = LONG[name]()
    inputs = operands(graph)
    levels = torch.linspace(-1.0, 4.0, graph.num_targets, dtype=torch.float64)
    found, rest = attend(graph, inputs, scale, softcap, thresholds=levels)
    wanted = plain(*inputs, *rest, scale, softcap)
    results = []
    for output, _, totals in (found, wanted):
        assert bool((totals[..., : graph.num_targets] == 1.0).all())
        results.append((output, *torch.autograd.grad(output.cos().sum(), inputs)))
    for a, b in zip(*results, strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


@pytest.mark.slow
def test_rows_may_lie_anywhere_in_memory():
    graph = LONG["window"]()
    inputs = operands(graph, torch.float32, heads=3, width=8, value_width=8)
    joined = torch.cat([x.detach() for x in inputs], -1).requires_grad_()
    found, _ = attend(graph, joined.split(8, -1))
    wanted, _ = attend(graph, inputs)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(gradients(found, [joined])[0], torch.cat(gradients(wanted, inputs), -1))
    turned = [x.detach().transpose(1, 3).contiguous().transpose(1, 3) for x in inputs]
    assert torch.equal(attend(graph, turned)[0][0], wanted[0])


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("name", ["window", "causal", "hubs"])
def test_bits_do_not_depend_on_the_number_of_threads(name, in_order):
    graph = LONG[name]()
    biases = biases_of(graph, 2, torch.float32, in_order)
    inputs = operands(graph, torch.float32, batch=1, heads=2, kv_heads=1, width=32, value_width=32)
    results = []
    threads = torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            outputs, plan = attend(graph, inputs, biases=biases)
            results.append((outputs[0], *gradients(outputs, [*inputs, biases[0]])))
    finally:
        torch.set_num_threads(threads)
    assert operator.BlockCall(*inputs, *plan, 1.0, 0.0).tasks > 1
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.sample(3)
@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("name", ["window", "at random"])
def test_what_is_not_finite_reaches_neighbours_alone(name, bad):
    """Bit for bit: a source that a target does not read, and a target that a source has not."""
    graph = LONG[name]()
    inputs = operands(graph, torch.float32, batch=1, heads=2, kv_heads=2)
    wanted, _ = attend(graph, inputs)
    grads = gradients(wanted, inputs)
    s = 97
    spoiled = [x.detach().clone() for x in inputs]
    for x in spoiled[1:]:
        x[:, s] = bad
    found, _ = attend(graph, [x.requires_grad_() for x in spoiled])
    reads = graph.mask()[:, s]
    assert found[0][:, reads].isnan().all()
    assert torch.equal(found[0][:, ~reads], wanted[0][:, ~reads])
    of_query, *of_sources = gradients(found, spoiled)
    assert of_query[:, reads].isnan().all()
    assert torch.equal(of_query[:, ~reads], grads[0][:, ~reads])
    # a source shares a NaN with the sources of its targets, and with no other
    near = graph.mask()[reads].any(0)
    assert not bool(near.all())
    for x, y in zip(of_sources, grads[1:], strict=True):
        assert torch.equal(x[:, ~near], y[:, ~near])


@pytest.mark.sample(4)
@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("mode", ["grad", "vmap", "jvp", "second derivative"])
def test_plain_operations_keep_what_is_not_finite_within_its_edges(mode, operand, bad):
    """Under transforms products are of whole blocks, most of which do not read a source."""
    graph = LONG["window"]()
    inputs = [x.detach() for x in operands(graph, batch=1, heads=2, kv_heads=2)]
    plan = plan_of(graph, torch.float64, 2)
    node = 97
    spoiled = [x.clone() for x in inputs]
    spoiled[operand][:, node] = bad

    def output(*inputs):
        return operator.attend(*inputs, None, *plan, None, None, None, 0.3, 0.0, tracked=True)[0]

    def loss(*inputs):
        return output(*inputs).cos().sum()

    def results(inputs):
        if mode == "grad":
            return torch.func.grad(loss, argnums=(0, 1, 2))(*inputs)
        if mode == "vmap":
            return torch.func.vmap(output)(*(x[None] for x in inputs))
        if mode == "jvp":
            tangents = tuple(map(torch.ones_like, inputs))
            return torch.func.jvp(output, tuple(inputs), tangents)
        leaves = [x.requires_grad_() for x in inputs]
        return torch.autograd.grad(output(*leaves).cos().sum(), leaves, create_graph=True)

    mask = graph.mask()
    reads = mask[:, node] if operand else torch.arange(graph.num_targets) == node
    near = mask[reads].any(0)
    found = [x.flatten(0, -4) for x in results(spoiled)]
    wanted = [x.flatten(0, -4) for x in results(inputs)]
    if mode in ("vmap", "jvp"):
        reached = [reads] * len(found)
    else:
        reached = [reads, near, near]
    for a, b, mark in zip(found, wanted, reached, strict=True):
        assert not bool(mark.all())
        assert torch.allclose(a[:, ~mark], b[:, ~mark], rtol=1e-12, atol=1e-12)
    assert found[0][:, reads].isnan().all()


def test_scores_of_a_thousand_million_keep_the_digits_of_their_sum():
    graph = ga.graphs.sliding_window(400, 301, causal=False)
    query = torch.full((1, 400, 1, 1), 1e9).requires_grad_()
    key = torch.ones(1, 400, 1, 1, requires_grad=True)
    value = torch.randn(1, 400, 1, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    outputs, _ = attend(graph, (query, key, value), scale=1.0)
    mean = graph.mask().float() @ value[0, :, 0] / graph.in_degree[:, None]
    assert torch.allclose(outputs[0][0, :, 0], mean, atol=1e-6)
    (grad,) = torch.autograd.grad(outputs[0].sum(), value)
    share = (graph.mask() / graph.in_degree[:, None]).sum(0)
    assert torch.allclose(grad[0, :, 0, 0], share, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_those_of_float32_rounded(dtype):
    graph = LONG["window"]()
    inputs = [x.detach().to(dtype).requires_grad_() for x in operands(graph, torch.float32)]
    wide = [x.detach().float().requires_grad_() for x in inputs]
    found, _ = attend(graph, inputs)
    wanted, _ = attend(graph, wide)
    assert found[1].dtype == torch.float32
    assert torch.equal(found[0], wanted[0].to(dtype))
    for a, b in zip(gradients(found, inputs), gradients(wanted, wide), strict=True):
        assert a.dtype == dtype
        assert (a.float() - b).abs().max() <= 0.02 * b.abs().max()


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("softcap", [0.0, 1.9])
@pytest.mark.parametrize("name", ["longformer", "isolated_targets", "unused_sources", "no_edges"])
def test_the_definition_has_every_derivative(name, softcap):
    graph = GRAPHS[name]()
    inputs = operands(graph, batch=1, heads=2, kv_heads=1, width=3, value_width=2)
    plan = plan_of(graph, torch.float64, 1)
    biases = (None, None, None)
    if not softcap:
        biases = biases_of(graph, 2)
        inputs.append(biases[0])

    def output(query, key, value, table=None):
        operands = (query, key, value, table, *plan, *biases[1:], None)
        return operator.attend(*operands, 0.7, softcap, tracked=True)[0]

    assert torch.autograd.gradcheck(output, inputs)
    assert torch.autograd.gradgradcheck(output, inputs)


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_operators_say_their_shapes(has_bias):
    graph = GRAPHS["longformer"]()
    inputs = operands(graph, torch.float32)
    biases = (None, None, None)
    if has_bias:
        biases = biases_of(graph, dtype=torch.float32)
    plan = plan_of(graph, torch.float32, 6)
    arguments = (*inputs, biases[0], *plan, *biases[1:], None, 0.7, 0.0)
    # without forward derivatives, and the gradients have none
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(operator.block_attention, arguments, test_utils=checks)
    outputs = operator.block_attention(*arguments)
    backward = (*arguments, *outputs, torch.ones_like(outputs[0]), None, has_bias)
    detached = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in backward)
    torch.library.opcheck(operator.block_attention_backward, detached, test_utils=checks[:2])
