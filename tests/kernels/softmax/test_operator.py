"""The fused edge kernels as torch operators, and the threads that they run on."""

import concurrent.futures
import multiprocessing
import threading
import time
from pathlib import Path

import fresh_python
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.kernels.arrays import Kinds
from graphattn.kernels.llvm import native, node_rows
from graphattn.kernels.llvm import threads as kernel_threads
from graphattn.kernels.llvm.threads import LARGE, SMALL, chunks, share
from graphattn.kernels.plain.dropout import dropout_factors
from graphattn.kernels.softmax import operator as edges_op
from graphattn.kernels.softmax.call import SoftmaxCall
from graphattn.kernels.softmax.operator import edge_attention, plain
from graphattn.plans.grouped import by_source, by_target

GRAPH = ga.graphs.sliding_window(61, 7, causal=False) | ga.graphs.global_tokens(61, [3])


def operands(dtype=torch.float64, bias=True, features=True, batch=2):
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    E = GRAPH.num_edges
    return [
        randn(batch, 61, 6, 5),
        randn(batch, 61, 3, 5),
        randn(batch, 61, 3, 5 if features else 7),
        randn(1, E, 6) if bias else None,
        randn(1, E, 11) if features else None,
        randn(6, 5, 11) if features else None,
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("softcap", [0.0, 1.7])
@pytest.mark.parametrize("features", ["", "both", "key", "value"])
@pytest.mark.parametrize("bias", [False, True])
def test_every_output_and_gradient_is_that_of_plain_operations(bias, features, softcap, dropout_p):
    given, seed = operands(bias=bias, features=bool(features)), torch.tensor(2**62 + 5)
    options = (0.4, softcap, dropout_p, features or "both", seed)
    results = edge_attention(*given, *by_target(GRAPH), *by_source(GRAPH), *options, True, True)
    found = results[:3]
    wanted = plain(*given, *by_target(GRAPH), *options)
    leaves = [x for x in given if x is not None]
    mix = [torch.randn_like(x) for x in wanted]
    grads = [torch.autograd.grad(x, leaves, mix, materialize_grads=True) for x in (found, wanted)]
    for x, y in zip((*found, *grads[0]), (*wanted, *grads[1]), strict=True):
        assert (x - y).abs().max() < 1e-12 if y.numel() else x.numel() == 0
    assert all(x.abs().max() > 0 for x in grads[0])


@pytest.mark.parametrize("edge_to", ["both", "key", "value"])
def test_a_backward_under_autocast_has_the_gradients_of_one_outside(edge_to):
    """Sums over features would be in halves, which their kernel refuses."""
    given = operands(torch.float32)
    leaves = [x for x in given if x is not None]
    options = (0.4, 0.0, 0.0, edge_to, None)
    output = edge_attention(*given, *by_target(GRAPH), *by_source(GRAPH), *options, True, True)[0]
    outside = torch.autograd.grad(output.square().sum(), leaves, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        inside = torch.autograd.grad(output.square().sum(), leaves)
    assert all(torch.equal(x, y) for x, y in zip(inside, outside, strict=True))


@pytest.mark.parametrize("bias", [False, True])
def test_edge_features_of_no_edges_are_sums_of_nothing(bias):
    """Tensors without entries have no address, as operands that are absent."""
    graph = ga.from_edge_index(torch.empty(2, 0, dtype=torch.long), 5, 3)
    query = torch.ones(2, 3, 6, 5, dtype=torch.float64)
    weight = torch.ones(6, 5, 11, dtype=torch.float64)
    key = torch.ones(2, 5, 3, 5, dtype=torch.float64)
    attr = torch.empty(1, 0, 11, dtype=torch.float64)
    of_edges = (torch.empty(1, 0, 6, dtype=torch.float64) if bias else None, attr, weight)
    leaves = [x.requires_grad_() for x in (query, key, weight)]
    layout = *by_target(graph), *by_source(graph)
    options = (0.4, 0.0, 0.3, "both", None)
    found = edge_attention(query, key, key, *of_edges, *layout, *options, True, True)
    grads = torch.autograd.grad(found[0].sum(), leaves)
    assert not any(bool(x.any()) for x in (found[0], found[5], *grads))
    assert bool((found[1] == -torch.inf).all())


def test_the_backward_computes_weights_again_where_they_were_not_kept(monkeypatch):
    given = operands()

    def found():
        options = (0.4, 0.0, 0.3, "both", torch.tensor(5), False, False)
        results = edge_attention(*given, *by_target(GRAPH), *by_source(GRAPH), *options)
        return results[3].numel(), torch.autograd.grad(results[0].sin().sum(), given)

    with torch.no_grad():
        given[3][0, ::5] = -torch.inf
    (kept, wanted) = found()
    monkeypatch.setattr(SoftmaxCall, "keeps_weights", False)
    (none, again) = found()
    assert (kept, none) == (2 * GRAPH.num_edges * 6, 0)
    assert all((x - y).abs().max() < 1e-13 for x, y in zip(again, wanted, strict=True))


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("bias", [False, True])
def test_the_last_backward_alone_writes_to_the_kept_weights(bias, dropout_p, monkeypatch):
    monkeypatch.setattr(edges_op, "SMALLEST", 1)
    given = operands(bias=bias)
    layout = *by_target(GRAPH), *by_source(GRAPH), 0.4, 0.0, dropout_p, "both", torch.tensor(5)
    output, _, _, kept, *_ = edges_op.attend(*given, *layout, False, False, tracked=True)
    loss, leaves, before = output.sin().sum(), [x for x in given if x is not None], kept.clone()
    wanted = torch.autograd.grad(loss, leaves, retain_graph=True)
    assert torch.equal(kept, before)
    again = torch.autograd.grad(loss, leaves)
    assert all(torch.equal(x, y) for x, y in zip(again, wanted, strict=True))
    # a bias may remove edges, which are known by both numbers
    assert torch.equal(kept, before) == bias


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("dtype", "kv", "width", "value_width"),  # few widths: each pair is compiled
    [
        (torch.float32, 6, 16, 24),
        (torch.bfloat16, 6, 8, 8),
        (torch.float16, 6, 8, 8),
        *((torch.float64, kv, 5, 5) for kv in (6, 3)),
    ],
)
def test_nodes_are_read_where_they_are(dtype, kv, width, value_width):
    """Chunks of one tensor, heads first in memory, and one element repeated give the bits of
    contiguous copies.
    """
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 61, 6 + kv, width, generator=generator).to(dtype).split([6, kv], 2)
    v = torch.randn(1, 61, 2 + kv, value_width, generator=generator).to(dtype)[:, :, 2:]
    heads_first = k.transpose(1, 2).contiguous().transpose(1, 2)
    strided = (q, heads_first, v.expand(2, -1, -1, -1))
    grad = torch.randn(2, 6, 61, value_width, generator=generator).to(dtype).transpose(1, 2)

    def found(*nodes):
        nodes = [x.requires_grad_() for x in nodes]
        output = ga.attention(*nodes, GRAPH, backend="edges")
        return [output.detach(), *torch.autograd.grad(output, nodes, grad)]

    wanted = found(*(x.detach().clone(memory_format=torch.contiguous_format) for x in strided))
    assert all(
        torch.equal(x, y)
        for x, y in zip(found(*(x.detach() for x in strided)), wanted, strict=True)
    )
    assert all(x.dtype == dtype for x in wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_the_float32_results_rounded_once(dtype):
    generator = torch.Generator().manual_seed(0)
    nodes = [
        torch.randn(61, 4, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)
    ]
    wide = [x.detach().float().requires_grad_() for x in nodes]
    grad = torch.randn(61, 4, 8, generator=generator).to(dtype)
    outputs = [ga.attention(*given, GRAPH, backend="edges") for given in (nodes, wide)]
    halves, wanted = (
        [x.detach(), *torch.autograd.grad(x, given, grad.to(x.dtype))]
        for x, given in zip(outputs, (nodes, wide), strict=True)
    )
    assert all(torch.equal(x, y.to(dtype)) for x, y in zip(halves, wanted, strict=True))
    assert halves[0].isfinite().all()
    # infinities among them
    big = (nodes[2].detach().float() * (3e4 if dtype == torch.float16 else 2e38)).to(dtype)
    level = nodes[0].detach() * 0
    x, y = (
        ga.attention(*given, GRAPH, backend="edges")
        for given in ((level, level, big), [level.float()] * 2 + [big.float()])
    )
    assert not big.isfinite().all()
    assert torch.equal(x.isnan(), y.isnan())
    assert torch.equal(x.nan_to_num(1.0), y.to(dtype).nan_to_num(1.0))


def test_what_watches_operators_sees_this_one():
    """A plain call goes round torch's dispatcher; the bits are those of one that goes through
    it.
    """
    query, key, value = (x[..., :5].detach().requires_grad_() for x in operands()[:3])

    def found():
        output = ga.attention(query, key, value, GRAPH, backend="edges")
        return output, *torch.autograd.grad(output.square().sum(), (query, key, value))

    plain_call = found()
    with torch.profiler.profile() as profile:
        watched = found()
    assert all(torch.equal(x, y) for x, y in zip(plain_call, watched, strict=True))
    names = {event.key for event in profile.key_averages()}
    assert {"graphattn::edge_attention", "graphattn::edge_attention_backward"} <= names


@pytest.mark.slow
def test_opcheck():
    for given in (operands(torch.float32), operands(torch.float32, bias=False, features=False)):
        options = (0.4, 1.7, 0.0, "both", None, True, True)
        torch.library.opcheck(
            edge_attention, (*given, *by_target(GRAPH), *by_source(GRAPH), *options)
        )


def run(threads=None):
    """Output and gradients on a graph large enough for several threads."""
    graph = ga.graphs.sliding_window(4099, 17, causal=True)
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(4099, 4, 8, generator=generator, requires_grad=True) for _ in range(3)]
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        output = ga.attention(*leaves, graph, backend="edges")
        return [output.detach(), *torch.autograd.grad(output.sin().sum(), leaves)]
    finally:
        torch.set_num_threads(before)


