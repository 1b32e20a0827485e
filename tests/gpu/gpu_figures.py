"""Times of the shapes that matter on a GPU, ours and the closest peer's; small on a CPU, to
rehearse.

Nodes lie along a curve, so that consecutive targets share sources. Each time follows a write that
empties the L2 cache.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from figures import floor_bytes
from gpu_cases import raised
from gpu_models import training_step
from peers import PyGCompiled, Swin
from shapes import big_bird, points, power_law
from torch import Tensor

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.backends.edges import sizes
from graphattn.backends.inputs import inputs_of
from graphattn.backends.request import Request
from graphattn.backends.tiles import compacted as tiles_compacted
from graphattn.backends.tiles.backend import TilesBackend
from graphattn.backends.tiles.gathered import gathered_run
from graphattn.bench import AttentionCall
from graphattn.bench.peers import MODES, AlreadyProjected, PyG
from graphattn.graph import AttentionGraph
from graphattn.kernels.cuda import bytes_moved
from graphattn.operands import Inputs
from graphattn.plans import compacted as plans_compacted
from graphattn.plans.compacted import compacted
from graphattn.plans.grouped import by_source, by_target
from graphattn.shapes import curve_order, icosphere_mesh

Call = Callable[[], Tensor]
Say = Callable[[dict[str, Any]], None]
MOST = 2 * 10**7  # edges of a graph that is run edge by edge though something else is chosen
FLUSHED = 1 << 28  # bytes, beyond any cache


class Figure(NamedTuple):
    """One shape: its graph, the sizes of a node, and who else runs it: the closest, and whom to
    take if it fails."""

    name: str
    graph: Callable[[bool], AttentionGraph]
    heads: int
    width: int
    batch: int = 1
    features: int = 0
    peers: tuple[str, ...] = ()
    dtype: torch.dtype = torch.bfloat16


def _points(count: int, seed: int = 0) -> Tensor:
    """Points spread evenly on a sphere, along a Hilbert curve."""
    height = torch.linspace(-1, 1, count, dtype=torch.float64)
    angle = 2.399963 * torch.arange(count) + seed
    radius = (1 - height**2).sqrt()
    pos = torch.stack((radius * angle.cos(), radius * angle.sin(), height), 1)
    return _there(pos[curve_order(pos, "hilbert")])


def _there(pos: Tensor) -> Tensor:
    """On the GPU if there is one: its neighbours are found there, which needs no scipy."""
    return pos.cuda() if torch.cuda.is_available() else pos


def _uniform(count: int, k: int) -> AttentionGraph:
    return ga.graphs.knn(_there(points(count)), k)


def _hilbert(count: int, k: int) -> AttentionGraph:
    """The points of :func:`_uniform` along a Hilbert curve, on which neighbours share more."""
    pos = points(count)
    return ga.graphs.knn(_there(pos[curve_order(pos, "hilbert")]), k)


def _nearest(count: int, k: int) -> AttentionGraph:
    return ga.graphs.knn(_points(count), k)


def _multimesh(levels: int) -> AttentionGraph:
    """The hidden graph of weather models, its nodes along a curve."""
    place = torch.argsort(curve_order(icosphere_mesh(levels).pos, "hilbert"))
    return ga.graphs.icosphere(levels).relabel(place)


def _from_multimesh(targets: int, levels: int, k: int) -> AttentionGraph:
    """Points of the sphere read the nearest nodes of the hidden graph, both along a curve."""
    pos = icosphere_mesh(levels).pos
    return ga.graphs.knn(_there(pos[curve_order(pos, "hilbert")]), k, queries=_points(targets))


def _longformer(count: int) -> AttentionGraph:
    return ga.graphs.sliding_window(count, 513, causal=False) | ga.graphs.global_tokens(
        count, range(16)
    )


def _documents(count: int) -> AttentionGraph:
    """Texts one after the other, of 1 to ``count`` / 64 tokens."""
    lengths = torch.randint(
        1, count // 64 + 1, (count,), generator=torch.Generator().manual_seed(0)
    )
    return ga.graphs.documents(torch.repeat_interleave(lengths)[:count], causal=False)


def _sized(
    make: Callable[..., AttentionGraph], large: tuple[int, ...], small: tuple[int, ...]
) -> Any:
    return lambda on_gpu: make(*(large if on_gpu else small))


FIGURES = (
    Figure("a prepared call", _sized(_nearest, (64, 4), (64, 4)), 4, 32, peers=("SDPA, all pairs",)),
    Figure("anemoi, h_to_h", _sized(_multimesh, (6,), (3,)), 16, 64, features=16, peers=("PyG compiled", "PyG"),
           dtype=torch.float16),
    Figure("anemoi, h_to_era", _sized(_from_multimesh, (542_080, 6, 4), (900, 2, 4)), 16, 64, features=16,
           peers=("PyG compiled", "PyG"), dtype=torch.float16),
    Figure("anemoi, h_to_h, no features", _sized(_multimesh, (6,), (3,)), 16, 64, peers=("PyG compiled", "PyG"),
           dtype=torch.float16),
    Figure("kNN-16, a million, Hilbert", _sized(_hilbert, (1_000_000, 16), (900, 16)), 8, 32),
    Figure("kNN-16, a million", _sized(_uniform, (1_000_000, 16), (900, 16)), 8, 32, peers=("PyG compiled", "PyG")),
    Figure("power law", _sized(power_law, (100_000,), (900,)), 8, 32, peers=("PyG compiled", "PyG")),
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


#: Training steps: the model, and how many clouds of how many points on a GPU.
STEPS = {
    "a step of PTv3": ("point-transformer-v3", 8, 4096),
    "a step of the U-Net": ("unet", 8, 4096),
}


def figure(say: Say, name: str, device: torch.device, who: str, copy_gb_per_s: float) -> None:
    """A shape: ours, or a peer's; what is compiled is said before it is timed."""
    chosen = next(figure for figure in FIGURES if figure.name == name)
    on_gpu, start = device.type == "cuda", time.perf_counter()
    problem = _problem(chosen, device)
    graph = problem.graph
    about = {"name": name, "graph": repr(graph).splitlines()[0], "graph_s": round(time.perf_counter() - start, 2),
             "card": _card(device), "heads": chosen.heads, "width": chosen.width, "batch": problem.batch,
             "dtype": str(problem.dtype)}  # fmt: skip
    *nodes, grad = problem.inputs()
    leaves = [x.requires_grad_() for x in nodes]
    size = sizes(
        Request.of(inputs_of(*leaves, graph)), graph.num_edges, graph.num_targets, graph.num_sources
    )
    about["edges_bytes"] = sum(
        bytes_moved.forward(size._replace(features=chosen.features))
    )  # of the forward
    floors = [floor_bytes(problem, mode) for mode in MODES]
    say({"made": about})
    calls = list(_all(chosen, problem, leaves))
    if who == "ours":
        calls = [each for each in calls if each[0] not in chosen.peers]
    else:
        calls = [each for each in calls if each[0] == who]
    wanted = None
    for label, make in calls:
        row: dict[str, Any] = {**about, "who": label, "floor_bytes": floors}
        try:
            call = make()
            start = time.perf_counter()
            first = call()
            torch.autograd.grad(first.reshape(grad.shape), leaves, grad)
            _wait(device)
            row["compile_s"] = round(time.perf_counter() - start, 3)
            say({"compiled": label, "compile_s": row["compile_s"]})
            output = first.detach().reshape(grad.shape)
            if wanted is None:
                wanted = output
            row["norm"] = float(
                output.float().norm()
            )  # of ours and of the peer in its own process: one number
            row["difference"] = float((output - wanted).abs().max())
            row |= times(call, leaves, grad, device)
            if on_gpu and copy_gb_per_s > 0:
                floor_ms = floors[1] / copy_gb_per_s / 1e6
                row |= {"floor_ms": floor_ms, "multiple_of_floor": row["training_ms"] / floor_ms}
        except Exception as error:
            row["raised"] = raised(error)
        say({"row": row})


