"""Files on the command line: the argument decides what ``load("scan.ply")`` reads for it."""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..convert import from_edge_index, from_mask
from ..convert.files import load_edges, load_mask, sniff
from ..convert.files.edges import ENDINGS as OF_EDGES
from ..convert.saving import is_saved_graph, load_graph
from ..errors import GraphAttnError, GraphError, OptionError
from ..graphs import mesh_vertices
from ..graphs.expression import Deferred
from ..graphs.mesh.rings import mesh_edge_ends
from ..io.arrays import read_array
from ..io.reading import MAX_BYTES, fault, read, suffix
from ..shapes.files.polygons import fan
from ..shapes.files.reading import read_raw
from .output import one_line

_RENUMBERING = re.compile(r"\b(subgraph|relabel|line_graph)\s*\(")
_TURNING = re.compile(r"\breverse\s*\(")


@dataclass
class Files:
    """The files that one WHAT loads, notes on them, and positions of their nodes."""

    paths: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)  # in their order, each once
    # by keyword argument of graphattn.viz.plot
    places: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def load(self, path: str, **options: Any) -> "File":
        """The contents of a file; options are those of its loader: header, weights, ..."""
        self.paths.append(path)
        return File(path, options, self)

    def put(self, **places: np.ndarray) -> None:
        """Keep positions of nodes."""
        for name, place in places.items():
            positions = self.places.setdefault(name, [])
            if not any(np.array_equal(place, other) for other in positions):
                positions.append(place)

    def places_of(self, graph: Any, text: str) -> dict[str, np.ndarray]:
        """Positions of the nodes of an expression's graph; none where they are not certain."""
        fields = {name: places[0] for name, places in self.places.items() if len(places) == 1}
        sides = [
            ("pos", graph.num_sources),
            ("queries" if "queries" in fields else "pos", graph.num_targets),
        ]
        is_renumbered = _RENUMBERING.search(text) or (
            "queries" in self.places and _TURNING.search(text)
        )
        fits = all(side in fields and len(fields[side]) == size for side, size in sides)
        if fits and not is_renumbered and set(fields) == set(self.places):
            return fields
        return {}


