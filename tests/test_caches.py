"""Caches: what a graph, a plan or a layer keeps is the same whoever asked first.

Caches are not listed here. They are found as tensors that a call leaves behind, in its graph, in
its layer or in a module of the package.
"""

import functools
import pickle
import re
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from cached_tensors import is_plain, of_modules, tensors_of
from torch import func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.errors import BackendError
from graphattn.graph.modes import Memo, keep

N, HEADS, WIDTH = 9, 2, 4
G = ga.graphs
PACKAGE = Path(ga.__file__).parent
POS = torch.linspace(0, 1, N).sin()[:, None]
ENDS = torch.tensor([[0, 3, 5, 5, 8, 2, 1, 7], [1, 3, 0, 7, 4, 2, 1, 6]])


def listed():
    return ga.from_edge_index(ENDS, N, N)


def per_head():
    return ga.PerHead([G.sliding_window(N, 2, causal=True), listed()])


def multigraph():
    return ga.from_edge_index(ENDS.repeat(1, 2), N, N, duplicates="keep")


KINDS = {
    "a rule": lambda: G.sliding_window(N, 3, causal=True),
    "edges": listed,
    "a multigraph": multigraph,
    "nearest points": lambda: G.knn(POS, 3),
    "a union": lambda: G.sliding_window(N, 2, causal=True) | G.global_tokens(N, [0]),
    "a reverse": lambda: (listed() - G.causal(N)).reverse(),
    "heads of rules": lambda: ga.PerHead([G.sliding_window(N, 2, causal=True), G.causal(N)]),
    "heads of a rule and edges": per_head,
    "examples": lambda: ga.PerExample((G.sliding_window(N, 2, causal=True), listed())),
    "examples of heads": lambda: ga.PerExample((per_head(), G.full(N))),
    "examples of a multigraph and heads": lambda: ga.PerExample((multigraph(), per_head())),
    "a pattern": lambda: G.sliding_window(..., 3, causal=True),
    "a choice": lambda: G.top_k(..., 3, within=G.causal(...)),
}


def calls_of(graph):
    """Functions of query, key and value."""
    num_edges = graph.at(N, N).num_edges
    bias = torch.linspace(-1, 1, num_edges * HEADS).reshape(num_edges, HEADS)
    attention = functools.partial(ga.attention, graph=graph)
    calls = {name: functools.partial(attention, backend=name) for name in ("auto", *BACKENDS)}
    calls["bias"] = functools.partial(attention, score_bias=bias)
    calls["weights"] = lambda *x: attention(*x, return_weights=True).output
    return calls


def operands(kind):
    shape = (2, N, HEADS, WIDTH) if kind.startswith("examples") else (N, HEADS, WIDTH)
    torch.manual_seed(0)
    return [torch.randn(shape) for _ in range(3)]


# --- modes: functions that run a call


def within(context):
    def run(call, *x):
        with context():
            return call(*x)

    return run


@contextmanager
def float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def fake(call, *x):
    # a backend that reads values refuses
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, suppress(RuntimeError):
        call(*map(mode.from_tensor, x))


def traced(call, *x):
    with suppress(RuntimeError):  # of torch.jit, which cannot record an autograd.Function
        torch.jit.trace(call, x, check_trace=False)


def tracked(context):
    """With gradients, and their backward."""

    def run(call, *x):
        with context():
            leaves = [leaf.requires_grad_() for leaf in x]
            output = call(*leaves)
            output.sum().backward()
            return output.detach()

    return run


MODES = {
    "inference_mode": within(torch.inference_mode),
    "autocast": within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "float64": within(float64),
    "meta": within(lambda: torch.device("meta")),
    "deterministic": within(deterministic),
    "save_on_cpu": tracked(save_on_cpu),
    "fake": fake,
    "trace": traced,
    "checkpoint": lambda call, *x: checkpoint(call, *x, use_reentrant=False),
    "vmap": lambda call, *x: func.vmap(call)(*(torch.stack((y, y)) for y in x)),
    "grad": lambda call, *x: func.grad(lambda *y: call(*y).sum())(*x),
    "jvp": lambda call, *x: func.jvp(call, x, x),
    "jvp of grad": lambda call, *x: func.jvp(
        func.grad(lambda *y: call(*y).square().sum(), tuple(range(len(x)))), x, x
    ),
}


# --- what a call keeps


def gradients(call, x):
    leaves = [y.clone().requires_grad_() for y in x]
    output = call(*leaves)
    return [output, *torch.autograd.grad(output.square().sum(), leaves)]