def step(say: Say, name: str, device: torch.device) -> None:
    """A step of training: how long the host makes inputs, and forward, backward and optimizer."""
    model, clouds, count = STEPS[name]
    if device.type != "cuda":
        clouds, count = 2, 300
    start = time.perf_counter()
    made = training_step(model, clouds, count, device, torch.float32)
    about = {"name": name, "card": _card(device), "clouds": clouds, "points": count,
             "inputs_s": round(time.perf_counter() - start, 2)}  # fmt: skip
    say({"made": about})
    optimizer = torch.optim.AdamW(made.model.parameters(), lr=1e-3)

    def train() -> None:
        optimizer.zero_grad()
        made.loss().backward()
        optimizer.step()

    start = time.perf_counter()
    train()
    _wait(device)
    about["first_s"] = round(time.perf_counter() - start, 3)
    say({"compiled": "ours", "compile_s": about["first_s"]})
    training, host = timed(train, device)
    say(
        {
            "row": {
                **about,
                "who": "ours",
                "training_ms": training,
                "host_ms": host,
                **_peak(train, device),
            }
        }
    )


def edges_call(name: str, device: torch.device) -> tuple[Call, list[Tensor], Tensor]:
    """The kernels of edges on a shape, to be timed; its leaves, and the gradient of its output."""
    chosen = next(figure for figure in FIGURES if figure.name == name)
    problem = _problem(chosen, device)
    *nodes, grad = problem.inputs()
    leaves = [x.requires_grad_() for x in nodes]
    return _ours("edges", problem.graph, _inputs(chosen, problem, leaves)), leaves, grad


