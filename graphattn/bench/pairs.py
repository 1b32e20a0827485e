"""Pairs of calls whose ratio is a figure of its own: the layer by hand, a token, a normalisation, a dtype."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..backends.check import check
from ..backends.run import run
from ..graph import AttentionGraph
from ..graphs import causal, full
from ..nn import GraphAttention
from ..nn.normalizers import Sigmoid
from . import builders
from .clock import quartiles, timed
from .makers import near_points, points

BLOCK = 0.02  # seconds: quick calls are repeated until they fill so much

Call = Callable[[], Any]


class Pair(NamedTuple):
    """Two calls made when their turn comes: what is judged, and what it is judged by."""

    name: str
    about: str
    make: Callable[[], tuple[Call, Call]]


class Measured(NamedTuple):
    """A pair's times, ms a turn; or why there are none."""

    name: str
    about: str
    ms: list[float]
    other_ms: list[float]
    refused: str = ""

    @property
    def ratio(self) -> float | None:
        """The first over the second: the median over the turns, each of which ran both."""
        ratios = [a / b for a, b in zip(self.ms, self.other_ms, strict=True)]
        return quartiles(ratios)[1] if ratios else None

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{self.name}: not run: {self.refused}"
        first, second = (quartiles(times)[1] for times in (self.ms, self.other_ms))
        return f"{self.name}: {self.ratio:.3g} ({first:.3g} ms over {second:.3g} ms; {self.about})"

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {**self._asdict(), "ratio": self.ratio}