def test_the_bits_do_not_depend_on_the_threads():
    wanted = run(threads=1)
    for threads in (2, 3, 7, 2):
        assert all(torch.equal(x, y) for x, y in zip(run(threads), wanted, strict=True))


def test_the_bits_do_not_depend_on_the_blocks_of_rows(monkeypatch):
    given = operands(torch.float64)
    with torch.no_grad():
        given[3][0, ::5] = -torch.inf
    leaves = [x for x in given if x is not None]

    def found():
        rest = (0.4, 1.7, 0.3, "both", torch.tensor(5), True, True)
        outputs = edge_attention(*given, *by_target(GRAPH), *by_source(GRAPH), *rest)
        return [
            *outputs,
            *torch.autograd.grad([outputs[0].sin().sum(), outputs[1].cos().sum()], leaves),
        ]

    def places():
        nodes = (x.detach() for x in given)
        call = SoftmaxCall(*nodes, *by_target(GRAPH), *[None] * 4, 0.4, 0.0, 0.0, "both", None)
        return edges_op._Pass.of(call, *by_target(GRAPH)).places

    wanted, before = found(), places()
    monkeypatch.setattr(edges_op, "SPACE", 1)
    assert before > GRAPH.num_edges > 4 * places()  # one block, and then several
    assert all(torch.equal(x, y) for x, y in zip(found(), wanted, strict=True))