def _problem(figure: Figure, device: torch.device) -> AttentionCall:
    on_gpu = device.type == "cuda"
    batch, dtype = figure.batch, figure.dtype
    if not on_gpu:
        batch, dtype = min(2, batch), torch.float32
    return AttentionCall(
        figure.graph(on_gpu).to(device), figure.heads, figure.width, batch, dtype, str(device)
    )


def times(call: Call, leaves: list[Tensor], grad: Tensor, device: torch.device) -> dict[str, Any]:
    """Of forward alone and of both passes, eager and as a CUDA graph; of the host; and the
    memory at the peak."""

    def train() -> object:
        return torch.autograd.grad(call().reshape(grad.shape), leaves, grad)

    forward, host = timed(lambda: call().detach(), device)
    row = {"forward_ms": forward, "host_ms": host, "training_ms": timed(train, device)[0]}
    return row | _replayed(train, device) | _peak(train, device)


def timed(call: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """Milliseconds of a call on the device with nothing in its cache, and until the host may go
    on; medians."""
    if device.type != "cuda":
        call()
        start = time.perf_counter()
        call()
        taken = 1e3 * (time.perf_counter() - start)
        return taken, taken
    for _ in range(3):
        call()
    flushed = torch.empty(FLUSHED, dtype=torch.uint8, device=device)
    torch.cuda.synchronize(device)
    taken, host = [], []
    for _ in range(15):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        flushed.zero_()
        begin.record()
        start = time.perf_counter()
        call()
        host.append(1e3 * (time.perf_counter() - start))
        end.record()
        torch.cuda.synchronize(device)
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken), statistics.median(host)


