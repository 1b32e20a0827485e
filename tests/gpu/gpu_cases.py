"""What the first run on a GPU measures, the most important first; on any device, so that a CPU
rehearses it."""

import copy
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_models import training_step
from graph_table import GRAPHS
from layer_table import LAYERS, layer_of
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.backends.rates import tried
from graphattn.backends.request import Request
from graphattn.backends.tiles import compacted as tiles_compacted
from graphattn.bench.calibrate import reason_against_trial
from graphattn.exactness.layer import LayerSubject
from graphattn.exactness.measure import measure, measure_backend
from graphattn.exactness.operator import CALLABLE, CallableSubject, GraphSubject
from graphattn.exactness.subject import Subject
from graphattn.graph import AttentionGraph
from graphattn.plans import compacted as plans_compacted
from graphattn.twins.pieces import sample

WIDE, HALVES = (torch.float32, torch.float64), (torch.bfloat16, torch.float16)
TELLING = (
    "causal",
    "window",
    "longformer",
    "cross",
    "isolated_targets",
    "repeated_edges",
    "hub",
    "rule_or_listed",
)
LAYERED = ("causal", "cross", "isolated_targets", "repeated_edges", "hub", "longformer")
COMPILED = ("causal", "longformer", "hub")
COMPILES = "torch.compile"  # the group of what compiles, left to the part ``again``


class Case(NamedTuple):
    """One thing to measure on a device: its name, what gives a result for each backend, and the
    group it runs in."""

    name: str
    run: Callable[[torch.device], list[dict[str, Any]]]
    group: str


def cases() -> list[Case]:
    """Every case, in the order in which they run: by group, what tells most first; each has its
    own name."""
    return [
        *_kernels(),
        *_extras(),
        *_rest(),
        *_steps(),
        *_points(),
        *_compacted(),
        *_table(WIDE),
        *_layers(WIDE),
        *_same_bits(),
        *_large(),
        *_table(HALVES),
        *_layers(HALVES),
        *_compiled(),
    ]


def is_right(results: Sequence[dict[str, Any]]) -> bool:
    """True if nothing of a case is wrong; what is refused is not."""
    return not any(result["ok"] is False for result in results)


def _kernels() -> Iterator[Case]:
    """The kernels of edges, then tiles, on the graphs that tell most; then a hub in pieces,
    longer than any there."""

    def run(
        make: Callable[[], AttentionGraph], backend: str, dtype: torch.dtype, device: torch.device
    ) -> Any:
        return judged(GraphSubject(make().to(device)), dtype, (backend,))

    for backend in ("edges", "tiles"):
        for dtype in (torch.float32, torch.bfloat16):
            for graph in TELLING:
                yield Case(
                    _name(backend, dtype, graph),
                    partial(run, GRAPHS[graph], backend, dtype),
                    backend,
                )
    for dtype in (torch.float32, torch.bfloat16):
        yield Case(_name("hub in pieces", dtype), partial(run, _star, "edges", dtype), "hub")


def _compacted() -> Iterator[Case]:
    """Tiles with compacted sources: on graphs that tell much, and of each size as calibration
    tries them.

    Few, as each option of a kernel is compiled anew.
    """

    def run(graph: str, dtype: torch.dtype, device: torch.device) -> list[dict[str, Any]]:
        subject = GraphSubject(_on(device, graph))
        reasons = _reasons_against_compacted(subject.graph, device)
        if reasons:
            return [{"backend": "tiles", "ok": None, "refused": reasons}]
        with _of_size(32), tried("tiles", "compacted"):
            return judged(subject, dtype, ("tiles",))

    def try_size(rows: int, device: torch.device) -> list[dict[str, Any]]:
        graph = _near().to(device)
        reasons = _reasons_against_compacted(graph, device)
        if reasons:
            return [{"backend": "tiles", "ok": None, "refused": reasons}]
        with _of_size(rows):
            reason = reason_against_trial("tiles", "compacted", [graph], device)
        return [{"backend": "tiles", "ok": not reason, "refused": [reason]}]

    for dtype in (torch.float32, torch.bfloat16):
        for graph in ("window", "longformer", "isolated_targets", "hub"):
            yield Case(_name("compacted", dtype, graph), partial(run, graph, dtype), "compacted")
    yield Case("compacted, dropped as by edges", _dropped_in_tiles, "compacted")
    for rows in plans_compacted.SIZES:
        yield Case(f"compacted, tiles of {rows}", partial(try_size, rows), "compacted")


