"""Workers, forks, threads, copies and long runs: what a training does to graphs and layers beside
computing.
"""

import copy
import inspect
import multiprocessing
import pickle
import threading
from pathlib import Path

import pytest
import torch
from fuzz_memory import MOST_BYTES, Growth
from torch.utils.data import DataLoader, Dataset

import graphattn as ga

GRAPHS = {
    "rule": lambda: ga.graphs.sliding_window(31, 5, causal=True) | ga.graphs.global_tokens(31, [0]),
    "listed": lambda: ga.from_mask(
        torch.rand(31, 31, generator=torch.Generator().manual_seed(0)) < 0.2
    ),
    "heads": lambda: ga.PerHead(
        [ga.graphs.causal(31), ga.graphs.sliding_window(31, 3, causal=True)]
    ),
}


class Samples(Dataset):
    """A graph and its inputs, made in the worker; attention runs there too."""

    def __len__(self):
        return 6

    def __getitem__(self, number):
        size = 11 + number
        graph = (
            ga.graphs.sliding_window(size, 3, causal=True)
            if number % 2
            else ga.graphs.causal(size).materialise()
        )
        x = torch.randn(size, 2, 8, generator=torch.Generator().manual_seed(number))
        return graph, x, ga.attention(x, x, x, graph, backend="edges")


def collate(samples):
    graphs, x, out = zip(*samples, strict=True)
    return ga.disjoint_union(list(graphs)), torch.cat(x), torch.cat(out)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_loader_with_workers_gives_graphs_that_run(start):
    # the parent's kernels are loaded
    ga.attention(*torch.randn(3, 31, 2, 8), GRAPHS["rule"](), backend="edges")
    context = multiprocessing.get_context(start)
    workers = 2 if start == "fork" else 1  # which imports torch
    loader = DataLoader(
        Samples(), 3, num_workers=workers, collate_fn=collate, multiprocessing_context=context
    )
    nodes = 0
    for graph, x, out in loader:
        assert (ga.attention(x, x, x, graph) - out).abs().max() < 1e-5
        nodes += graph.num_targets
    assert nodes == sum(11 + n for n in range(6))


def _public_objects():
    """One of each public class, and the results that public functions give."""
    graph = GRAPHS["rule"]()
    layer = ga.nn.GraphAttention(8, 2)
    x = torch.randn(31, 2, 4, generator=torch.Generator().manual_seed(0))
    found = ga.attention(x, x, x, graph, return_weights=True, return_lse=True)
    return {
        **{name: make() for name, make in GRAPHS.items()},
        "pattern": ga.graphs.sliding_window(..., window=5, causal=True),
        "layers": [graph, graph],
        "layer": layer,
        "model": ga.models.GPT(7, embed_dim=8, num_heads=2, num_layers=1, max_len=31),
        "output": found,
        "weights": found.weights,
        "explanation": ga.explain(graph),
        "report": ga.verify(graph, dtypes=(torch.float64,), backends=("dense",)),
        "facts": ga.facts(graph),
        "hops": ga.analysis.hops(graph),
        "audit": ga.audit(graph.mask(), graph),
        "error": ga.GraphAttnError("a message"),
    }


def _same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, torch.nn.Module):
        return all(
            torch.equal(x, y)
            for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
        )
    if hasattr(a, "equals"):
        return a.equals(b)
    return str(a) == str(b)


@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy"])
def test_what_is_public_can_be_pickled_and_copied(how):
    ways = {
        "pickle": lambda x: pickle.loads(pickle.dumps(x)),
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
    }
    for name, thing in _public_objects().items():
        assert _same(thing, ways[how](thing)), name


def test_an_error_comes_back_from_a_process_with_its_reasons():
    for name, error in inspect.getmembers(ga.errors, inspect.isclass):
        if issubclass(error, Exception):
            again = pickle.loads(pickle.dumps(error("what to try")))
            assert type(again) is error, name
            assert str(again) == "what to try"
    refused = ga.errors.BackendError("no backend", ["a reason", "another"])
    again = pickle.loads(pickle.dumps(refused))
    assert again.reasons == refused.reasons
    assert str(again) == str(refused)


@pytest.mark.parametrize("name", GRAPHS)
def test_threads_may_call_one_graph_and_layer_at_once(name):
    """A graph that nobody has used: its plans are made by whoever is first."""
    graph, layer = GRAPHS[name](), ga.nn.GraphAttention(8, 2)
    x = torch.randn(31, 8, generator=torch.Generator().manual_seed(1))

    def with_gradient(layer, graph):
        own = x.clone().requires_grad_()
        output = layer(own, graph)
        return torch.cat((output, *torch.autograd.grad(output.square().sum(), own))).detach()

    expected = with_gradient(layer, GRAPHS[name]())
    gate, found, wrong = threading.Barrier(6), [], []

    def call(backend):
        own = copy.deepcopy(layer)
        own.backend = backend
        try:
            gate.wait()
            for _ in range(5):
                found.extend(with_gradient(each, graph) for each in (own, layer))
        except Exception as error:
            wrong.append(error)

    threads = [
        threading.Thread(target=call, args=(b,))
        for b in ("auto", "dense", "tiles", "edges", "edges", "auto")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(found) == 60
    assert max(float((x - expected).abs().max()) for x in found) < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux")
def test_calls_and_graphs_leave_nothing_behind():
    """``make fuzz`` makes 10^4 calls and 10^3 graphs."""
    growth = Growth()
    growth.rounds(150, 30)
    objects, size = growth.since()
    assert objects < 100  # fewer than calls
    assert size < MOST_BYTES


def _child(queue):
    torch.set_num_threads(1)  # as a DataLoader's worker does: torch's own threads hang after a fork
    x = torch.randn(31, 2, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    out = ga.attention(x, x, x, GRAPHS["rule"](), backend="edges")
    out.sum().backward()
    queue.put((out.detach().sum().item(), x.grad.sum().item()))


def test_a_fork_after_the_kernels_ran_computes_the_same():
    """Threads of the parent's pool are gone in the child, and a fork while they work must not leave
    it waiting.
    """
    x = torch.randn(4096, 2, 8, requires_grad=True)
    large = ga.graphs.random_neighbours(4096, 40)
    ga.attention(x, x, x, large, backend="edges").sum().backward()
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            ga.attention(x.detach(), x.detach(), x.detach(), large, backend="edges")

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        children = [context.Process(target=_child, args=(queue,), daemon=True) for _ in range(3)]
        for child in children:
            child.start()
        found = [queue.get(timeout=120) for _ in children]
        for child in children:
            child.join(60)
    finally:
        stop.set()
        worker.join()
    own = context.SimpleQueue()
    threads = torch.get_num_threads()
    _child(own)
    torch.set_num_threads(threads)
    assert found == [pytest.approx(own.get())] * 3
