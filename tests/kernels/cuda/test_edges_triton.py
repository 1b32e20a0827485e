"""The kernels for GPUs, without one: what they compute, in Triton's interpreter; what they take,
compiled for three.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphattn.backends import BACKENDS, device
from graphattn.backends.choose import explain_choice
from graphattn.backends.request import Request
from graphattn.graphs import full, random_neighbours
from graphattn.kernels.cuda.row_work import PIECE, schedule

pytest.importorskip("triton")
TESTS = Path(__file__).parents[2]
offline = pytest.importorskip("offline")
softmax_kernels = pytest.importorskip("graphattn.kernels.softmax.triton")


@pytest.mark.slow
def test_outputs_and_gradients_are_those_of_the_cpu_operators_in_the_interpreter():
    """In float64 to 1e-12, and narrower within the bounds of every backend, on graphs with and
    without anything.
    """
    paths = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    words = [sys.executable, str(TESTS / "kernels" / "interpreted.py")]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert len(told) > 15
    wrong = {
        (case, name): share
        for case, shares in told.items()
        for name, share in shares.items()
        if not share <= 1
    }
    assert not wrong


@pytest.fixture(scope="module", params=offline.ARCHITECTURES)
def kernels(request, tmp_path_factory):
    """What each kernel takes on an architecture."""
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    try:
        return offline.compiled(request.param, _every_kernel)
    finally:
        os.environ.pop("TRITON_CACHE_DIR")
        os.environ.update({} if before is None else {"TRITON_CACHE_DIR": before})


def _every_kernel():
    offline.step(8, 32, torch.bfloat16, hubs=True)
    offline.projections(8, 32, torch.bfloat16)
    offline.additive(1, 8, 64, hubs=True)


@pytest.mark.slow
def test_every_kernel_compiles_without_atomics_and_hardly_a_stack(kernels):
    assert {row["kernel"] for row in kernels} == set(offline.KERNELS)
    for row in kernels:
        assert row["atomics"] == 0, row
        assert row["stack"] <= 32, row  # bytes of a thread
        assert row["registers"] <= (128 if row["kernel"] in offline.ATTENTION else 192), row
        assert row["shared"] <= (49152 if row["kernel"] == "project" else 16384), row
    gathers = [
        row
        for row in kernels
        if row["kernel"] in ("forward", "edge_products", "edge_sums", "backward")
    ]
    assert all(row["loads of 16 bytes"] >= max(4, row["loads"] / 4) for row in gathers), gathers


def test_the_table_of_what_each_kernel_takes_is_whole_and_within_bounds():
    """Every step on every architecture; ``python examples/benchmarks/offline.py`` makes what is
    missing.
    """
    rows = json.loads(offline.TABLE.read_text("utf-8"))["kernels"]
    steps = {(row["architecture"], row["step"]) for row in rows}
    assert steps == {
        (architecture, step) for architecture in offline.ARCHITECTURES for step in offline.STEPS
    }
    for row in rows:
        assert row["atomics"] == 0, row
        if row["kernel"] in offline.COMPACTED:  # of 99 KB and more
            assert row["stack"] <= (40 if row["step"].endswith("+") else 16), row
            assert row["registers"] <= 255, row
            assert row["shared"] <= 98304, row
        else:
            assert row["stack"] <= 32, row
            assert row["registers"] < 255, row
            assert row["shared"] <= 49152, row
    forwards = [row for row in rows if row["kernel"] == "forward" and "bfloat16" in row["step"]]
    long_rows = [row for row in forwards if row["step"] == "8 x 32 bfloat16" and row["warps"] > 1]
    assert len(long_rows) >= 3
    for row in long_rows:  # some programs for latency, and so few that L1 holds the sources of each
        assert 4 <= 64 * row["occupancy"] / row["warps"] <= 16, row


def test_a_tuple_of_tuples_that_a_kernel_takes_ends_with_none(monkeypatch):
    """Else Triton 3.6 does not compile it where a stride is 1 (:class:`.cuda.launches.Strided`)."""
    given = []

    def record(kernel, grid):
        return lambda *arguments, **constants: given.extend(arguments)

    monkeypatch.setattr(type(softmax_kernels.forward), "__getitem__", record)
    offline.step(4, 16, torch.float32, everything=True)
    offline.additive(1, 4, 16)
    offline.compacted(4, 16, torch.float32, 16, everything=True)
    holders = {}
    while given:
        x = given.pop()
        if isinstance(x, tuple):
            given.extend(x)
            if any(isinstance(member, tuple) for member in x):
                holders[type(x).__name__] = x[-1]
    assert set(holders) == {"AdditiveNodes", "KernelOperands", "OuterGradients", "TileOperands"}
    assert set(holders.values()) == {None}


@pytest.mark.parametrize("longest", [3, PIECE, 5 * PIECE + 1, PIECE**2 + 1])
def test_each_edge_is_the_work_of_one_program(longest):
    degree = torch.tensor([0, 1, longest, 4, 5, 2, longest - 1])
    ptr = torch.nn.functional.pad(degree.cumsum(0), (1, 0))
    order = torch.arange(10, 17, dtype=torch.int32)
    work = schedule(ptr, order)
    for part, again in zip(work.whole_rows, schedule(ptr, order).whole_rows, strict=True):
        assert all(a.data_ptr() == b.data_ptr() for a, b in zip(part[1:], again[1:], strict=True))
    parts = [*work.whole_rows, *(() if work.hubs is None else work.hubs[:1])]
    counts = torch.zeros(int(ptr[-1]), 17, dtype=torch.int64)
    nodes = torch.cat([part.node for part in parts])
    for part in parts:
        for node, start, stop in zip(*part[1:], strict=True):
            counts[start:stop, node] += 1
            assert stop - start <= max(PIECE, 2 * PIECE * (longest > PIECE**2))
    assert (counts.sum(1) == 1).all()
    assert torch.equal(counts.argmax(1), torch.repeat_interleave(order.long(), degree))
    assert set(nodes.tolist()) == set(order.tolist())
    assert (work.hubs is not None) == (longest > PIECE)


def test_a_device_without_triton_or_without_a_gpu_says_so(monkeypatch):
    request = Request(device=torch.device("cuda", 0))
    if not torch.cuda.is_available():
        (reason,) = BACKENDS["edges"].reasons_against(full(5), request)
        assert "runs nothing on cuda:0" in reason
    device._triton_refuses.cache_clear()
    monkeypatch.setattr(device, "find_spec", lambda name: None)
    (reason,) = BACKENDS["edges"].reasons_against(full(5), request)
    device._triton_refuses.cache_clear()
    assert "pip install 'graphattn[gpu]'" in reason
    (reason,) = BACKENDS["edges"].reasons_against(full(5), Request(device=torch.device("xpu")))
    assert "the tensors are on xpu" in reason


@pytest.mark.parametrize(
    ("capability", "raised", "words"),
    [
        ((7, 5), None, "compute capability 8.0 or later, and cuda:0 has 7.5"),
        ((9, 0), RuntimeError("ptxas is missing\nand much more"), "RuntimeError: ptxas is missing"),
        ((9, 0), None, None),
    ],
    ids=["too old", "does not compile", "well"],
)
def test_a_device_that_runs_no_kernel_is_told_and_another_backend_runs(
    monkeypatch, capability, raised, words
):
    from graphattn.kernels.softmax import passes as edges_triton

    def probe(device):
        if raised is not None:
            raise raised

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(edges_triton, "probe", probe)
    device._triton_refuses.cache_clear()
    request = Request(8, 8, 64, 64, device=torch.device("cuda", 0))
    reasons, graph = BACKENDS["edges"].reasons_against(full(5), request), random_neighbours(9000, 8)
    assert len(reasons) == (words is not None)
    assert all(words in reason and "\n" not in reason for reason in reasons)
    assert (explain_choice(graph, request).chosen == "edges") is (words is None)
    device._triton_refuses.cache_clear()


def test_on_cuda_the_choice_is_by_rates_of_its_own(monkeypatch):
    monkeypatch.setattr(device, "_triton_refuses", lambda device: ())

    def chosen(graph, device):
        return explain_choice(graph, Request(device=torch.device(device))).chosen

    sparse, dtypes = random_neighbours(5000, 16), (torch.float32, torch.bfloat16)
    on = [Request(8, 8, 64, 64, dtype=dtype, device=torch.device("cuda")) for dtype in dtypes]
    wide, half = (
        BACKENDS["edges"].cost_ms(sparse, request) - BACKENDS["edges"].cuda["call_ms"]
        for request in on
    )
    # by bytes: numbers of nodes are half as long, those of edges are not
    assert 1.9 < wide / half < 2.0
    many = random_neighbours(1000, 200)
    assert (chosen(many, "cpu"), chosen(many, "cuda")) == ("edges", "dense")
    assert chosen(random_neighbours(20_000, 8), "cuda") == "edges"
    assert "come from a model" in str(explain_choice(many, Request(device=torch.device("cuda"))))