@contextmanager
def _of_size(rows: int) -> Iterator[None]:
    """Tiles of so many targets, and of as many sources, of graphs that have none yet."""
    before = plans_compacted.SIZES
    plans_compacted.SIZES = (rows,)
    try:
        yield
    finally:
        plans_compacted.SIZES = before


def _reasons_against_compacted(graph: AttentionGraph, device: torch.device) -> list[str]:
    return tiles_compacted.reasons_against(graph, Request(device=device))


def _dropped_in_tiles(device: torch.device) -> list[dict[str, Any]]:
    """Tiles with compacted sources drop the weights that the kernels of edges drop, with a bias."""
    graph = _near().to(device)
    reasons = _reasons_against_compacted(graph, device)
    if reasons:
        return [{"backend": "tiles", "ok": None, "refused": reasons}]
    draw = torch.Generator().manual_seed(0)
    leaves = [
        torch.randn(*shape, generator=draw).to(device).requires_grad_()
        for shape in [(512, 4, 32)] * 3 + [(graph.num_edges, 4)]
    ]
    found = []
    for backend in ("tiles", "edges"):
        torch.manual_seed(5)
        with tried("tiles", "compacted"):
            output = ga.attention(
                *leaves[:3], graph, backend=backend, score_bias=leaves[3], dropout_p=0.3
            )
        found.append([output.detach(), *torch.autograd.grad(output.square().sum(), leaves)])
    error = max(float((x - y).norm() / y.norm()) for x, y in zip(*found, strict=True))
    return [{"backend": "tiles", "error": error, "bound": 1e-4, "ok": error <= 1e-4}]


def _near() -> AttentionGraph:
    """Cells of a cube with their neighbours, along a curve."""
    cells = torch.cartesian_prod(*[torch.arange(8.0)] * 3)
    order = ga.shapes.curve_order(cells, "hilbert")
    return ga.graphs.grid_neighbourhood((8, 8, 8), (3, 3, 3), causal=False).relabel(order.argsort())


def _star() -> AttentionGraph:
    """Two targets that read 700 nodes each, five and six pieces of a row, and short rows."""
    return ga.graphs.global_tokens(700, [3, 91]) | ga.graphs.sliding_window(700, 3, causal=True)


def _extras() -> Iterator[Case]:
    """Features of edges, several rows a program, and additive scores, by the kernels of edges."""

    def run(options: dict[str, Any], graph: str, dtype: torch.dtype, device: torch.device) -> Any:
        torch.manual_seed(0)
        layer = ga.nn.GraphAttention(**options).to(device)
        return judged(LayerSubject(layer, _on(device, graph)), dtype, ("edges",))

    for edge_to in ("both", "key", "value"):
        words = f"features of {edge_to}, rows of a program"
        yield Case(words, partial(_walked, edge_to), "features")
    sizes = {"embed_dim": 14, "num_heads": 2}
    layers: dict[str, dict[str, Any]] = {
        "features": {**sizes, "edge_dim": 5},
        "additive": {**sizes, "score": "gat"},
    }
    for name, options in layers.items():
        for dtype in (torch.float32, torch.bfloat16):
            for graph in ("hub", "longformer", "isolated_targets"):
                yield Case(_name(name, dtype, graph), partial(run, options, graph, dtype), name)


