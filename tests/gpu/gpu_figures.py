"""Times of the shapes that matter on a GPU, ours beside the peers that come closest; small on a CPU, to rehearse."""

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from figures import floor_bytes
from gpu_cases import raised
from peers import PyGCompiled, Swin
from shapes import big_bird, points, power_law
from torch import Tensor

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.backends.check import check
from graphattn.backends.edges import sizes
from graphattn.backends.request import Inputs
from graphattn.backends.tiles import TilesBackend, gathered_run
from graphattn.bench import Problem
from graphattn.bench.peers import MODES, Projected, PyG
from graphattn.graph import AttentionGraph
from graphattn.kernels import bytes_moved

Call = Callable[[], Tensor]
MOST = 2 * 10**7  # edges of a graph that is run edge by edge though something else is chosen


class Figure(NamedTuple):
    """One shape: its graph, the sizes of a node, and who else runs it."""

    name: str
    graph: Callable[[bool], AttentionGraph]
    heads: int
    width: int
    batch: int = 1
    features: int = 0
    peers: tuple[str, ...] = ()


def _points(count: int, seed: int = 0) -> Tensor:
    """On a sphere, near ones near in memory."""
    height = torch.linspace(-1, 1, count, dtype=torch.float64)
    angle = 2.399963 * torch.arange(count) + seed
    return _there(torch.stack(((1 - height**2).sqrt() * angle.cos(), (1 - height**2).sqrt() * angle.sin(), height), 1))


def _there(pos: Tensor) -> Tensor:
    """On the GPU if there is one: its neighbours are found there, which needs no scipy."""
    return pos.cuda() if torch.cuda.is_available() else pos


def _uniform(count: int, k: int) -> AttentionGraph:
    return ga.graphs.knn(_there(points(count)), k)


def _nearest(count: int, k: int) -> AttentionGraph:
    return ga.graphs.knn(_points(count), k)


def _across(targets: int, sources: int, k: int) -> AttentionGraph:
    return ga.graphs.knn(_points(sources, 1), k, queries=_points(targets))


def _longformer(count: int) -> AttentionGraph:
    return ga.graphs.sliding_window(count, 513, causal=False) | ga.graphs.global_tokens(count, range(16))