def taken_in_turn(calls: tuple[Call, Call], repeats: int, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each call, turn by turn: ``repeats`` turns, fewer if they take too long, but three."""
    until = time.monotonic() + seconds
    for call in calls:
        call()
    counts = [min(200, max(1, math.ceil(BLOCK / max(timed(call, 1, "cpu"), 1e-7)))) for call in calls]
    taken: tuple[list[float], list[float]] = [], []
    for turn in range(repeats):
        if turn >= 3 and time.monotonic() > until:
            break
        for i in (0, 1) if turn % 2 else (1, 0):
            taken[i].append(1e3 * timed(calls[i], counts[i], "cpu"))
    return taken


def _step(forward: Callable[..., Tensor], *leaves: Tensor) -> Call:
    """Forward and backward, for the gradients of the leaves."""
    leaves = tuple(x if isinstance(x, nn.Parameter) else x.detach().requires_grad_() for x in leaves)
    grad = torch.randn_like(forward(*leaves))
    return lambda: torch.autograd.grad(forward(*leaves), leaves, grad)


def _nodes(size: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(size, 4, 32, generator=draw).to(dtype) for _ in range(3)]


def _knn() -> AttentionGraph:
    return near_points(16_384, 16)


def _along(graph: AttentionGraph, query: Tensor, key: Tensor, value: Tensor, normalize: Any = None) -> Tensor:
    return run(graph, check(query, key, value, graph, normalize=normalize), "auto", False, False).output


def _small(nodes: int) -> tuple[Call, Call]:
    torch.manual_seed(0)
    layer, graph, x = GraphAttention(128, 4).eval().requires_grad_(False), full(nodes), torch.randn(1, nodes, 128)
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)

    def by_hand() -> Tensor:
        heads = (p(x).view(1, nodes, 4, 32).transpose(1, 2) for p in projections)
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        return layer.out_proj(mixed.transpose(1, 2).reshape(1, nodes, 128))

    return partial(layer, x, graph), by_hand


def _token() -> tuple[Call, Call]:
    from transformers import LlamaConfig, LlamaForCausalLM

    from ..models import from_hf, generate

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 1_000, "hidden_size": 128, "intermediate_size": 352}
    theirs = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=4, num_attention_heads=4)).eval()
    theirs.requires_grad_(False)
    ours, prompt = from_hf(theirs).eval(), torch.randint(1_000, (1, 16))
    return (
        lambda: generate(ours, prompt, causal(80), max_new_tokens=64),
        lambda: theirs.generate(prompt, max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=0),
    )


def _sigmoid() -> tuple[Call, Call]:
    graph, qkv = _knn(), _nodes(16_384)
    return _step(partial(_along, graph, normalize=Sigmoid()), *qkv), _step(partial(_along, graph), *qkv)


def _offsets() -> tuple[AttentionGraph, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    graph, pos = _knn(), points(16_384, sorted_along_curve=True)
    return graph, pos, pos[graph.target] - pos[graph.source], torch.randn(16_384, 64)


def _layer(score: str, graph: AttentionGraph, offsets: Tensor, x: Tensor) -> Call:
    layer = GraphAttention(64, 4, edge_dim=3, score=score)
    return _step(lambda x, *rest: layer(x, graph, edge_attr=offsets), x, *layer.parameters())


def _subtraction() -> tuple[Call, Call]:
    graph, _, offsets, x = _offsets()
    return _layer("subtraction", graph, offsets, x), _layer("scaled_dot", graph, offsets, x)


def _point_transformer() -> tuple[Call, Call]:
    from torch_geometric.nn import MLP, PointTransformerConv

    graph, pos, offsets, x = _offsets()
    nets = (MLP([3, 64, 64], norm=None, plain_last=True), MLP([64, 64, 64], norm=None, plain_last=True))
    conv, edge_index = PointTransformerConv(64, 64, *nets, add_self_loops=False), graph.edge_index
    theirs = _step(lambda x, *rest: conv(x, pos, edge_index), x, *conv.parameters())
    return theirs, _layer("subtraction", graph, offsets, x)


def _half() -> tuple[Call, Call]:
    graph = _knn()
    return tuple(_step(partial(_along, graph), *_nodes(16_384, x)) for x in (torch.bfloat16, torch.float32))  # type: ignore[return-value]


def _chunks() -> tuple[Call, Call]:
    graph, qkv = _knn(), _nodes(16_384)

    def of_one(x: Tensor) -> Tensor:
        query, key, value = (part.unflatten(-1, (4, 32)) for part in x.chunk(3, -1))
        return _along(graph, query, key, value)

    return _step(of_one, torch.cat([x.flatten(1) for x in qkv], -1)), _step(partial(_along, graph), *qkv)


_POINTS = (
    *(
        Pair(f"kNN of {n:,}", f"knn(pos, 16) over scipy's cKDTree and its query, {n:,} uniform points", made)
        for n, made in ((n, partial(builders.nearest, n)) for n in (370, 16_384, 100_000))
    ),
    Pair(
        "kNN of clouds",
        "knn of a batch over a cKDTree of each, 64 clouds of 300",
        partial(builders.nearest_of_clouds, 64, 300),
    ),
    Pair(
        "radius",
        "radius over cKDTree's query_ball_point, 16,384 points, some 16 each",
        partial(builders.within, 16_384),
    ),
    Pair("1-ring", "mesh_vertices over PyG's FaceToEdge, icosphere of 40,962 vertices", partial(builders.rings, 6)),
    Pair("PLY", "load over np.fromfile behind the header, binary, a million points", partial(builders.ply, 1_000_000)),
)
_KNN = "kNN-16, 16,384 nodes, H = 4, D = 32, a training step"
_TABLE = (
    *(
        Pair(f"layer of {n}", f"GraphAttention(128, 4) over 4 Linear and SDPA by hand, {n} nodes, no gradient", made)
        for n, made in ((n, partial(_small, n)) for n in (1, 16, 64))
    ),
    Pair("token", "64 tokens of generate() over transformers', Llama of 4 layers, width 128", _token),
    Pair("sigmoid", f'normalize="sigmoid" over softmax, {_KNN}', _sigmoid),
    Pair("subtraction", "that score over scaled_dot, layer of width 64, H = 4, with offsets, kNN-16", _subtraction),
    Pair("PyG points", "PointTransformerConv over our subtraction (H = 4), width 64, kNN-16", _point_transformer),
    Pair("bfloat16", f"over float32, {_KNN}", _half),
    Pair("chunks", f"of one qkv over three tensors, {_KNN}", _chunks),
)
#: Pairs by name.
PAIRS: dict[str, Pair] = {pair.name: pair for pair in (*_TABLE, *_POINTS)}