def child(queue):
    torch.set_num_threads(1)  # as a DataLoader worker; torch's own threads do not survive a fork
    found = [x.abs().sum().item() for x in run()]
    torch.get_num_threads = lambda: 3  # ours do: the pool starts anew
    seen = set()
    share([0, 1, 2, 3, 4], 1 << 30, lambda lo, hi: seen.add((lo, hi)))
    queue.put((found, seen))


def test_a_forked_child_starts_its_own_threads():
    wanted = [x.abs().sum().item() for x in run(threads=2)]  # the parent's pool is running
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,), daemon=True)
    process.start()
    found, seen = queue.get(timeout=600)
    process.join(timeout=600)
    assert process.exitcode == 0
    assert found == pytest.approx(wanted)
    assert seen == {(0, 1), (1, 2), (2, 3), (3, 4)}


def test_dropout_drops_the_share_it_says_whatever_the_edge():
    factors = dropout_factors(
        torch.empty(2, 30_011, 3), torch.arange(30_011), 0.3, torch.tensor(11)
    )
    assert factors.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    shares = [(factors == 0).double().mean(axes) for axes in ((1, 2), (0, 1))]
    assert all((share - 0.3).abs().max() < 0.01 for share in shares)
    pairs = (factors[:, 1:] == 0) & (factors[:, :-1] == 0)
    assert abs(pairs.double().mean() - 0.09) < 0.01
    other = dropout_factors(torch.empty(2, 30_011, 3), torch.arange(30_011), 0.3, torch.tensor(12))
    assert ((factors == 0) & (other == 0)).double().mean() < 0.1


@pytest.fixture(params=["team", "pool"])
def threads_of(request, monkeypatch):
    """Torch's own threads where it has libgomp, and the pool of every other torch."""
    if request.param == "pool":
        monkeypatch.setattr(kernel_threads, "_gomp_parallel", lambda: None)
    elif kernel_threads._gomp_parallel() is None:
        pytest.skip("this torch runs without libgomp")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_kernel_stops_in_every_thread(monkeypatch, error, threads_of):
    """Ctrl-C is raised in the caller's thread, between two chunks; the others end the chunk that
    they are at.
    """
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    caller, done = threading.current_thread(), []

    def run(lo, hi):
        if threading.current_thread() is caller:
            raise error
        time.sleep(0.001)
        done.append(lo)

    with pytest.raises(error):
        share(list(range(20_001)), 1 << 30, run)
    stopped = len(done)
    assert stopped < 10_000
    ran = []
    share(list(range(101)), 1 << 30, lambda lo, hi: ran.append(lo))  # the threads are free again
    assert sorted(ran) == list(range(100))
    assert len(done) == stopped


