"""Pairs of calls whose ratio is a figure: ours, and the same by hand, by another library or in
another way.
"""

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from shapes import near_points, points
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from graphattn.backends.inputs import inputs_of
from graphattn.backends.run import run
from graphattn.bench.timing import BLOCK, quartiles, timed
from graphattn.convert import from_mask, from_mask_mod
from graphattn.graph import AttentionGraph, PerExample, disjoint_union
from graphattn.graphs import causal, full, knn, mesh_vertices, radius
from graphattn.nn import GraphAttention
from graphattn.nn.normalizers import Sigmoid
from graphattn.shapes import Shape, icosphere_mesh, load, save

Call = Callable[[], Any]


class Pair(NamedTuple):
    """Two calls, made when their turn comes: the first is judged by the second."""

    about: str
    make: Callable[[], tuple[Call, Call]]


class Times(NamedTuple):
    """A pair's times in ms, turn by turn."""

    ms: list[float]
    other_ms: list[float]

    @property
    def ratio(self) -> float:
        """The first over the second: the median over the turns, each of which ran both."""
        return quartiles([a / b for a, b in zip(self.ms, self.other_ms, strict=True)])[1]


def times_of(calls: tuple[Call, Call], repeats: int) -> Times:
    """Each call in turn; a quick one is repeated until it fills a block."""
    for call in calls:
        call()
    counts = [
        min(200, max(1, math.ceil(BLOCK / max(timed(call, 1, "cpu"), 1e-7)))) for call in calls
    ]
    times = Times([], [])
    for turn in range(repeats):
        for i in (0, 1) if turn % 2 else (1, 0):
            times[i].append(1e3 * timed(calls[i], counts[i], "cpu"))
    return times


def step(forward: Callable[..., Tensor], *leaves: Tensor) -> Call:
    """Forward and backward, for the gradients of the leaves."""
    leaves = tuple(
        x if isinstance(x, nn.Parameter) else x.detach().requires_grad_() for x in leaves
    )
    grad = torch.randn_like(forward(*leaves))
    return lambda: torch.autograd.grad(forward(*leaves), leaves, grad)


def _nodes(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(16_384, 4, 32, generator=draw).to(dtype) for _ in range(3)]


def _along(
    graph: AttentionGraph | PerExample,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    normalize: Any = None,
) -> Tensor:
    return run(
        graph, inputs_of(query, key, value, graph, normalize=normalize), "auto", False, False
    ).output


def _small(nodes: int) -> tuple[Call, Call]:
    torch.manual_seed(0)
    layer, graph, x = (
        GraphAttention(128, 4).eval().requires_grad_(False),
        full(nodes),
        torch.randn(1, nodes, 128),
    )
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)

    def by_hand() -> Tensor:
        heads = (p(x).view(1, nodes, 4, 32).transpose(1, 2) for p in projections)
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        return layer.out_proj(mixed.transpose(1, 2).reshape(1, nodes, 128))

    return partial(layer, x, graph), by_hand


def _token() -> tuple[Call, Call]:
    from transformers import LlamaConfig, LlamaForCausalLM

    from graphattn.models import from_transformers, generate

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 1_000, "hidden_size": 128, "intermediate_size": 352}
    theirs = LlamaForCausalLM(
        LlamaConfig(**sizes, num_hidden_layers=4, num_attention_heads=4)
    ).eval()
    theirs.requires_grad_(False)
    ours, prompt = from_transformers(theirs).eval(), torch.randint(1_000, (1, 16))
    return (
        lambda: generate(ours, prompt, causal(80), max_new_tokens=64),
        lambda: theirs.generate(
            prompt, max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=0
        ),
    )


def _sigmoid() -> tuple[Call, Call]:
    graph, qkv = near_points(16_384, 16), _nodes()
    return step(partial(_along, graph, normalize=Sigmoid()), *qkv), step(
        partial(_along, graph), *qkv
    )


def _half() -> tuple[Call, Call]:
    graph = near_points(16_384, 16)
    return step(partial(_along, graph), *_nodes(torch.bfloat16)), step(
        partial(_along, graph), *_nodes()
    )