def judged(subject: Subject, dtype: torch.dtype, backends: Sequence[str]) -> list[dict[str, Any]]:
    """Outputs and gradients of some backends against the dense twin, both on the subject's
    device."""
    piece = sample(subject.graph)
    try:
        measured = measure(subject, [piece], (dtype,), backends)
    except Exception as error:
        if len(backends) > 1 and not context_lost(
            piece.targets.device
        ):  # one at a time, to see whose it is
            return [result for backend in backends for result in judged(subject, dtype, (backend,))]
        return [{"backend": " or ".join(backends), "ok": False, "raised": raised(error)}]
    results = []
    for backend in backends:
        rows = [row for row in measured.rows if row.backend == backend]
        refusals = [refusal for refusal in measured.refusals if refusal.backend == backend]
        result: dict[str, Any] = {
            "backend": backend,
            "measured": len(rows),
            "targets": piece.targets.numel(),
        }
        if rows:
            worst = max(rows, key=lambda row: row.ratio)
            result |= {
                "error": worst.error,
                "bound": worst.bound,
                "at": f"{worst.case}, {worst.quantity}",
            }
        beyond = [row for row in rows if not row.ok]
        wrong = [
            f"{row.case}, {row.quantity}: {_told(row.error)} > {row.bound:.3g}" for row in beyond
        ]
        result["ok"] = (
            not wrong and not any(refusal.fault for refusal in refusals) if rows else None
        )
        result |= {"wrong": wrong} if wrong else {}
        result["refused"] = sorted(
            {f"{r.case}: {reason}" for r in refusals for reason in r.reasons}
        )
        results.append(result)
    return results


def _told(error: float) -> str:
    if error == float("inf"):
        return "NaN or infinite"
    return f"{error:.3g}"


def context_lost(device: torch.device) -> bool:
    """True if the device refuses everything after an error, whatever that was called."""
    if device.type != "cuda":
        return False
    try:
        torch.ones(1, device=device).sum().item()
    except Exception:
        return True
    return False


def raised(error: BaseException) -> str:
    """An error in a few lines: what, and where in our own code and its end."""
    where = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in where if "graphattn" in frame.filename]
    frames = [*ours[-5:], *(where[-1:] if ours[-1:] != where[-1:] else [])]
    lines = [f"{Path(frame.filename).name}:{frame.lineno} {frame.line}" for frame in frames]
    return "\n".join([f"{type(error).__name__}: {str(error)[:600]}", *lines])


def _name(*parts: Any) -> str:
    return ", ".join(str(part).removeprefix("torch.") for part in parts)


def _on(device: torch.device, graph: str) -> AttentionGraph:
    return GRAPHS[graph]().to(device)


def _order(graphs: Sequence[str]) -> list[str]:
    return sorted(graphs, key=lambda name: name not in TELLING)


def _table(dtypes: Sequence[torch.dtype]) -> Iterator[Case]:
    """The table of graphs through every backend."""

    def run(graph: str, dtype: torch.dtype, device: torch.device) -> list[dict[str, Any]]:
        return judged(GraphSubject(_on(device, graph)), dtype, tuple(BACKENDS))

    for dtype in dtypes:
        for graph in _order(tuple(GRAPHS)):
            yield Case(_name("attention", dtype, graph), partial(run, graph, dtype), "table")


def _layers(dtypes: Sequence[torch.dtype]) -> Iterator[Case]:
    """Layers with their own parameters, whose gradients are measured too."""

    def run(
        layer: str, graph: str, dtype: torch.dtype, device: torch.device
    ) -> list[dict[str, Any]]:
        subject = LayerSubject(layer_of(layer).to(device), _on(device, graph))
        return judged(subject, dtype, tuple(BACKENDS))

    for dtype in dtypes:
        for layer in LAYERS:
            for graph in LAYERED:
                yield Case(
                    _name(f"layer {layer}", dtype, graph),
                    partial(run, layer, graph, dtype),
                    "layers",
                )


def _same_bits() -> Iterator[Case]:
    """Two runs give the same bits, forward and backward."""

    def run(graph: str, device: torch.device) -> list[dict[str, Any]]:
        subject, results = GraphSubject(_on(device, graph)), []
        for backend in BACKENDS:
            try:
                first, second = (
                    measure_backend(subject, subject.cases[0], torch.float32, backend)
                    for _ in range(2)
                )
            except ga.GraphAttnError as error:
                results.append({"backend": backend, "ok": None, "refused": str(error).splitlines()})
                continue
            differ = [name for name, x in first.items() if not torch.equal(x, second[name])]
            results.append({"backend": backend, "ok": not differ, "differ": differ})
        return results

    for graph in ("hub", "longformer", "repeated_edges"):
        yield Case(_name("same bits", graph), partial(run, graph), "same bits")