def _replayed(train: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """The same as a CUDA graph, without the host."""
    if device.type != "cuda":
        return {}
    try:
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            train()
        torch.cuda.current_stream(device).wait_stream(stream)
        held = torch.cuda.CUDAGraph()
        with torch.cuda.graph(held):
            train()
        return {"replay_ms": timed(held.replay, device)[0]}
    except Exception as error:
        return {"replay_refused": raised(error).splitlines()[0][:200]}


def _peak(train: Callable[[], object], device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {}
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    train()
    return {"peak_bytes": torch.cuda.max_memory_allocated(device) - before}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _card(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def ceilings(device: torch.device) -> dict[str, float]:
    """What the card does at most: GB/s of a copy, TFLOP/s of a product in bfloat16, GB/s of
    random rows from L2."""
    on_gpu = device.type == "cuda"
    numbers = 1 << (28 if on_gpu else 16)
    x, y = torch.ones(numbers, device=device), torch.empty(numbers, device=device)
    copy_ms = timed(lambda: y.copy_(x), device)[0]
    side = 8192 if on_gpu else 128
    a = torch.ones(side, side, dtype=torch.bfloat16, device=device)
    product_ms = timed(lambda: a @ a, device)[0]
    rows = 1 << (16 if on_gpu else 8)  # of 512 bytes: 32 MiB
    table = torch.ones(rows, 256, dtype=torch.bfloat16, device=device)
    index = torch.randint(rows, (16 * rows,), device=device)
    out = torch.empty(16 * rows, 256, dtype=torch.bfloat16, device=device)
    gather_ms = timed(lambda: torch.index_select(table, 0, index, out=out), device)[0]
    return {
        "copy_gb_per_s": 8 * numbers / copy_ms / 1e6,
        "bfloat16_tflop_per_s": 2 * side**3 / product_ms / 1e9,
        "gather_gb_per_s": 16 * rows * 512 / gather_ms / 1e6,  # read; as many are written
    }


def _inputs(figure: Figure, problem: AttentionCall, leaves: list[Tensor]) -> Inputs:
    attr, weight = None, None
    if figure.features:
        draw = torch.Generator().manual_seed(0)  # the same in the process of a peer
        attr = torch.randn(problem.graph.num_edges, figure.features, generator=draw)
        weight = torch.randn(figure.heads, figure.width, figure.features, generator=draw)
        attr, weight = (
            attr.to(problem.device, problem.dtype),
            weight.to(problem.device, problem.dtype),
        )
    return inputs_of(*leaves, problem.graph, edge_attr=attr, edge_weight=weight)


def _all(
    figure: Figure, problem: AttentionCall, leaves: list[Tensor]
) -> Iterator[tuple[str, Callable[[], Call]]]:
    inputs = _inputs(figure, problem, leaves)
    chosen = ga.backends.choose.choose(problem.graph, Request.of(inputs))
    others = ("tiles", "edges") if problem.graph.num_edges < MOST else ("tiles",)
    for name in (chosen, *(name for name in others if name != chosen)):
        if not BACKENDS[name].reasons_against(problem.graph, Request.of(inputs)):
            yield name + " (chosen)" * (name == chosen), partial(_ours, name, problem.graph, inputs)
    if chosen == "tiles" and TilesBackend().way(problem.graph, Request.of(inputs)) in (
        "flex",
        "varlen",
    ):
        yield (
            "tiles, gathered",
            lambda: lambda: gathered_run(problem.graph, inputs, False).output,
        )
    if not tiles_compacted.reasons_against(problem.graph, Request.of(inputs)):
        for rows in plans_compacted.SIZES:
            yield f"tiles of {rows}, compacted", partial(_compacted, rows, problem.graph, inputs)
    for name in figure.peers:
        yield name, partial(PEERS[name], problem, inputs, leaves)


def _ours(name: str, graph: AttentionGraph, inputs: Inputs) -> Call:
    return lambda: BACKENDS[name].run(graph, inputs).output


def _compacted(rows: int, graph: AttentionGraph, inputs: Inputs) -> Call:
    """Tiles of so many targets with compacted sources, and of as many sources in the backward."""
    device = inputs.query.device
    into = compacted(by_target(graph, device), graph.num_sources, rows)
    back = compacted(by_source(graph, device), graph.num_targets, rows)

    def call() -> Tensor:
        return tiles_compacted.run_on(into, back, None, None, inputs).output

    return call


def _pyg(kind: type[PyG], problem: AttentionCall, inputs: Inputs, leaves: list[Tensor]) -> Call:
    """TransformerConv without its projections; with one of the edges' features, where they have
    any."""
    if inputs.edge_attr is None or inputs.edge_weight is None:
        return kind().prepare(
            problem, *(x.reshape(-1, problem.heads * problem.head_dim) for x in leaves)
        )
    from torch_geometric.nn import TransformerConv as Conv

    width = problem.heads * problem.head_dim
    conv = Conv(
        width,
        problem.head_dim,
        problem.heads,
        root_weight=False,
        bias=False,
        edge_dim=inputs.edge_attr.shape[-1],
    )
    conv.lin_edge.weight = torch.nn.Parameter(inputs.edge_weight.reshape(width, -1))
    for name, held in zip(("query", "key", "value"), leaves, strict=True):
        projection = AlreadyProjected()
        projection.tensor = held.reshape(-1, width)
        setattr(conv, f"lin_{name}", projection)
    call = torch.compile(conv, dynamic=False) if kind is PyGCompiled else conv
    edge_index, (query, key, _) = problem.graph.edge_index, (x.reshape(-1, width) for x in leaves)
    return lambda: call((key, query), edge_index, inputs.edge_attr)


def _sdpa(problem: AttentionCall, inputs: Inputs, leaves: list[Tensor]) -> Call:
    causal = problem.graph.name.startswith("causal")

    def call() -> Tensor:  # in four axes: with three, torch has no fused kernel
        query, key, value = (
            x.movedim(-3, -2) for x in (leaves if problem.batch > 1 else [x[None] for x in leaves])
        )
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=causal
        ).movedim(-3, -2)

    return call


def _flex(problem: AttentionCall, inputs: Inputs, leaves: list[Tensor]) -> Call:
    """FlexAttention with the graph's mask, compiled; its blocks are found once, as a plan is."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    graph = problem.graph
    sizes = (graph.num_targets, graph.num_sources)
    mask = create_block_mask(
        ga.convert.to_mask_mod(graph),
        None,
        None,
        *sizes,
        device=problem.device,
        _compile=inputs.query.is_cuda,
    )
    run = torch.compile(flex_attention, dynamic=False) if inputs.query.is_cuda else flex_attention

    def call() -> Tensor:
        query, key, value = (
            x.movedim(-3, -2) for x in (leaves if problem.batch > 1 else [x[None] for x in leaves])
        )
        return run(query, key, value, block_mask=mask).movedim(-3, -2)

    return call


def _varlen(problem: AttentionCall, inputs: Inputs, leaves: list[Tensor]) -> Call:
    """FlashAttention as torch has it, of documents one after the other or of a window that looks
    back."""
    from torch.nn.attention.varlen import varlen_attn

    degree, ends, window = problem.graph.in_degree.tolist(), [0], (-1, -1)
    if (problem.graph.name or "").startswith("sliding_window"):
        ends, window = [0, len(degree)], (max(degree) - 1, 0)
    while ends[-1] < len(degree):  # the first token of a document reads all of it
        ends.append(ends[-1] + degree[ends[-1]])
    most = max(b - a for a, b in itertools.pairwise(ends))
    at = torch.tensor(ends, dtype=torch.int32, device=problem.device)
    return lambda: varlen_attn(*leaves, at, at, most, most, window_size=window)


def _swin(problem: AttentionCall, inputs: Inputs, leaves: list[Tensor]) -> Call:
    return Swin().prepare(problem, *leaves)


PEERS: dict[str, Callable[..., Call]] = {
    "PyG": partial(_pyg, PyG),
    "PyG compiled": partial(_pyg, PyGCompiled),
    "SDPA": _sdpa,
    "SDPA, all pairs": _sdpa,  # another product than ours: what the least call of torch takes
    "Flex": _flex,
    "varlen": _varlen,
    "Swin by hand": _swin,
}