def _chunks() -> tuple[Call, Call]:
    graph, qkv = near_points(16_384, 16), _nodes()

    def of_one(x: Tensor) -> Tensor:
        return _along(graph, *(part.unflatten(-1, (4, 32)) for part in x.chunk(3, -1)))

    return step(of_one, torch.cat([x.flatten(1) for x in qkv], -1)), step(
        partial(_along, graph), *qkv
    )


def _examples() -> tuple[Call, Call]:
    """Graphs of the examples of a batch, and their union by hand."""
    clouds = points(32 * 512).unflatten(0, (32, 512))
    graphs = [knn(cloud, k=16) for cloud in clouds]
    union = disjoint_union(graphs)
    qkv = [x.unflatten(0, (32, 512)) for x in _nodes()]

    def by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        flat = [x.flatten(0, 1) for x in (query, key, value)]
        return _along(union, *flat).unflatten(0, (32, 512))

    return step(partial(_along, PerExample(graphs)), *qkv), step(by_hand, *qkv)


def _masks(density: float) -> tuple[Call, Call]:
    """Graphs from a mask of each example, and SDPA with the masks."""
    drawn = torch.rand(8, 512, 512, generator=torch.Generator().manual_seed(0))
    masks = (drawn < density) | torch.eye(512, dtype=torch.bool)
    qkv = [x[:4096].unflatten(0, (8, 512)) for x in _nodes()]

    def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        heads = [x.transpose(1, 2) for x in (query, key, value)]
        return nn.functional.scaled_dot_product_attention(*heads, attn_mask=masks[:, None])

    return step(partial(_along, from_mask(masks)), *qkv), step(dense, *qkv)


def _flex() -> tuple[Call, Call]:
    """The same for a mask function of the batch index, and FlexAttention, compiled."""
    lengths = torch.tensor([512, 300, 128, 400, 64, 256, 511, 200])

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return (q >= kv) & (kv < lengths[b])

    qkv = [x[:4096].unflatten(0, (8, 512)) for x in _nodes()]
    graphs = from_mask_mod(mask_mod, 512, B=8)
    block_mask = create_block_mask(mask_mod, 8, None, 512, 512, device="cpu")
    flex = torch.compile(flex_attention)

    def run_flex() -> Tensor:
        heads = [x.transpose(1, 2) for x in qkv]
        output: Tensor = flex(*heads, block_mask=block_mask)
        return output

    return partial(_along, graphs, *qkv), run_flex


def _layers(*scores: str) -> list[Call]:
    """A training step of a layer with each score, or of PyG's, with offsets between points."""
    torch.manual_seed(0)
    graph, pos, x = near_points(16_384, 16), points(16_384), torch.randn(16_384, 64)
    offsets, calls = pos[graph.target] - pos[graph.source], []
    for score in scores:
        if score == "PyG":
            from torch_geometric.nn import MLP, PointTransformerConv

            nets = (
                MLP([3, 64, 64], norm=None, plain_last=True),
                MLP([64, 64, 64], norm=None, plain_last=True),
            )
            layer: nn.Module = PointTransformerConv(64, 64, *nets, add_self_loops=False)
            forward = partial(lambda conv, x, *rest: conv(x, pos, graph.edge_index), layer)
        else:
            layer = GraphAttention(64, 4, edge_dim=3, score=score)
            forward = partial(lambda layer, x, *rest: layer(x, graph, edge_attr=offsets), layer)
        calls.append(step(forward, x, *layer.parameters()))
    return calls


def _nearest(size: int, clouds: int = 1) -> tuple[Call, Call]:
    from scipy.spatial import cKDTree

    pos, batch = (
        points(clouds * size, along_curve=False),
        torch.arange(clouds).repeat_interleave(size),
    )
    arrays, workers = (
        np.split(pos.numpy().astype(np.float64), clouds),
        1 if clouds > 1 else torch.get_num_threads(),
    )
    ours = partial(knn, pos, 16, batch=batch) if clouds > 1 else partial(knn, pos, 16)
    return ours, lambda: [cKDTree(own).query(own, 17, workers=workers) for own in arrays]


