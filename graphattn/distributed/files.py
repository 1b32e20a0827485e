"""Graphs larger than memory: files of the edges into parts of the targets."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import whole
from ..errors import GraphError, OptionError, singular
from ..graph import AttentionGraph, need_graph
from ..graph.modes import Memo
from ..graph.runs import hashed
from ..graph.sort import offsets
from ..io.arrays import open_archive, read_entries
from ..io.reading import PathLike, fault, open_regular, read
from ..io.writing import replace_file, save_page
from ..plans.edge_tensors import EdgeTensors
from .own import OwnEdges, edges_into, local_edges
from .partition import partition_of

_INDEX = "edges.json"
_ARRAYS = ("target", "degree", "source", "edge")


class Part(EdgeTensors):
    """Some targets of a graph and the edges into them, over the sources that these read.

    ``layer(x[part.targets], part, context=x[part.sources])`` gives the outputs of its targets, bit
    for bit those of the whole graph on backend ``edges`` from the same queries, keys and values.
    Biases and edge features are those of its edges, ``bias[part.edges]``; dropout of one seed drops
    the edges that it drops in the whole graph.

    Attributes:
        targets: Their numbers in the whole graph, int64 (T_p,), ascending.
        sources: The sources that they read, int64 (S_p,), ascending, each once.
        edges: The numbers of its edges in the whole graph's order, int64 (E_p,), ascending.
    """

    name = "Part"

    def __init__(self, targets: Tensor, own_edges: OwnEdges) -> None:
        self.targets = targets
        self._memo = Memo()
        self.sources, column = torch.unique(own_edges.source, return_inverse=True)
        self.edges, local = local_edges(
            own_edges, column, self.sources.numel(), torch.device("cpu")
        )
        self._by_target = local._by_target
        self._by_source = local._by_source
        self._named = local._named

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """The numbers of targets and of sources in the whole graph."""
        return self.targets, self.sources


class EdgeFiles:
    """A graph in a folder of :func:`save_parts` or :func:`knn_parts`, iterated part by part.

    :func:`shard` takes it as its graph, and each process reads the parts that it owns.

    Attributes:
        num_targets: T; ``num_sources`` S, ``num_edges`` E.

    Raises:
        LoaderError: If the folder holds no graph, or not the whole of it; a part, if its files have
            changed, or the parts do not hold each target once and all edges.
    """

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder)
        path = self.folder / _INDEX
        if not path.is_file():
            raise fault(path, "the edges of a graph", "no such file", "save_parts")
        try:
            index = json.loads(bytes(read(path).data))
            sizes = (index["targets"], index["sources"], index["edges"])
            self.num_targets, self.num_sources, self.num_edges = (
                whole(size, "a size", 0) for size in sizes
            )
            self.hashes = [whole(part, "a hash") for part in index["parts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise fault(
                path,
                "what save_parts writes",
                f"{type(error).__name__}: {error}",
                "save_parts again",
            ) from None
        self._is_checked = False

    def __len__(self) -> int:
        return len(self.hashes)

    def __iter__(self) -> Iterator[Part]:
        self._check()
        return (self[part] for part in range(len(self)))

    def __getitem__(self, part: int) -> Part:
        part = range(len(self))[part]
        return Part(*self.read(part))

    def read(self, part: int) -> tuple[Tensor, OwnEdges]:
        """Targets of a part, and the edges into them."""
        self._check()
        target, degree, source, edge = self._arrays(part, *_ARRAYS)
        fits = (
            degree.numel() == target.numel() and int(degree.sum()) == source.numel() == edge.numel()
        )
        fits = fits and _are_below(source, self.num_sources) and _are_below(edge, self.num_edges)
        if not fits or _hash(target, degree, source, edge) != self.hashes[part]:
            raise fault(
                self.path(part), "the edges that were written", "others", "save_parts again"
            )
        return target, OwnEdges(offsets(degree), source, edge)

    def partition(self, processes: int) -> Tensor:
        """The process of each target, int32 (T,), if each owns consecutive parts."""
        self._check()
        owner = torch.empty(self.num_targets, dtype=torch.int32)
        for part in range(len(self)):
            owner[self._arrays(part, "target")[0]] = part * processes // len(self)
        return owner

    def into(self, process: int, processes: int) -> OwnEdges:
        """The edges into the targets that a process owns by :meth:`partition`."""
        parts = [
            self.read(part) for part in range(len(self)) if part * processes // len(self) == process
        ]
        if parts:
            targets = torch.cat([target for target, _ in parts])
        else:
            targets = torch.empty(0, dtype=torch.int64)
        edges = [own_edges for _, own_edges in parts] or [
            OwnEdges(torch.zeros(1, dtype=torch.int64), targets, targets)
        ]
        ptr = offsets(torch.cat([own_edges.ptr.diff() for own_edges in edges]))
        return OwnEdges(
            ptr,
            torch.cat([own_edges.source for own_edges in edges]),
            torch.cat([own_edges.edge for own_edges in edges]),
        ).rows(torch.argsort(targets))

    def __repr__(self) -> str:
        sizes = f"{self.num_sources} sources -> {self.num_targets} targets, {self.num_edges} edges"
        return singular(f"EdgeFiles({sizes}, in {len(self)} parts)")

    def path(self, part: int) -> Path:
        """The file of a part, .npz."""
        return _path(self.folder, part)

    def _check(self) -> None:
        """Refuse, at the first use, an index in which a target is not in exactly one part."""
        if self._is_checked:
            return
        targets = edges = 0
        for part in range(len(self)):
            (degree,) = self._arrays(part, "degree")
            targets += degree.numel()
            edges += int(degree.sum())
        # as many as the parts have: an index may name more than fit into memory
        is_seen = torch.zeros(targets, dtype=torch.bool)
        for part in range(len(self)):
            (target,) = self._arrays(part, "target")
            is_seen[target[(target >= 0) & (target < targets)]] = True
        if (targets, edges, bool(is_seen.all())) != (self.num_targets, self.num_edges, True):
            raise fault(
                self.folder / _INDEX,
                f"each of {self.num_targets} targets in one part, once, and {self.num_edges} edges",
                f"{int(is_seen.sum())} targets in {targets} places, and {edges} edges",
                "save_parts again",
            )
        self._is_checked = True

    def _arrays(self, part: int, *names: str) -> list[Tensor]:
        path = self.path(part)
        most = 1 << 40
        with open_regular(path, most) as file:
            arrays = read_entries(str(path), open_archive(str(path), file, most)[0], names)
        return [torch.from_numpy(array.astype(np.int64)) for array in arrays.values()]


def save_parts(
    graph: AttentionGraph,
    folder: PathLike,
    parts: int,
    partition: Any = "contiguous",
    *,
    pos: Any = None,
) -> EdgeFiles:
    """Write a graph into a folder in parts of its targets, listing a rule one part at a time.

    Args:
        graph: Any graph.
        folder: A new or empty folder.
        parts: Number of parts.
        partition: "contiguous", "rcb" of ``pos`` (T, d), or the part of each target, as in
            :func:`shard`.
        pos: Coordinates for "rcb".

    Raises:
        OptionError: If the partition does not fit the graph, or the folder is not empty.
        LoaderError: If a file cannot be written.

    Example:
        >>> import tempfile, torch, graphattn as ga
        >>> graph, x = ga.graphs.sliding_window(50, 5, causal=True), torch.randn(50, 2, 4)
        >>> whole, y = ga.attention(x, x, x, graph, backend="edges"), torch.empty_like(x)
        >>> for part in ga.distributed.save_parts(graph, tempfile.mkdtemp(), 3):
        ...     y[part.targets] = ga.attention(x[part.targets], x[part.sources], x[part.sources], part)
        >>> torch.equal(y, whole)
        True
    """
    need_graph(graph, "save_parts")
    parts = whole(parts, "parts", 1, below=10**5)
    owner = partition_of(partition, graph.num_targets, parts, pos, grid=graph.edges.grid)

    def of_parts() -> Iterator[tuple[Tensor, OwnEdges]]:
        for part in range(parts):
            targets = torch.nonzero(owner == part).flatten()
            yield targets, edges_into(graph, targets).numbered()

    return write(empty_folder(folder), (graph.num_targets, graph.num_sources), of_parts())


def write(
    path: Path, sizes: tuple[int, int], parts: Iterable[tuple[Tensor, OwnEdges]]
) -> EdgeFiles:
    """Write targets and their edges; the index comes last, so that no partial folder is a graph."""
    hashes = []
    edges = 0
    for part, (targets, own_edges) in enumerate(parts):
        degree = own_edges.ptr.diff()
        hashes.append(_hash(targets, degree, own_edges.source, own_edges.edge))
        edges += own_edges.source.numel()
        arrays = {
            name: _small(x)
            for name, x in zip(
                _ARRAYS, (targets, degree, own_edges.source, own_edges.edge), strict=True
            )
        }
        replace_file(_path(path, part), partial(np.savez, **arrays))  # type: ignore[arg-type]
    index = {"targets": sizes[0], "sources": sizes[1], "edges": edges, "parts": hashes}
    save_page(path / _INDEX, json.dumps(index))
    return EdgeFiles(path)


def empty_folder(folder: PathLike) -> Path:
    """A folder that is made, or empty."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not any(path.iterdir()):
            return path
    except OSError as error:
        raise OptionError(
            f"folder must be one that can be made, got {path}: {error.strerror}"
        ) from None
    raise OptionError(f"folder must be new or empty, got {path}, which holds files; pass another")


def refuse_listed(graph: EdgeFiles, partition: Any, pos: Any, source_partition: Any) -> None:
    """Refuse arguments of :func:`shard` that make another partition than that of the files."""
    if partition != "contiguous" or pos is not None or source_partition is not None:
        raise OptionError(
            "partition, pos and source_partition must be left out: edges in files have a partition"
        )
    if graph.num_targets != graph.num_sources:
        raise GraphError(
            f"edges in files are shared if sources and targets are the same nodes, got {graph!r}"
        )


def _are_below(numbers: Tensor, bound: int) -> bool:
    return not numbers.numel() or 0 <= int(numbers.min()) <= int(numbers.max()) < bound


def _hash(*arrays: Tensor) -> int:
    return hashed(torch.cat(arrays))


def _path(folder: Path, part: int) -> Path:
    return folder / f"part_{part:05}.npz"


def _small(x: Tensor) -> np.ndarray:
    """Numbers as int32 if all fit, else int64."""
    if x.numel() and int(x.max()) >= 2**31:
        return x.numpy().astype(np.int64)
    return x.numpy().astype(np.int32)
