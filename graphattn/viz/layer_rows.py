"""The layers of a model as rows of nodes, input at the bottom, and the paths to one target."""

from typing import Any

import numpy as np
import torch

from ..arguments import several
from ..errors import ShapeError
from ..graph.graph import AttentionGraph
from ..graph.runs import expand
from .layouts.base import Index
from .style import GROUND, INK, TEXT, fitting, layer_shades, number, quiet

_MOST_NODES = 160  # of a row, drawn one by one
_MOST_EDGES = 2_000
_MOST_NAMED = 40
_CLOSE = 0.2  # of the width


def draw_rows(
    ax: Any, graphs: tuple[AttentionGraph, ...], target: int, tokens: Any
) -> tuple[int, list[str]]:
    """Draw them; returns the number of input nodes that reach the target, and caption sentences."""
    from matplotlib.collections import LineCollection

    sizes = [graphs[0].num_sources, *(graph.num_targets for graph in graphs)]
    reached, edges = _paths(graphs, target)
    colours = layer_shades(len(graphs))
    quiet(ax)
    sentences = _frame(ax, reached, sizes)
    ax.set_ylim(-0.35, len(graphs) + 0.35)
    drawn = sum(len(pairs[0]) for pairs in edges) <= _MOST_EDGES
    drawn_edges: Any = []
    if drawn:
        drawn_edges = edges
    for level, (source, into) in enumerate(drawn_edges):
        ends = [np.stack((_x(nodes, sizes[level + up]), np.full(len(nodes), level + up)), 1)
                for up, nodes in enumerate((source, into))]  # fmt: skip
        lines = LineCollection(
            list(np.stack(ends, 1)), colors=[colours[level]], linewidths=1.0, alpha=0.8, zorder=2
        )
        lines.set_gid(f"edges of layer {level}")
        ax.add_collection(lines, autolim=False)
    for level, (size, nodes) in enumerate(zip(sizes, reached, strict=True)):
        if size <= _MOST_NODES:
            ax.scatter(
                _x(np.arange(size), size),
                np.full(size, level),
                s=12,
                color=GROUND,
                zorder=3,
                gid="nodes",
            )
        else:
            ax.axhline(level, color=GROUND, linewidth=1.0, zorder=1)
        ax.scatter(_x(nodes, size), np.full(len(nodes), level), s=24 if size <= _MOST_NODES else 8, color=INK, zorder=4,
                   linewidth=0, gid=f"reached {level}")  # fmt: skip
    ax.scatter(
        _x(np.array([target]), sizes[-1]),
        [len(graphs)],
        marker="*",
        s=180,
        color="white",
        edgecolor=INK,
        zorder=5,
    )
    names = ["input", *(f"layer {i}" for i in range(len(graphs)))]
    labels = [f"{name}\n{number(len(nodes))} of {number(size)}"
              for name, nodes, size in zip(names, reached, sizes, strict=True)]  # fmt: skip
    ax.set_yticks(range(len(sizes)), labels, fontsize=TEXT)
    ax.tick_params(length=0)
    _name(ax, tokens, sizes[0])
    if drawn:
        route = "along the lines drawn; information"
    else:
        route = "along edges too many to draw; information"
    sentences.insert(0, f"Dark nodes reach the target, marked by a star, {route} flows up.")
    return len(reached[0]), sentences


def _frame(ax: Any, reached: list[Index], sizes: list[int]) -> list[str]:
    """The whole width, or a close-up of what is reached where that is little of it."""
    x = np.concatenate([_x(nodes, size) for nodes, size in zip(reached, sizes, strict=True)])
    low = float(x.min())
    high = float(x.max())
    if sizes[0] <= _MOST_NODES or high - low > _CLOSE:
        ax.set_xlim(-0.01, 1.01)
        return []
    margin = 0.2 * (high - low) + 2 / sizes[0]
    ax.set_xlim(low - margin, high + margin)
    nodes = reached[0]
    return [
        f"Close-up: of the input, nodes {number(int(nodes.min()))} to {number(int(nodes.max()))} "
        "are dark."
    ] * (len(nodes) > 0)


def _x(nodes: Index, size: int) -> np.ndarray:
    """Places in a row that fills the width."""
    return (nodes + 0.5) / max(1, size)


def _paths(
    graphs: tuple[AttentionGraph, ...], target: int
) -> tuple[list[Index], list[tuple[Index, Index]]]:
    """The nodes of every row that reach the target, input first, and the edges between rows."""
    reached: list[Index] = [np.array([target])]
    edges: list[tuple[Index, Index]] = []
    for graph in reversed(graphs):
        row, source = expand(graph.edges.rows(torch.from_numpy(reached[0])))
        edges.insert(0, (source.numpy(), reached[0][row.numpy()]))
        reached.insert(0, np.unique(source.numpy()))
    return reached, edges


def _name(ax: Any, tokens: Any, size: int) -> None:
    if tokens is None:
        return
    tokens = several(
        tokens, "tokens", f"must name all {size} sources of the first layer", ShapeError
    )
    if len(tokens) != size:
        raise ShapeError(
            f"tokens must name all {size} sources of the first layer, got {len(tokens)}"
        )
    if size <= _MOST_NAMED:
        names = [fitting(str(token)) for token in tokens]
        if sum(map(len, names)) > 50:
            turned = 90
        else:
            turned = 0
        ax.set_xticks(_x(np.arange(size), size), names, fontsize=TEXT, rotation=turned)