@dataclass(frozen=True, eq=False)
class File(Deferred):
    """A file that is read once its use is determined."""

    path: str
    options: dict[str, Any]
    files: Files = field(repr=False)

    def arguments(self, name: str, function: Callable[..., Any]) -> dict[str, Any]:
        """Positions for ``pos`` and ``queries``, a mesh for ``faces``, else a .npy file's array."""
        if name in ("pos", "queries"):
            points = self._read(read_raw).points["pos"].astype(np.float64)
            self.files.put(**{name: points})
            return {name: torch.from_numpy(points)}
        if name == "faces":
            return self._mesh(function)
        return {name: torch.from_numpy(self._read(_load_array))}

    def graph(self) -> Any:
        """The graph of a file of edges, a mask, a mesh or a saved graph."""
        if is_saved_graph(self.path):
            return self._read(load_graph)
        options = {key: value for key, value in self.options.items() if key == "max_bytes"}
        of_edges = Path(self.path).suffix.lower() in OF_EDGES
        if of_edges:
            kind = self._read(sniff, options)
        elif len(self._read(read_raw).corner):
            kind = "mesh"
        else:
            kind = "points"
        if kind == "points":
            raise OptionError(
                f"{self.path} holds points, which are no graph by themselves; "
                f"{self._graphs_of_points().replace(' or ', ' and ')} are"
            )
        if kind == "mask":
            return from_mask(self._read(load_mask), name=self.name)
        if kind == "edges":
            return self._edges()
        graph = mesh_vertices(**self._mesh(mesh_vertices))
        return replace(graph, name=f"{graph.name} of {self.name}")

    def __str__(self) -> str:
        return f"load({json.dumps(self.path, ensure_ascii=False)})"

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return one_line(Path(self.path).name)

    def _read(
        self, loader: Callable[..., Any], options: dict[str, Any] | None = None, also: str = ""
    ) -> Any:
        """The file as a loader reads it; ``also`` names options that are not the loader's."""
        if options is None:
            options = self.options
        takes = [*list(inspect.signature(loader).parameters)[1:], *also.split()]
        unknown = [key for key in options if key not in takes]
        if unknown:
            raise OptionError(
                f"{self} has no option {unknown[0]} here; it takes {', '.join(takes)}"
            )
        try:
            return loader(self.path, **options)
        except GraphAttnError:
            raise
        except (TypeError, ValueError) as error:
            raise OptionError(f"{self}: {error}") from error

    def _mesh(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Polygons as the file has them, so that no edge crosses a quad, and all vertices."""
        mesh = self._read(read_raw)
        pos = mesh.points["pos"].astype(np.float64)
        ptr = mesh.ptr
        corner = mesh.corner
        if not len(corner):
            raise fault(self.path, "faces", "points alone", self._graphs_of_points())
        triangles = fan(ptr, corner)
        for text in (*mesh.notes, *_odd(triangles, len(pos))):
            self._note(text)
        faces: Any = torch.from_numpy(triangles)
        if len(triangles) > len(ptr) - 1:
            faces = [part.tolist() for part in np.split(corner, ptr[1:-1])]
        if function.__name__ == "mesh_faces":
            self.files.put(pos=np.add.reduceat(pos[corner], ptr[:-1]) / np.diff(ptr)[:, None])
        elif function.__name__ == "mesh_edges":
            self.files.put(pos=pos[mesh_edge_ends(faces).numpy()].mean(1))
        else:
            self.files.put(pos=pos, faces=triangles)
        takes_size = "num_vertices" in inspect.signature(function).parameters
        return {"faces": faces} | ({"num_vertices": len(pos)} if takes_size else {})

    def _graphs_of_points(self) -> str:
        return f"'knn({self}, k=8)' or 'radius({self}, r=0.1)'"

    def _edges(self) -> Any:
        """Edges; sizes that are not given are those of the largest id, with a note."""
        options = {"duplicates": "error", "num_nodes": None, **self.options}
        duplicates = options.pop("duplicates")
        nodes = options.pop("num_nodes")
        if nodes is not None:
            if {"num_sources", "num_targets"} & set(options):
                raise GraphError(
                    "num_nodes is for sources and targets that are the same nodes; leave it out "
                    "with num_sources or num_targets"
                )
            options |= {"num_sources": nodes, "num_targets": nodes}
        edges = self._read(load_edges, options, also="num_nodes duplicates")
        index = torch.stack((torch.from_numpy(edges.source), torch.from_numpy(edges.target)))
        if edges.ids is not None:
            self._note(f"ids were renumbered 0 .. {len(edges.ids) - 1}, in ascending order")
        return from_edge_index(index, *self._sizes(edges), duplicates=duplicates, name=self.name)

    def _sizes(self, edges: Any) -> tuple[int, int]:
        most = [int(ids.max(initial=-1)) + 1 for ids in (edges.source, edges.target)]
        if edges.num_sources is edges.num_targets is None:
            self._note(
                f"{max(most):,} nodes, by the largest id; num_nodes=N if there are more, "
                "num_sources=S and num_targets=T if sources and targets are different nodes"
            )
            return max(most), max(most)
        if edges.num_sources is None:
            self._note(f"{most[0]:,} sources, by the largest id; num_sources=S if there are more")
        if edges.num_targets is None:
            self._note(f"{most[1]:,} targets, by the largest id; num_targets=T if there are more")
        sides = zip((edges.num_sources, edges.num_targets), most, strict=True)
        num_sources, num_targets = (default if size is None else size for size, default in sides)
        return num_sources, num_targets

    def _note(self, text: str) -> None:
        self.files.notes[f"{self.name}: {text}"] = None


def _load_array(path: str, *, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The numbers of a .npy file: ids, types, scores."""
    suffix(path, (".npy",), "load")
    array = read_array(read(path, max_bytes))
    return array.astype(array.dtype.newbyteorder("="))


def _odd(faces: np.ndarray, num_vertices: int) -> list[str]:
    """Oddities of triangles, none of which has been changed."""
    faces = np.sort(faces, axis=1)
    order = faces[np.lexsort(faces.T)]
    counts = {
        "triangles with a repeated corner": (faces[:, 1:] == faces[:, :-1]).any(1).sum(),
        "triangles that repeat an earlier one": (order[1:] == order[:-1]).all(1).sum(),
        "vertices that belong to no face": (
            np.bincount(faces.ravel(), minlength=num_vertices) == 0
        ).sum(),
    }
    return [f"{text}: {count:,}" for text, count in counts.items() if count]
