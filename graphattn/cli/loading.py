"""What each kind of file gives to the builders, and what its reader should know about it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import OptionError
from .output import one_line
from .values import Reader


@dataclass(frozen=True)
class Item:
    """A graph that was asked for, by ``what``."""

    what: str
    graph: Any
    notes: tuple[str, ...] = ()
    places: dict[str, Any] = field(default_factory=dict)  # keyword arguments of graphattn.viz.plot


@dataclass(frozen=True)
class Loaded:
    """Arguments for builders, keyword arguments for pictures, and notes."""

    given: dict[str, Any]
    places: dict[str, Any] = field(default_factory=dict)  # where the nodes are
    face_places: dict[str, Any] = field(default_factory=dict)  # the same where the nodes are faces
    notes: tuple[str, ...] = ()


def take_mesh(path: str, values: dict[str, Any]) -> Loaded:
    """Vertices and faces: polygons as the file has them, so that no edge crosses a quad."""
    import numpy as np

    from ..interop.files import load_mesh

    mesh = load_mesh(path, **_for(load_mesh, values))
    ptr, corner = mesh.polygons.ptr, mesh.polygons.corner
    centre = np.add.reduceat(mesh.vertices[corner], ptr[:-1]) / np.diff(ptr)[:, None]
    odd = mesh.notes._asdict()
    notes = tuple(f"{text}: {odd[what]:,}" for what, text in _ODD.items() if odd[what])
    given = {"faces": _faces(mesh), "num_vertices": len(mesh.vertices)}
    return Loaded(given, {"pos": mesh.vertices, "faces": mesh.faces}, {"pos": centre}, notes)


def _faces(mesh: Any) -> Any:
    import numpy as np
    import torch

    if not mesh.notes.cut:
        return torch.from_numpy(mesh.faces)
    return [part.tolist() for part in np.split(mesh.polygons.corner, mesh.polygons.ptr[1:-1])]


_ODD = {
    "degenerate": "triangles with a repeated corner",
    "duplicate": "triangles that repeat an earlier one",
    "unused": "vertices that belong to no face",
    "merged": "corners joined with a vertex at the same place",
    "skipped": "elements of the file that are neither vertex nor face, left out",
}


def take_points(path: str, values: dict[str, Any]) -> Loaded:
    """Positions."""
    from ..interop.files import load_points

    pos = _read_points(path, **_for(load_points, values))
    return Loaded({"pos": pos}, {"pos": pos})


def take_edges(path: str, values: dict[str, Any]) -> Loaded:
    """Sources, targets and both sizes; one that nobody gave is told from the largest id, with a note."""
    import torch

    from ..interop.files import load_edges

    load = _for(load_edges, values)
    both = values.pop("num_nodes", None)
    if both is not None:
        if {"num_sources", "num_targets"} & set(load):
            raise OptionError(
                "--num-nodes says that sources and targets are the same nodes; with --num-sources or "
                "--num-targets leave it out"
            )
        load |= {"num_sources": both, "num_targets": both}
    edges = load_edges(path, **load)
    size, notes = _sizes(edges)
    if edges.ids is not None:
        notes = (f"ids were renumbered 0 .. {len(edges.ids) - 1}, in ascending order",)
    index = torch.stack((torch.from_numpy(edges.source), torch.from_numpy(edges.target)))
    values |= size
    return Loaded({"edge_index": index, "name": one_line(Path(path).name)}, notes=notes)


def edge_list(
    edge_index: Any,
    num_sources: int | None = None,
    num_targets: int | None = None,
    *,
    num_nodes: int | None = None,
    duplicates: Literal["error", "keep", "merge"] = "error",
    name: str | None = None,
) -> Any:
    """:func:`graphattn.from_edge_index`, with what may be typed spelled out.

    Args:
        edge_index: Sources and targets.
        num_sources: Number of sources; ids are below it. Told from the largest id by default.
        num_targets: Number of targets, the same way.
        num_nodes: Both at once, where sources and targets are the same nodes.
        duplicates: What to do with an edge that is there twice: refuse it, keep each copy, or merge them into one.
    """
    from ..interop import from_edge_index

    return from_edge_index(edge_index, num_sources, num_targets, num_nodes, duplicates=duplicates, name=name)


def _sizes(edges: Any) -> tuple[dict[str, int], tuple[str, ...]]:
    known = {"num_sources": edges.num_sources, "num_targets": edges.num_targets}
    top = {"num_sources": int(edges.source.max(initial=-1)) + 1, "num_targets": int(edges.target.max(initial=-1)) + 1}
    if all(size is None for size in known.values()):
        nodes = max(top.values())
        return dict.fromkeys(known, nodes), (
            f"{nodes:,} nodes, told from the largest id: --num-nodes N if there are more, --num-sources S "
            "--num-targets T if sources and targets are different nodes",
        )
    notes = tuple(
        f"{top[side]:,} {side[4:]}, told from the largest id: --{side.replace('_', '-')} N if there are more"
        for side, size in known.items()
        if size is None
    )
    return {side: top[side] if size is None else size for side, size in known.items()}, notes


def take_mask(path: str, values: dict[str, Any]) -> Loaded:
    """The mask itself."""
    from ..interop.files import load_mask

    return Loaded({"mask": load_mask(path, **_for(load_mask, values)), "name": one_line(Path(path).name)})


def _for(loader: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values that are the loader's."""
    known = inspect.signature(loader).parameters
    return {name: value for name, value in values.items() if name in known}


def _read_points(path: str, **options: Any) -> Any:
    import torch

    from ..interop.files import load_points

    return torch.from_numpy(load_points(path, **options))


def _read_faces(path: str) -> Any:
    from ..interop.files import load_mesh

    return _faces(load_mesh(path))


#: Parameters of builders that are files on the command line, by name.
TENSORS = {
    "pos": Reader("FILE", "a file of points", _read_points),
    "queries": Reader("FILE", "a file of points", _read_points),
    "faces": Reader("FILE", "a mesh file", _read_faces),
    "scores": Reader("FILE", "a .npy file of numbers, a row for each target", _read_points),
}