def _large() -> Iterator[Case]:
    """Sizes of users, at which another kernel of torch's may run; compared at a sample of the
    targets.

    A rehearsal on the CPU takes SDPA's plain kernel: an exponential of its fast one there is off by
    up to 9 eps in float32, so that gradients of ``dense`` and ``tiles`` were up to 1.4 times beyond
    the bound. With the plain one all backends stay below .64 of it, at 700 and at 1,500 nodes.
    """

    def run(
        make: Callable[[int], AttentionGraph], dtype: torch.dtype, device: torch.device
    ) -> list[dict[str, Any]]:
        if device.type == "cuda":
            subject = GraphSubject(make(4096).to(device), heads=(4, 4), widths=(32, 32))
            return judged(subject, dtype, tuple(BACKENDS))
        with sdpa_kernel(SDPBackend.MATH):
            return judged(
                GraphSubject(make(700), heads=(4, 4), widths=(32, 32)), dtype, tuple(BACKENDS)
            )

    shapes: dict[str, Callable[[int], AttentionGraph]] = {
        "window of 257": lambda n: ga.graphs.sliding_window(n, 257, causal=False),
        "causal": ga.graphs.causal,
        "random, 16 each": lambda n: ga.graphs.random_neighbours(n, 16),
        "cells of a grid": lambda n: ga.graphs.window_partition(
            (int(n**0.5) // 7 * 7,) * 2, (7, 7), (3, 3)
        ),
    }
    for dtype in (torch.float32, torch.bfloat16):
        for name, make in shapes.items():
            yield Case(_name("large", dtype, name), partial(run, make, dtype), "large")


def _compiled() -> Iterator[Case]:
    """Under torch.compile, which has one derivative."""

    def run(graph: str, backend: str, device: torch.device) -> list[dict[str, Any]]:
        on = _on(device, graph)
        request = ga.explain(on, heads=3, head_dim=5, device=device)
        reasons = next(c.reasons for c in request.candidates if c.name == backend)
        if reasons:
            return [{"backend": backend, "ok": None, "refused": list(reasons)}]
        torch._dynamo.reset()
        compiled = torch.compile(lambda q, k, v: ga.attention(q, k, v, on, backend=backend))

        def call(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return compiled(query, key, value)

        subject = CallableSubject(call, on)
        (result,) = judged(
            subject, torch.float32, (CALLABLE,)
        )  # what a function raises is its caller's: ours, here
        return [{**result, "backend": backend, "ok": bool(result["ok"])}]

    for graph in COMPILED:
        for backend in BACKENDS:
            yield Case(_name("compiled", graph, backend), partial(run, graph, backend), COMPILES)


def _rest() -> Iterator[Case]:
    """Dropout, CUDA graphs, autocast, torch's own kernels under tiles, and weights that are
    looked at."""
    yield Case("dropped as on the CPU", _dropped, "dropout")
    yield Case("a prepared call waits for nothing", _prepared, "CUDA graphs")
    yield Case("a captured step", _captured, "CUDA graphs")
    yield Case("cells in one product", _cells, "points")
    yield Case("autocast", _autocast, "autocast")
    yield Case("tiles by FlexAttention", _flex, "peers of tiles")
    yield Case("tiles by varlen_attn", _varlen, "peers of tiles")
    yield Case("weights", _weights, "weights")
    yield Case("tiles by FlexAttention, compiled", partial(_flex, compiled=True), COMPILES)


def _steps() -> Iterator[Case]:
    """Training on the device, and the same on the CPU."""
    yield Case("a model is trained", _trained, "steps")
    for name in ("point-transformer-v3", "unet"):
        yield Case(f"a step of {name}", partial(_step, name), "steps")


def _step(name: str, device: torch.device) -> list[dict[str, Any]]:
    """Loss and gradients of a model of the command line on small clouds; the CPU's in float64."""
    losses, gradients = [], []
    for place, dtype in ((device, torch.float32), (torch.device("cpu"), torch.float64)):
        step = training_step(name, 2, 300, place, dtype)
        losses.append(step.loss().item())
        grads = torch.autograd.grad(step.loss(), list(step.model.parameters()), allow_unused=True)
        gradients.append([grad.detach().cpu().double() for grad in grads if grad is not None])
    largest = max(float(y.abs().max()) for y in gradients[1])
    error = max(float((x - y).abs().max()) for x, y in zip(*gradients, strict=True)) / largest
    error = max(error, abs(losses[0] - losses[1]))
    return [{"losses": losses, "error": error, "bound": 1e-3, "ok": error <= 1e-3}]


def _points() -> Iterator[Case]:
    """Builders on the device's own points and edges."""
    yield Case("neighbours of points", _neighbours, "points")
    yield Case("farthest points", _farthest, "points")
    yield Case("orders along curves", _orders, "points")
    yield Case("edges sorted on the device", _sorted, "points")
    yield Case("edges chosen on the device", _chosen, "points")


def _orders(device: torch.device) -> list[dict[str, Any]]:
    """Of every curve, in two and three axes."""
    pos = torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
    results = []
    for curve in ("z", "z-trans", "hilbert", "hilbert-trans"):
        for axes in (2, 3):
            there = ga.shapes.curve_order(pos[:, :axes], curve)
            here = ga.shapes.curve_order(pos[:, :axes].to(device), curve)
            results.append({"curve": curve, "axes": axes, "ok": torch.equal(here.cpu(), there)})
    return results


def _farthest(device: torch.device) -> list[dict[str, Any]]:
    pos = torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
    here, there = ga.shapes.farthest_points(pos.to(device), 61), ga.shapes.farthest_points(pos, 61)
    return [{"ok": torch.equal(here.cpu(), there) and here.device.type == device.type}]


def _chosen(device: torch.device) -> list[dict[str, Any]]:
    """Queries and keys on a device choose what they choose on the CPU, as each backend reads it."""
    from graphattn.graphs import block_local, causal, routed, top_k

    own, random = block_local(..., 4, causal=True), torch.Generator().manual_seed(0)
    recipe = top_k(..., 2, blocks=4, within=causal(...) - own) | own
    recipe |= routed(..., torch.randn(3, 5, generator=random)) & causal(...)
    given = [
        torch.randn(2, 23, heads, 5, dtype=torch.float64, generator=random) for heads in (4, 2, 2)
    ]
    results, expected = [], ga.attention(*given, recipe, backend="message_passing")
    for backend in BACKENDS:
        found = ga.attention(*(x.to(device) for x in given), recipe, backend=backend)
        error = float((found.cpu() - expected).abs().max())
        results.append({"backend": backend, "error": error, "bound": 1e-10, "ok": error <= 1e-10})
    return results


def _dropped(device: torch.device) -> list[dict[str, Any]]:
    """The same seed drops the same weights in the kernels of a device and of the CPU."""
    from graphattn.backends.device import without_kernels
    from graphattn.kernels.softmax.operator import edge_attention
    from graphattn.plans.grouped import by_target

    reasons = [
        reason for place in (device, torch.device("cpu")) for reason in without_kernels(place)
    ]
    if reasons:
        return [{"backend": "edges", "ok": None, "refused": reasons}]
    graph, outputs = GRAPHS["hub"](), []
    for place in (device, torch.device("cpu")):
        x, seed = torch.ones(2, 31, 3, 8, device=place), torch.tensor(2**62 + 5, device=place)
        options = (1.0, 0.0, 0.3, "both", seed, False, False)
        given = (x, x, x, None, None, None, *by_target(graph, place), *(None,) * 4)
        outputs.append(edge_attention(*given, *options)[0].cpu())
    error = float((outputs[0] - outputs[1]).abs().max())
    return [{"backend": "edges", "error": error, "bound": 1e-6, "ok": error <= 1e-6}]


def _walked(edge_to: str, device: torch.device) -> list[dict[str, Any]]:
    """Edge features in half precision beside float64 on the CPU, with one row a program and with
    several, which give the same bits.
    """
    from graphattn.backends.device import without_kernels
    from graphattn.kernels.softmax import operator as edges_op
    from graphattn.plans.grouped import by_source, by_target

    graph = ga.graphs.random_neighbours(600, 9) | ga.graphs.global_tokens(600, [3])
    draw = torch.Generator().manual_seed(0)
    shapes = [(1, 600, 4, 32)] * 3 + [
        (1, graph.num_edges, 4),
        (1, graph.num_edges, 16),
        (4, 32, 16),
    ]
    given = [torch.randn(shape, generator=draw).half() for shape in shapes]

    def results(place: torch.device, dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(place, dtype).requires_grad_() for x in given]
        layout = (*by_target(graph, place), *by_source(graph, place))
        options = (0.2, 0.0, 0.0, edge_to, None, False, False)
        output = edges_op.edge_attention(*leaves, *layout, *options)[0]
        return [output.detach(), *torch.autograd.grad(output.square().sum(), leaves)]

    reasons = without_kernels(device)
    if device.type != "cuda" or reasons:
        return [{"backend": "edges", "ok": None, "refused": reasons or ["no CUDA"]}]
    from graphattn.kernels.cuda import launches

    expected = results(torch.device("cpu"), torch.float64)
    found = []
    before = launches.ENOUGH
    for enough in (before, 1):
        launches.ENOUGH = enough
        try:
            found.append(results(device, torch.float16))
        finally:
            launches.ENOUGH = before
    differ = [i for i, (x, y) in enumerate(zip(*found, strict=True)) if not torch.equal(x, y)]
    error = max(
        float((x.cpu().double() - y).abs().max() / y.abs().max())
        for x, y in zip(found[0], expected, strict=True)
    )
    is_right = error <= 1e-2 and not differ
    return [{"backend": "edges", "error": error, "bound": 1e-2, "differ": differ, "ok": is_right}]


def _prepared(device: torch.device) -> list[dict[str, Any]]:
    """The second call of the edge kernels neither waits for the device nor does what a CUDA
    graph cannot hold."""
    if device.type != "cuda" or torch.version.cuda is None:
        return [{"backend": "edges", "ok": None, "refused": ["no CUDA"]}]
    graph = ga.graphs.random_neighbours(600, 40) | ga.graphs.global_tokens(600, [3])
    graph, x = graph.to(device), torch.randn(600, 3, 32, device=device, requires_grad=True)

    def call() -> tuple[Tensor, Tensor]:
        output = ga.attention(x, x, x, graph, backend="edges", dropout_p=0.1)
        return output, torch.autograd.grad(output.sum(), x)[0]

    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize(device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    held = torch.cuda.CUDAGraph()
    with torch.cuda.graph(held):
        output, grad = call()
    drawn = []
    for _ in range(2):
        held.replay()
        drawn.append(output.clone())
    finite = bool(output.isfinite().all() and grad.isfinite().all())
    return [{"backend": "edges", "ok": finite, "dropout is drawn anew": not torch.equal(*drawn)}]


def _captured(device: torch.device) -> list[dict[str, Any]]:
    """Steps of a captured training have the losses of one that is not captured."""
    if device.type != "cuda" or torch.version.cuda is None:
        return [{"backend": "edges", "ok": None, "refused": ["no CUDA"]}]
    graph = ga.graphs.sliding_window(500, 9, causal=True).to(device)
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(500, 32, generator=draw).to(device) for _ in range(7)]
    losses = []
    for captures in (False, True):
        torch.manual_seed(0)
        layer = ga.nn.GraphAttention(32, 4, backend="edges").to(device)
        optimizer = torch.optim.AdamW(layer.parameters(), 1e-2, capturable=True)

        def step(x: Tensor, layer: Any = layer, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = (layer(x, graph) - x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = ga.training.Captured(step) if captures else step
        losses.append(torch.stack([run(x).clone() for x in inputs]).cpu())
    error = float((losses[0] - losses[1]).abs().max())
    return [{"backend": "edges", "error": error, "bound": 1e-6, "ok": error <= 1e-6}]


def _cells(device: torch.device) -> list[dict[str, Any]]:
    """A convolution of cells and its gradients, beside float64 on the CPU."""
    grid = torch.cartesian_prod(*[torch.arange(11)] * 3)[::2]
    shape = ga.graphs.serialized_hierarchy(grid.double(), cells=grid, levels=1)
    near = shape.levels[0].near[0]
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        conv = ga.nn.CellConv(20, 40)
        x = torch.randn(2, len(grid), 20)
        found = []
        for place, kind in ((torch.device("cpu"), torch.float64), (device, dtype)):
            layer = copy.deepcopy(conv).to(place, kind)
            leaf = x.to(place, kind).requires_grad_()
            output = layer(leaf, near.to(place))
            loss = output.double().square().mean()
            grads = torch.autograd.grad(loss, (leaf, layer.weight))
            found.append([y.detach().double().cpu() for y in (output, *grads)])
        error = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*found, strict=True))
        bound = {torch.float32: 1e-4, torch.bfloat16: 4e-2}[dtype]
        row = {"backend": "edges", "dtype": _name(dtype), "error": error, "bound": bound}
        results.append(row | {"ok": error <= bound})
    return results


def _flex(device: torch.device, compiled: bool = False) -> list[dict[str, Any]]:
    """Global tokens, whose rows of blocks are in pieces, by FlexAttention, maybe in a function
    that is compiled, and by SDPA: forward and backward."""
    from graphattn.backends.inputs import inputs_of
    from graphattn.backends.tiles.backend import TilesBackend, tiles_run
    from graphattn.backends.tiles.gathered import gathered_run

    nodes, results = 4096, []
    if device.type != "cuda" or torch.version.cuda is None:
        return [{"backend": "tiles", "ok": None, "refused": ["no CUDA"]}]
    graph = (
        ga.graphs.sliding_window(nodes, 65, causal=False)
        | ga.graphs.global_tokens(nodes, [0, 2000])
    ).to(device)
    for dtype in (torch.float32, *HALVES):
        draw, outputs = torch.Generator().manual_seed(0), []
        leaves = [
            torch.randn(nodes, 4, 64, generator=draw).to(device, dtype).requires_grad_()
            for _ in range(3)
        ]
        inputs = inputs_of(*leaves, graph)
        if TilesBackend().way(graph, Request.of(inputs, lse=True)) != "flex":
            results.append(
                {"dtype": _name(dtype), "ok": False, "raised": "FlexAttention is not chosen"}
            )
            continue
        for run in (torch.compile(tiles_run) if compiled else tiles_run, gathered_run):
            found = run(graph, inputs, True)
            loss = found.output.float().square().sum() + found.lse.sum()
            outputs.append([found.output, found.lse, *torch.autograd.grad(loss, leaves)])
        pairs = zip(*([x.detach().double() for x in each] for each in outputs), strict=True)
        error = max(float((x - y).abs().max() / y.abs().max()) for x, y in pairs)
        bound = (16 if dtype in HALVES else 256) * torch.finfo(dtype).eps
        results.append(
            {"dtype": _name(dtype), "error": error, "bound": bound, "ok": error <= bound}
        )
    return results


def _varlen(device: torch.device) -> list[dict[str, Any]]:
    """Documents, causal ones and windows by torch's attention of sequences, and densely: forward
    and backward."""
    from graphattn.backends.inputs import inputs_of
    from graphattn.backends.tiles.varlen import reasons_against_varlen

    documents = ga.graphs.documents(
        torch.repeat_interleave(torch.tensor([75, 1, 225, 10, 201])), causal=False
    )
    graphs = [
        documents,
        documents & ga.graphs.causal(512),
        ga.graphs.sliding_window(512, 65, causal=True),
    ]
    x = torch.zeros(512, 4, 64, dtype=torch.bfloat16, device=device)
    reasons = [
        r
        for g in graphs
        for r in reasons_against_varlen(g.to(device), Request.of(inputs_of(x, x, x, g)))
    ]
    if reasons:
        return [{"backend": "tiles", "ok": None, "refused": reasons}]
    reason = reason_against_trial("tiles", "varlen", [graph.to(device) for graph in graphs], device)
    return [{"backend": "tiles", "ok": not reason, "refused": [reason]}]


def _autocast(device: torch.device) -> list[dict[str, Any]]:
    results, layer, graph = [], layer_of("plain").to(device), _on(device, "longformer")
    x = torch.randn(29, 12, generator=torch.Generator().manual_seed(0)).to(device)
    expected = layer(x, graph).detach()
    for dtype in HALVES:
        with torch.autocast(device.type, dtype=dtype):
            found = layer(x, graph)
        error = float((found.detach().float() - expected).abs().max() / expected.abs().max())
        finite = bool(
            torch.autograd.grad(found.float().sum(), layer.q_proj.weight)[0].isfinite().all()
        )
        bound = 16 * torch.finfo(dtype).eps
        results.append(
            {"dtype": _name(dtype), "error": error, "bound": bound, "ok": error <= bound and finite}
        )
    return results


def _trained(device: torch.device) -> list[dict[str, Any]]:
    """Some steps on the device, and the same on the CPU in float64."""
    losses = {}
    for place, dtype in ((device, torch.float32), (torch.device("cpu"), torch.float64)):
        torch.manual_seed(0)
        model = ga.models.GPT(11, embed_dim=16, num_heads=2, num_layers=2, max_len=13).to(
            place, dtype
        )
        tokens = torch.randint(11, (3, 13), generator=torch.Generator().manual_seed(1)).to(place)
        optimizer, losses[dtype] = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(4):
            logits = model(tokens)[..., :-1, :]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[dtype].append(loss.item())
    error = max(abs(a - b) for a, b in zip(*losses.values(), strict=True))
    return [{"losses": losses[torch.float32], "error": error, "bound": 1e-4, "ok": error <= 1e-4}]


def _neighbours(device: torch.device) -> list[dict[str, Any]]:
    pos = torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
    results = []
    for name, build in {
        "knn": lambda x: ga.graphs.knn(x, 7),
        "radius": lambda x: ga.graphs.radius(x, 0.2),
    }.items():
        here, there = build(pos.to(device)), build(pos)
        alike = (
            torch.equal(here.edge_index.cpu(), there.edge_index) and here.device.type == device.type
        )
        results.append({"builder": name, "ok": alike})
    return results


def _sorted(device: torch.device) -> list[dict[str, Any]]:
    """Listed edges lie by target and by source as the CPU lays them."""
    from graphattn.plans.grouped import by_source, by_target

    numbers = torch.Generator().manual_seed(0)
    edges = torch.stack(
        [torch.randint(nodes, (20_000,), generator=numbers) for nodes in (700, 900)]
    )
    there = ga.from_edge_index(edges.to(device), 700, 900, duplicates="keep")
    here, results = ga.from_edge_index(edges, 700, 900, duplicates="keep"), []
    for grouped in (by_target, by_source):
        pairs = list(zip(grouped(there, device), grouped(here), strict=True))
        alike = all(torch.equal(a.cpu(), b) and a.device.type == device.type for a, b in pairs)
        results.append({"grouped": grouped.__name__, "ok": alike})
    return results


def _weights(device: torch.device) -> list[dict[str, Any]]:
    graph = _on(device, "hub")
    x = torch.randn(31, 2, 8, generator=torch.Generator().manual_seed(0)).to(device)
    found = ga.attention(x, x, x, graph, return_weights=True, return_lse=True)
    total = found.weights.dense().sum(-1)[:, graph.in_degree > 0]
    strongest = found.weights.top(2)
    right = strongest.source.device.type == device.type and len(found.weights._repr_html_()) > 100
    error = float((total - 1).abs().max())
    return [{"error": error, "bound": 1e-6, "ok": error <= 1e-6 and right}]