def _documents(count: int) -> AttentionGraph:
    """Texts one after the other, of 1 to ``count`` / 64 tokens."""
    lengths = torch.randint(1, count // 64 + 1, (count,), generator=torch.Generator().manual_seed(0))
    return ga.graphs.documents(torch.repeat_interleave(lengths)[:count])


def _sized(make: Callable[..., AttentionGraph], large: tuple[int, ...], small: tuple[int, ...]) -> Any:
    return lambda on_gpu: make(*(large if on_gpu else small))


FIGURES = (
    Figure("a prepared call", _sized(_nearest, (64, 4), (64, 4)), 4, 32, peers=("SDPA",)),
    Figure("anemoi, as h_to_h", _sized(_nearest, (40_962, 11), (800, 11)), 16, 64, features=16,
           peers=("PyG compiled",)),
    Figure("anemoi, as h_to_era", _sized(_across, (542_080, 40_962, 4), (900, 300, 4)), 16, 64, features=16,
           peers=("PyG compiled",)),
    Figure("kNN-16, a million", _sized(_uniform, (1_000_000, 16), (900, 16)), 8, 32, peers=("PyG compiled", "PyG")),
    Figure("power law", _sized(power_law, (500_000,), (900,)), 8, 32, peers=("PyG compiled",)),
    Figure("swin", lambda on_gpu: ga.graphs.window_partition((56, 56) if on_gpu else (14, 14), (7, 7), (3, 3)), 3, 32,
           batch=128, peers=("Flex", "Swin by hand")),
    Figure("causal", _sized(ga.graphs.causal, (8192,), (300,)), 8, 64, peers=("SDPA", "Flex")),
    Figure("full", _sized(ga.graphs.full, (8192,), (300,)), 8, 64, peers=("SDPA",)),
    Figure("window", _sized(partial(ga.graphs.sliding_window, window=512), (131_072,), (900,)), 8, 64,
           peers=("Flex", "varlen")),
    Figure("documents", _sized(_documents, (131_072,), (900,)), 8, 64, peers=("Flex", "varlen")),
    Figure("longformer", _sized(_longformer, (32_768,), (1100,)), 8, 64, peers=("Flex",)),
    Figure("big bird", _sized(big_bird, (32_768,), (1024,)), 8, 64, peers=("Flex",)),
)  # fmt: skip


def figures(device: torch.device) -> Iterator[dict[str, Any]]:
    """Each shape in turn, as plain values: who takes how long, and how far outputs are from ours."""
    for figure in FIGURES:
        try:
            yield _figure(figure, device)
        except Exception as error:  # the graph cannot be made here, or is too much
            yield {"name": figure.name, "rows": [], "raised": raised(error)}
        gc.collect()
        torch._dynamo.reset()


def _figure(figure: Figure, device: torch.device) -> dict[str, Any]:
    on_gpu, start = device.type == "cuda", time.perf_counter()
    graph, batch = figure.graph(on_gpu).to(device), figure.batch if on_gpu else min(2, figure.batch)
    told: dict[str, Any] = {"name": figure.name, "graph": repr(graph), "graph_s": time.perf_counter() - start}
    dtype = torch.bfloat16 if on_gpu else torch.float32
    problem = Problem(graph, figure.heads, figure.width, batch, dtype, str(device))
    *nodes, grad = problem.inputs()
    leaves, rows, wanted = [x.requires_grad_() for x in nodes], [], []
    for who, make in _all(figure, problem, leaves):
        row: dict[str, Any] = {"who": who}
        try:
            call = make()
            first = call().detach().reshape(grad.shape)
            wanted = wanted or [first]
            row["difference"] = float((first - wanted[0]).abs().max())
            row |= _times(call, leaves, grad, device)
        except Exception as error:
            row["raised"] = raised(error)
        rows.append(row)
    size = sizes(check(*leaves, graph).request(), graph.num_edges, graph.num_targets, graph.num_sources)
    size = size._replace(features=figure.features)
    told["edges_bytes"] = sum(bytes_moved.forward(size))  # of the forward; see bytes_moved
    told |= {"heads": figure.heads, "width": figure.width, "batch": batch, "dtype": str(dtype)}
    return told | {"floor_bytes": [floor_bytes(problem, mode) for mode in MODES], "rows": rows}


def _times(call: Call, leaves: list[Tensor], grad: Tensor, device: torch.device) -> dict[str, float]:
    def train() -> object:
        return torch.autograd.grad(call().reshape(grad.shape), leaves, grad)

    forward, host = timed(lambda: call().detach(), device)
    return {"forward_ms": forward, "host_ms": host, "training_ms": timed(train, device)[0]}


def timed(call: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """Milliseconds of a call on the device, and those until the host may go on; medians of some turns."""
    if device.type != "cuda":
        call()
        start = time.perf_counter()
        call()
        return (1e3 * (time.perf_counter() - start),) * 2
    for _ in range(3):
        call()
    torch.cuda.synchronize(device)
    taken, host = [], []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start = time.perf_counter()
        begin.record()
        for _ in range(5):
            call()
        end.record()
        host.append(200 * (time.perf_counter() - start))
        torch.cuda.synchronize(device)
        taken.append(begin.elapsed_time(end) / 5)
    return statistics.median(taken), statistics.median(host)


def _all(figure: Figure, problem: Problem, leaves: list[Tensor]) -> Iterator[tuple[str, Callable[[], Call]]]:
    attr, weight = None, None
    if figure.features:
        attr = torch.randn(problem.graph.num_edges, figure.features, device=problem.device).to(problem.dtype)
        weight = torch.randn(figure.heads, figure.width, figure.features, device=problem.device).to(problem.dtype)
    inputs = check(*leaves, problem.graph, edge_attr=attr, edge_weight=weight)
    chosen = ga.backends.choose.choose(problem.graph, inputs.request())
    others = ("tiles", "edges") if problem.graph.num_edges < MOST else ("tiles",)
    for name in (chosen, *(name for name in others if name != chosen)):
        if not BACKENDS[name].reasons_against(problem.graph, inputs.request()):
            yield name + " (chosen)" * (name == chosen), partial(_ours, name, problem.graph, inputs)
    if chosen == "tiles" and TilesBackend().way(problem.graph, inputs.request()) in ("flex", "varlen"):
        yield "tiles, gathered", lambda: lambda: gathered_run(problem.graph, inputs, False, False).output
    for name in figure.peers:
        yield name, partial(PEERS[name], problem, inputs, leaves)


def _ours(name: str, graph: AttentionGraph, inputs: Inputs) -> Call:
    return lambda: BACKENDS[name].run(graph, inputs).output


def _pyg(kind: type[PyG], problem: Problem, inputs: Inputs, leaves: list[Tensor]) -> Call:
    """TransformerConv without its projections; with one of the edges' features, where they have any."""
    if inputs.edge_attr is None or inputs.edge_weight is None:
        return kind().prepare(problem, *(x.reshape(-1, problem.heads * problem.head_dim) for x in leaves))
    from torch_geometric.nn import TransformerConv as Conv

    width = problem.heads * problem.head_dim
    conv = Conv(
        width, problem.head_dim, problem.heads, root_weight=False, bias=False, edge_dim=inputs.edge_attr.shape[-1]
    )
    conv.lin_edge.weight = torch.nn.Parameter(inputs.edge_weight.reshape(width, -1))
    for name, held in zip(("query", "key", "value"), leaves, strict=True):
        projection = Projected()
        projection.tensor = held.reshape(-1, width)
        setattr(conv, f"lin_{name}", projection)
    call = torch.compile(conv, dynamic=False) if kind is PyGCompiled else conv
    edge_index, (query, key, _) = problem.graph.edge_index, (x.reshape(-1, width) for x in leaves)
    return lambda: call((key, query), edge_index, inputs.edge_attr)


def _sdpa(problem: Problem, inputs: Inputs, leaves: list[Tensor]) -> Call:
    causal = problem.graph.name.startswith("causal")

    def call() -> Tensor:
        query, key, value = (x.movedim(-3, -2) for x in leaves)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal).movedim(-3, -2)

    return call


def _flex(problem: Problem, inputs: Inputs, leaves: list[Tensor]) -> Call:
    """FlexAttention with the graph's mask, compiled; its blocks are found once, as a plan is."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    graph = problem.graph
    sizes = (graph.num_targets, graph.num_sources)
    mask = create_block_mask(
        ga.convert.to_mask_mod(graph), None, None, *sizes, device=problem.device, _compile=inputs.query.is_cuda
    )
    run = torch.compile(flex_attention, dynamic=False) if inputs.query.is_cuda else flex_attention

    def call() -> Tensor:
        query, key, value = (x.movedim(-3, -2) for x in (leaves if problem.batch > 1 else [x[None] for x in leaves]))
        return run(query, key, value, block_mask=mask).movedim(-3, -2)

    return call


def _varlen(problem: Problem, inputs: Inputs, leaves: list[Tensor]) -> Call:
    """FlashAttention as torch has it, of documents one after the other or of a window that looks back."""
    from torch.nn.attention.varlen import varlen_attn

    degree, ends, window = problem.graph.in_degree.tolist(), [0], (-1, -1)
    if (problem.graph.name or "").startswith("sliding_window"):
        ends, window = [0, len(degree)], (max(degree) - 1, 0)
    while ends[-1] < len(degree):  # the first token of a document reads all of it
        ends.append(ends[-1] + degree[ends[-1]])
    most = max(b - a for a, b in itertools.pairwise(ends))
    at = torch.tensor(ends, dtype=torch.int32, device=problem.device)
    return lambda: varlen_attn(*leaves, at, at, most, most, window_size=window)


def _swin(problem: Problem, inputs: Inputs, leaves: list[Tensor]) -> Call:
    return Swin().prepare(problem, *leaves)


PEERS: dict[str, Callable[..., Call]] = {
    "PyG": partial(_pyg, PyG),
    "PyG compiled": partial(_pyg, PyGCompiled),
    "SDPA": _sdpa,
    "Flex": _flex,
    "varlen": _varlen,
    "Swin by hand": _swin,
}