def _within(size: int) -> tuple[Call, Call]:
    from scipy.spatial import cKDTree

    pos = points(size, along_curve=False)
    array = pos.numpy().astype(np.float64)
    reach = float(cKDTree(array).query(array[:1000], 17)[0][:, -1].mean())
    return partial(radius, pos, reach), lambda: cKDTree(array).query_ball_point(
        array, reach, workers=torch.get_num_threads()
    )


def _rings(level: int) -> tuple[Call, Call]:
    from torch_geometric.data import Data
    from torch_geometric.transforms import FaceToEdge

    pos, faces = icosphere_mesh(level)
    size = len(pos)
    transform = FaceToEdge(remove_faces=False)
    return partial(mesh_vertices, faces, size), lambda: transform(
        Data(face=faces.T, num_nodes=size)
    )


def _ply(size: int) -> tuple[Call, Call]:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "points.ply"
    save(Shape(pos=points(size, along_curve=False)), path)

    def by_hand() -> Tensor:
        with path.open("rb") as file:
            while file.readline() != b"end_header\n":
                pass
            return torch.from_numpy(np.fromfile(file, "<f4").reshape(size, 3))

    def ours(folder: Any = folder) -> Any:  # which lives as long as the call
        return load(path)

    assert torch.equal(ours().pos, by_hand())
    return ours, by_hand


_KNN = "kNN-16, 16,384 nodes, H = 4, D = 32, a training step"
#: Pairs by name.
PAIRS = {
    **{
        f"layer of {n}": Pair(
            "GraphAttention(128, 4) over 4 Linear and SDPA by hand, no gradient", partial(_small, n)
        )
        for n in (1, 16, 64)
    },
    "token": Pair(
        "64 tokens of generate() over transformers', Llama of 4 layers, width 128", _token
    ),
    "sigmoid": Pair(f'normalize="sigmoid" over softmax, {_KNN}', _sigmoid),
    "subtraction": Pair(
        "that score over scaled_dot, layer of width 64, H = 4, with offsets, kNN-16",
        lambda: tuple(_layers("subtraction", "scaled_dot")),
    ),
    "PyG points": Pair(
        "PointTransformerConv over our subtraction (H = 4), width 64, kNN-16",
        lambda: tuple(_layers("PyG", "subtraction")),
    ),
    "bfloat16": Pair(f"over float32, {_KNN}", _half),
    "chunks": Pair(f"of one qkv over three tensors, {_KNN}", _chunks),
    "examples": Pair(
        "PerExample over disjoint_union by hand, 32 clouds of 512, kNN-16, a training step",
        _examples,
    ),
    **{
        f"masks of density {density}": Pair(
            "from_mask (8, 512, 512) over SDPA with the masks, H = 4, D = 32, a training step",
            partial(_masks, density),
        )
        for density in (0.25, 0.1, 0.02)
    },
    "mask of the batch": Pair(
        "from_mask_mod(B=8) over FlexAttention, lengths and causal, 512 nodes, no gradient", _flex
    ),
    **{
        f"kNN of {n:,}": Pair(
            "knn(pos, 16) over scipy's cKDTree and its query, uniform points", partial(_nearest, n)
        )
        for n in (370, 16_384, 100_000)
    },
    "kNN of clouds": Pair(
        "knn of a batch over a cKDTree of each, 64 clouds of 300", partial(_nearest, 300, 64)
    ),
    "radius": Pair(
        "radius over cKDTree's query_ball_point, 16,384 points, some 16 each",
        partial(_within, 16_384),
    ),
    "1-ring": Pair(
        "mesh_vertices over PyG's FaceToEdge, icosphere of 40,962 vertices", partial(_rings, 6)
    ),
    "PLY": Pair(
        "load over np.fromfile behind the header, binary, a million points",
        partial(_ply, 1_000_000),
    ),
}