@functools.cache
def expected(kind):
    """The results of each call that the kind of graph takes, on a graph that was used plainly."""
    results = {}
    for name, call in calls_of(KINDS[kind]()).items():
        with suppress(BackendError):
            results[name] = gradients(call, operands(kind))
    return results


@pytest.mark.sample(12)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_keeps_the_same_whatever_the_mode_of_its_first_call(kind, mode):
    results = expected(kind)
    before = of_modules()
    graph = KINDS[kind]()
    calls = calls_of(graph)
    for name in results:
        MODES[mode](calls[name], *operands(kind))
    assert all(map(is_plain, tensors_of(graph).values()))
    for name in {*results} & {"edges", "bias", "weights"}:
        found = gradients(calls[name], operands(kind))
        assert all(map(torch.equal, found, results[name])), name
    new = [x for key, x in of_modules().items() if key not in before]
    assert all(map(is_plain, new))


@pytest.mark.parametrize("mode", MODES)
def test_a_value_is_computed_as_at_the_start_of_a_program(mode):
    def switches():
        return (
            torch.ones(2),
            torch.ones(2, 2) @ torch.ones(2, 2),
            torch.is_inference_mode_enabled(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch._C._get_tracing_state(),
        )

    memo = Memo()
    kept = []

    def call(x):
        kept.extend(keep(memo, "switches", switches))
        return x + 1

    MODES[mode](call, torch.zeros(2))
    ones, product, *rest = kept[:6]
    assert is_plain(ones)
    assert is_plain(product)
    assert ones.dtype == product.dtype == torch.float32
    assert rest == [False, True, False, None]
    assert not pickle.loads(pickle.dumps(memo))


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "fake"])
def test_a_graph_that_is_made_in_a_mode_is_as_any_other(mode):
    for kind in ("edges", "nearest points", "a union", "a reverse", "heads of a rule and edges"):
        made = []

        def call(x, made=made, make=KINDS[kind]):
            made.append(make())
            return x

        MODES[mode](call, torch.zeros(2))
        for graph in made:
            assert all(map(is_plain, tensors_of(graph).values())), kind
            results = expected(kind)
            for name in ("auto", "weights"):
                found = gradients(calls_of(graph)[name], operands(kind))
                assert all(map(torch.equal, found, results[name])), kind


def test_positions_of_a_transform_make_a_graph():
    """Energies and forces by torch.func, whose graph follows the positions."""
    torch.manual_seed(0)
    pos = torch.rand(11, 3, dtype=torch.float64)
    builders = {
        "knn": lambda pos: G.knn(pos, 3),
        "radius": lambda pos: G.radius(pos, 0.6),
        "hops": lambda pos: G.knn(pos, 3).k_hop(2),
        "of clouds": G.CloudCache(G.knn(..., k=3)),
        "levels": lambda pos: G.hierarchy(pos, ratio=0.5).levels[1].down,
    }
    for name, build in builders.items():

        def energy(pos, build=build):
            graph = build(pos)
            queries = None if graph.is_square else pos[: graph.num_targets]
            return ga.nn.relative_positions(graph, pos, queries).square().sum().sin()

        forces = torch.autograd.functional.jacobian(energy, pos)
        torch.testing.assert_close(func.grad(energy)(pos), forces, msg=name)
        wanted = torch.autograd.functional.hessian(energy, pos)
        torch.testing.assert_close(func.hessian(energy)(pos), wanted, msg=name)


def test_caches_of_functions_and_properties_are_those_of_graph_modes():
    """functools would keep what it computes in the mode of the first caller."""
    of_a_call = {"hf/tokens/sequences.py"}  # where an object lives as long as a call
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        caches = r"^from functools import .*\b(cache|lru_cache|cached_property)\b"
        tensors = r"^(import|from) torch|^from \.+graph"
        if re.search(caches, text, re.MULTILINE) and re.search(tensors, text, re.MULTILINE):
            found.add(path.relative_to(PACKAGE).as_posix())
    assert found == of_a_call


def test_means_of_cells_have_all_derivatives():
    torch.manual_seed(0)
    pos = torch.rand(11, 3, dtype=torch.float64)

    def energy(pos):
        return G.hierarchy(pos, cell=0.5).levels[1].pos.pow(3).sum()

    assert torch.autograd.gradgradcheck(energy, pos.requires_grad_())
    wanted = torch.autograd.functional.hessian(energy, pos.detach())
    torch.testing.assert_close(func.hessian(energy)(pos.detach()), wanted)