def test_an_error_in_any_thread_is_raised(threads_of, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    caller = threading.current_thread()

    def run(lo, hi):
        time.sleep(0.001)
        if threading.current_thread() is not caller:
            raise ValueError("of another thread")

    with pytest.raises(ValueError, match="of another thread"):
        share(list(range(101)), 1 << 30, run)


def test_several_python_threads_share_at_once(threads_of):
    wanted, found = run(threads=1), []
    callers = [threading.Thread(target=lambda: found.append(run())) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 8
    assert all(torch.equal(x, y) for each in found for x, y in zip(each, wanted, strict=True))


INTERRUPTED = """
import os, random, signal, threading, time, torch
from graphattn.kernels.llvm import threads
torch.set_num_threads(2)
torch.randn(2_000_000).sum()
work = lambda lo, hi: None  # the shorter, the more of the time is spent where Python only prints an exception
threads.share(list(range(9)), 1 << 30, work)
tasks = len(os.listdir("/proc/self/task"))
lost = 12
for _ in range(12):
    timer = threading.Timer(random.random() * 0.003, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        until = time.monotonic() + 1
        while time.monotonic() < until:
            threads.share([0, 1, 2], 1 << 30, work)
    except KeyboardInterrupt:
        lost -= 1
    timer.join()
print(threads.kind_of_threads(), lost, len(os.listdir("/proc/self/task")) - tasks)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads of Linux")
def test_no_interrupt_is_lost_and_torchs_threads_are_all_there_are():
    *kind, lost, more = fresh_python.run(INTERRUPTED, expect=0).stdout.split()
    assert lost == "0"
    assert more == "0" or " ".join(kind) != "torch's OpenMP team"


def test_long_work_is_cut_so_that_it_can_be_interrupted():
    ptr = torch.arange(0, 1_000_001, 10)
    few, many = chunks(ptr, 1 << 20), chunks(ptr, 1000 * LARGE)
    assert len(few) <= 4 * torch.get_num_threads() + 1
    assert len(many) == 1001
    for bounds in (few, many):
        assert bounds[0] == 0
        assert bounds[-1] == 100_000
        assert np.diff(bounds).max() <= 1.1 * 100_000 / (len(bounds) - 1) + 1


def test_threads_are_as_many_as_pay(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    work = (SMALL - 1, SMALL, 1 << 23, 1 << 26, 1 << 40)
    assert [kernel_threads.threads_for(amount) for amount in work] == [1, 2, 4, 11, 64]


@pytest.mark.parametrize("started", [0, 1])
def test_a_system_without_more_threads_runs_all_in_those_it_has(monkeypatch, started):
    class Pool(concurrent.futures.ThreadPoolExecutor):
        def submit(self, *given):
            if len(asked) >= started:
                raise RuntimeError("can't start new thread")
            asked.append(given)
            return super().submit(*given)

    asked, done = [], []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(kernel_threads, "_gomp_parallel", lambda: None)
    with Pool(3) as pool:
        monkeypatch.setattr(kernel_threads, "_pool", pool)
        share(list(range(101)), 1 << 30, lambda lo, hi: done.append(lo))
    assert sorted(done) == list(range(100))
    assert len(asked) == started


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 8), (torch.float64, 3)])
def test_an_edge_of_minus_infinity_in_some_heads_is_removed_from_those_alone(dtype, width):
    graph = ga.graphs.sliding_window(23, 7, causal=False)
    q, k, v = torch.randn(3, 23, 2, width, dtype=dtype)
    bias = torch.randn(graph.num_edges, 2, dtype=dtype)
    bias[torch.rand(bias.shape) < 0.4] = -torch.inf
    given = [x.requires_grad_() for x in (q, k, v)]
    found, expected = (
        ga.attention(*given, graph, score_bias=bias, backend=backend)
        for backend in ("edges", "message_passing")
    )
    torch.testing.assert_close(found, expected)
    # plain operations
    call = torch.func.vmap(lambda q: ga.attention(q, k, v, graph, score_bias=bias, backend="edges"))
    torch.testing.assert_close(call(q[None])[0], expected)
    weight = torch.randn_like(found)
    both = (torch.autograd.grad(x, given, weight) for x in (found, expected))
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("targets", "sources"), [(1, 5), (0, 5), (0, 0)])
def test_gradients_of_one_target_or_of_none(targets, sources):
    """One target and one head is one number of the softmax's statistics; none is none."""
    draw = torch.Generator().manual_seed(0)
    sizes = (targets, 3), (sources, 3), (sources, 2)
    q, k, v = (
        torch.randn(1, n, 1, d, generator=draw, dtype=torch.float64).requires_grad_()
        for n, d in sizes
    )
    graph = ga.graphs.cross(targets, sources)
    grads = []
    for backend in ("edges", "message_passing"):
        out = ga.attention(q, k, v, graph, backend=backend)
        grads.append(torch.autograd.grad(out.square().sum(), (q, k, v)))
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert bool(mine.any()) == bool(targets)


def test_a_new_width_or_half_compiles_rows_of_nodes_alone(monkeypatch):
    """Kernels serve all that is summed in one dtype; what rows need takes LLVM less time."""

    def gradients(width, dtype):
        q, k, v = (torch.randn(61, 2, width, dtype=dtype, requires_grad=True) for _ in range(3))
        torch.autograd.grad(ga.attention(q, k, v, GRAPH, backend="edges").sum(), (q, k, v))

    for first, others in ((torch.float64, ()), (torch.float32, (torch.bfloat16, torch.float16))):
        gradients(8, first)
        monkeypatch.setattr(native, "kernel_ir", None)
        for dtype in (first, *others):
            gradients(40, dtype)
        monkeypatch.undo()


def test_code_is_compiled_once_whatever_the_threads():
    kinds = Kinds(torch.float64, torch.int32, torch.float64, 9)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        addresses = pool.map(lambda _: native.address_of(node_rows.products, kinds), range(8))
        assert len(set(addresses)) == 1


@pytest.mark.slow
def test_indices_of_64_bits_have_code_of_their_own():
    """A graph of 2**31 edges has them; here a small one whose indices are made so."""
    q, k, v = (torch.randn(1, 61, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def found(cast):
        layout = [cast(x) for x in (*by_target(GRAPH), *by_source(GRAPH))]
        options = (0.4, 0.0, 0.0, "both", None, False, False)
        out = edge_attention(q, k, v, None, None, None, *layout, *options)[0]
        return [out, *torch.autograd.grad(out.sin().sum(), (q, k, v))]

    for x, y in zip(found(torch.Tensor.long), found(lambda x: x), strict=True):
        assert torch.equal(x, y)


def test_the_default_device_is_not_the_kernels():
    given = [x.detach() for x in operands(bias=False, features=False)[:3]]
    given[2] = given[2][..., :5]
    wanted = ga.attention(*given, GRAPH, backend="edges")
    with torch.device("meta"):
        assert torch.equal(ga.attention(*given, GRAPH, backend="edges"), wanted)


def test_a_view_of_the_other_sign_is_read_as_what_it_is():
    given = [x.detach()[..., :5] for x in operands(bias=False, features=False)[:3]]
    bias = torch.randn(GRAPH.num_edges, 6, dtype=torch.float64)
    views = [torch._neg_view(x) for x in (*given, bias)]
    found, wanted = (
        ga.attention(*nodes, GRAPH, score_bias=bias, backend="edges")
        for *nodes, bias in (views, [-x for x in (*given, bias)])
    )
    assert torch.equal(found, wanted)


def test_tensors_of_edges_reach_the_kernels_of_a_gpu_in_halves_or_the_dtype_of_sums():
    """A sum in float32 that met float64 would be no sum of one dtype."""
    from graphattn.backends.edges import _operands
    from graphattn.backends.request import Request
    from graphattn.operands import Inputs

    def dtypes(of_edges, device):
        nodes = [torch.zeros(5, 2, 3, device=device) for _ in range(3)]
        bias, attr = (torch.zeros(7, n, dtype=of_edges, device=device) for n in (2, 4))
        weight = torch.zeros(2, 3, 4, device=device)
        inputs = Inputs(*nodes, 1.0, score_bias=bias, edge_attr=attr, edge_weight=weight)
        made = _operands(inputs, Request.of(inputs))
        return made.bias.dtype, made.edge_attr.dtype

    assert dtypes(torch.float64, "meta") == (torch.float32,) * 2
    assert dtypes(torch.bfloat16, "meta") == (torch.bfloat16,) * 2
    assert dtypes(torch.bfloat16, "cpu") == (torch.float32,) * 2
