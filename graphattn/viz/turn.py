"""A graph in space as one HTML file: turn it, choose a target, see its sources by head."""

import base64
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ..arguments import kinds_checked, shown
from ..errors import GraphError, OptionError
from ..graph.advice import no_graph
from ..graph.algebra import refuse_over
from ..graph.graph import AttentionGraph
from ..interop.files._replace import save_page
from .choice import checked_targets
from .edge_weights import by_edge, weights_in
from .layouts import Layout, layout_of
from .layouts.grid import Grid
from .layouts.points import Points
from .style import counted

_MOST_BYTES = 48 << 20  # of data in the page, before base64
_WHOLE = 65535  # the top of the scale


@kinds_checked("title")
def to_html(
    graph_or_weights: Any,
    path: str | Path,
    pos: Any = None,
    *,
    queries: Any = None,
    faces: Any = None,
    size: tuple[int, int] | None = None,
    target: int | None = None,
    title: str | None = None,
) -> Path:
    """Write a page that shows a graph in space: turn it, choose a target, and its sources light up.

    One file that needs no network and no other file. Up to about 20,000 points, as many faces, and 400,000 edges it
    turns smoothly.

    Args:
        graph_or_weights: A graph, or its :class:`EdgeWeights` (or what attention gave with ``return_weights=True``),
            without a batch, or a tensor of weights (H, T, S); the page then offers every head and their mean, rounded
            to 1/65535. The darkest is a weight of 1, or the largest of the target's, as the reader chooses.
        path: Where the page is written.
        pos: (S, 2) or (S, 3), where the sources are. Without it a grid is laid out by its cells, a small listed graph
            as a network.
        queries: (T, 2) or (T, 3), where the targets are, if they are other points than the sources.
        faces: int (F, 3), a mesh whose vertices are the nodes; needs ``pos``.
        size: (height, width) of a grid, row-major. Rules over a grid know theirs.
        target: Chosen at first.
        title: What the page is called; the graph's name by default.

    Returns:
        ``path``.

    Raises:
        OptionError: If ``path`` cannot be written.
        ShapeError: If ``pos``, ``queries``, ``faces``, ``size`` or the weights do not fit the graph.
        GraphError: If the nodes have no place, or the page would hold more than 48 MiB of edges.
        GraphIndexError: If there is no such target.

    Example:
        >>> import tempfile, torch, graphattn as ga
        >>> pos = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = to_html(ga.graphs.knn(pos, k=4), f"{folder}/graph.html", pos, target=7)
        ...     path.stat().st_size > 10_000
        True
    """
    weights = None if isinstance(graph_or_weights, AttentionGraph) else weights_in(graph_or_weights)
    if not isinstance(path, str | Path):
        raise OptionError(f"path must be a file name, got {shown(path)}")
    graph: AttentionGraph = graph_or_weights if weights is None else weights.graph
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, "to_html shows an AttentionGraph or its weights")
    place = layout_of(graph, pos, queries=queries, faces=faces, size=size)
    if place.source_at.shape[1] == 1:
        raise GraphError("to_html needs pos, where the nodes are in space; for a sequence use plot or plot_heads")
    data = _data(graph, None if weights is None else by_edge(weights), place)
    data["target"] = -1 if target is None else checked_targets(graph, target, "target", 1)[0]
    page = Template(_file("turn.html")).substitute(
        title=escape(graph.name if title is None else title),
        legend=_legend(place),
        data=json.dumps(data).replace("<", "\\u003c"),
        script=_file("turn.js"),
    )
    save_page(path, page)
    return Path(path)


def _data(graph: AttentionGraph, alpha: Any, place: Layout) -> dict[str, Any]:
    """Numbers and base64 of little-endian arrays; edges by target."""
    heads = 0 if alpha is None else alpha.shape[1]
    hint = "show a subgraph, or fewer heads"
    refuse_over(graph.num_edges * (4 + 2 * heads), f"a page of {counted(graph.num_edges, 'edge')}", hint, _MOST_BYTES)
    source, target = graph.edge_index.cpu().numpy()
    order = np.lexsort((source, target))
    ptr = np.concatenate(([0], np.cumsum(np.bincount(target, minlength=graph.num_targets))))
    source_at, target_at = _in_unit_ball(place)
    faces = place.faces if isinstance(place, Points) and place.faces is not None else np.empty((0, 3))
    weight = None if alpha is None else np.nan_to_num(alpha.cpu().double().numpy()[order])
    top = 1.0 if weight is None else max(1.0, float(weight.max(initial=0.0)))  # above 1 without a softmax
    parts = None if weight is None else np.rint(weight / top * _WHOLE).clip(0, _WHOLE)
    return {
        "sources": graph.num_sources,
        "targets": graph.num_targets,
        "heads": heads,
        "flat": not place.is_3d,
        "sourceAt": _packed(source_at, "<f4"),
        "targetAt": _packed(target_at, "<f4") if place.two_sets else None,
        "faces": _packed(faces, "<u4"),
        "ptr": _packed(ptr, "<u4"),
        "source": _packed(source[order], "<u4"),
        "weight": None if parts is None else _packed(parts, "<u2"),
        "top": top,
    }


def _in_unit_ball(place: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets in three axes, x to the right and y up, centred and scaled."""
    down = -1.0 if isinstance(place, Grid) else 1.0
    sides = []
    for at in (place.source_at, place.target_at):
        at = np.concatenate((at, np.zeros((len(at), 3 - at.shape[1]))), 1)
        sides.append(at * [1.0, down, 1.0])
    both = np.concatenate(sides)
    if len(both) == 0:
        return sides[0], sides[1]
    centre = (both.min(0) + both.max(0)) / 2
    radius = float(np.linalg.norm(both - centre, axis=1).max()) or 1.0
    return (sides[0] - centre) / radius, (sides[1] - centre) / radius


def _packed(array: np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()


def _legend(place: Layout) -> str:
    nodes = "The chosen target is the orange square; round dots are its sources, larger and darker with their weight."
    return nodes + " Open squares are targets." * place.two_sets


def _file(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
