"""Edges from text, .npy and .npz files."""

import re
from typing import Literal, NamedTuple

import numpy as np

from ...errors import LoaderError
from ...io.arrays import integers, open_archive, read_array, read_entries
from ...io.numbers import clean, keep, rows, tokens, unseparated, word
from ...io.reading import MAX_BYTES, Blob, PathLike, file_name, open_regular, read, show, suffix

TEXT = (".csv", ".txt", ".tsv", ".edges")
ENDINGS = (*TEXT, ".npz", ".npy")

_NUMBER = re.compile(rb"[+-]?[\d.].*")
_SOURCE = {b"source", b"src", b"from", b"sender"}
_TARGET = {b"target", b"tgt", b"dst", b"dest", b"to", b"receiver"}
_SIZES = ("num_sources", "num_targets", "num_nodes")
_WEIGHTS = ("data", "weight", "weights", "edge_weight", "edge_weights", "edge_attr")
Sizes = tuple[int | None, int | None]


class EdgeList(NamedTuple):
    """Edges source -> target in the order of the file; a repeated edge stays repeated."""

    source: np.ndarray  # (E,) int64
    target: np.ndarray  # (E,) int64
    num_sources: int | None  # None: not given by the file or the caller
    num_targets: int | None
    ids: np.ndarray | None = None  # (N,) int64 ids of the file, when relabel=True


def load_edges(
    path: PathLike,
    *,
    num_sources: int | None = None,
    num_targets: int | None = None,
    header: bool = False,
    weights: Literal["refuse", "ignore"] = "refuse",
    relabel: bool = False,
    max_bytes: int = MAX_BYTES,
) -> EdgeList:
    r"""Read a list of edges source -> target: target may read source.

    Args:
        path: One of

            * .csv, .txt, .tsv, .edges: ``source target`` on each line, separated by blanks, tabs or
              a comma; comments after ``#`` or ``%``.
            * .npy: integers (2, E), row 0 sources, row 1 targets.
            * .npz: ``edge_index`` (2, E), with ``num_sources``, ``num_targets`` or ``num_nodes`` if
              present. Other arrays are ignored.
        num_sources: Number of sources; ids must be below it.
        num_targets: Number of targets; ids must be below it.
        header: True if the first line of a text file is a row of names; otherwise such a row is an
            error.
        weights: A third column or an array of weights is an error, or is left out with
            ``"ignore"``.
        relabel: Renumber the ids 0 .. N - 1 in ascending order (sources and targets are one set,
            nodes without an edge get no number); ``ids`` has the old ones. An error if the sizes
            are known. Without it, ids far beyond the number of edges (``max >= 16 E + 65536``) are
            an error unless the sizes are given, since almost all nodes would be isolated.
        max_bytes: Refuse larger files.

    Returns:
        :class:`EdgeList`: ``source`` (E,), ``target`` (E,), ``num_sources``, ``num_targets``, ``ids``.

    Raises:
        LoaderError: If the file is refused; the message names the line or the edge.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "graph.csv"
        >>> _ = path.write_text("from,to,cost\n10,20,0.5\n20,30,0.25\n")
        >>> edges = load_edges(path, header=True, weights="ignore", relabel=True)
        >>> edges.source.tolist(), edges.target.tolist(), edges.ids.tolist()
        ([0, 1], [1, 2], [10, 20, 30])
    """
    kind = suffix(path, ENDINGS, "load_edges")
    if header and kind not in TEXT:
        raise LoaderError(f"header: expected a text file, got {kind}. Try: header=False.")
    blob, source, target, lines, sizes = _read(path, kind, header, weights == "ignore", max_bytes)
    sizes = _sizes(blob, sizes, (num_sources, num_targets))
    if relabel:
        if sizes != (None, None):
            got = f"num_sources={sizes[0]}, num_targets={sizes[1]}"
            raise blob.fault("ids of unknown range, for relabel=True", got, "only one of both")
        ids, place = np.unique(np.stack((source, target)), return_inverse=True)
        source, target = place.reshape(2, -1)
        return EdgeList(source, target, len(ids), len(ids), ids)
    _check_range(blob, "source", source, sizes[0], lines)
    _check_range(blob, "target", target, sizes[1], lines)
    return EdgeList(source, target, *sizes)


def _read(
    path: PathLike, kind: str, header: bool, ignore_weights: bool, max_bytes: int
) -> tuple[Blob, np.ndarray, np.ndarray, np.ndarray | None, Sizes]:
    """Sources, targets, the byte offset of each line of a text file, and the sizes in the file."""
    if kind == ".npz":
        blob, source, target, sizes = read_npz(path, ignore_weights, max_bytes)
        return blob, source, target, None, sizes
    blob = read(path, max_bytes)
    if kind in TEXT:
        return *read_text(blob, header, ignore_weights), (None, None)
    source, target = _array(blob)
    return blob, source, target, None, (None, None)


def _array(blob: Blob) -> tuple[np.ndarray, np.ndarray]:
    source, target = _pair(blob, read_array(blob))
    return source, target


def _pair(blob: Blob, array: np.ndarray, name: str = "") -> np.ndarray:
    """Sources and targets, (2, E)."""
    if array.shape[:-1] != (2,):
        got = f"shape {array.shape} of {array.dtype}"
        raise blob.fault(
            "integers of shape (2, E)", got, f"{name or 'array'}.T if it is (E, 2)", at=name
        )
    return integers(blob, array, name)


def _check_range(
    blob: Blob, name: str, index: np.ndarray, size: int | None, lines: np.ndarray | None
) -> None:
    """Raise for the first id beyond ``size``, or far beyond the number of edges if it is None."""
    if size is None:
        limit = 16 * len(index) + 65536
    else:
        limit = size
    bad = np.flatnonzero(index >= limit)
    if not len(bad):
        return
    edge = int(bad[0])
    if size is None:
        expected = f"ids in [0, {limit}) for {len(index)} edges"
        fix = f"relabel=True, or num_{name}s=..."
    else:
        expected = f"ids in [0, {size}) ({size} {name}s)"
        fix = "check which column is the source"
    if lines is None:
        offset = None
    else:
        offset = int(lines[edge])
    raise blob.fault(
        expected, str(index[edge]), fix, offset=offset, at=f"edge {edge}: {name} {index[edge]}"
    )


def _sizes(blob: Blob, file: Sizes, caller: Sizes) -> Sizes:
    """The sizes from the file or the caller, which must agree."""
    out = []
    for name, from_file, from_caller in zip(
        ("num_sources", "num_targets"), file, caller, strict=True
    ):
        if from_caller is None:
            out.append(from_file)
            continue
        if from_file is None:
            expected = f"{name} from 0"
        else:
            expected = f"{name}={from_file}, as in the file"
        if from_caller < 0 or from_file not in (None, from_caller):
            raise blob.fault(expected, f"{name}={from_caller}", f"leave {name} out")
        out.append(from_caller)
    return out[0], out[1]


def read_text(
    blob: Blob, header: bool, ignore_weights: bool
) -> tuple[Blob, np.ndarray, np.ndarray, np.ndarray]:
    """Sources (E,), targets (E,) and the byte offset (E,) of each line."""
    blob = clean(blob, "#%")
    text = unseparated(blob)
    byte = np.frombuffer(text + b" ", np.uint8)
    start, ptr = tokens(byte)
    first = [word(text, offset) for offset in start[: ptr[1]][:2].tolist()]
    has_names = not any(_NUMBER.fullmatch(item) for item in first)
    if has_names != header:
        raise blob.fault(
            "a row of names with header=True alone, else two integers",
            show(b" ".join(first)),
            f"header={has_names}",
            offset=int(start[0]),
        )
    if header:
        names = [item.strip(b"\"'").lower() for item in first]
        if len(names) == 2 and names[0] in _TARGET and names[1] in _SOURCE:
            fix = "swap the columns, or write the row of names as a comment if it is wrong"
            raise blob.fault("the source first", show(b" ".join(first)), fix, offset=int(start[0]))
        ptr = ptr[1:]
    begin = start[ptr[:-1]]
    width = np.diff(ptr)
    if not len(begin):
        raise blob.fault("edges", "an empty list: only a row of names", "check how it was written")
    bad = np.flatnonzero((width < 2) | ((width > 2) & (not ignore_weights)))
    if len(bad):
        row = int(bad[0])
        fix = "complete the line, or weights='ignore', which leaves the others out"
        raise blob.fault(
            "2 columns, source and target", f"{width[row]}", fix, offset=int(begin[row])
        )
    # the start of the third column or of the next line
    end = np.append(start, len(byte))[ptr[:-1] + 2]
    table = rows(blob, keep(byte, begin, end)[:-1].tobytes(), np.int64)
    pair = table.value.reshape(-1, 2)
    bad = np.flatnonzero((pair < 0).any(1))
    if len(bad):
        row = int(bad[0])
        raise blob.fault(
            "ids from 0", str(pair[row].min()), "renumber", offset=int(begin[row]), at=f"edge {row}"
        )
    return blob, pair[:, 0].copy(), pair[:, 1].copy(), begin


def check_names(blob: Blob, names: list[str]) -> None:
    """Refuse arrays without edges among them."""
    if "edge_index" not in names:
        fix = (
            "numpy.savez(path, edge_index=...); of a matrix "
            "graphattn.from_scipy(scipy.sparse.load_npz(path))"
        )
        raise blob.fault("edge_index", f"the arrays {names[:8]}"[:120], fix)


def read_npz(
    path: PathLike, ignore_weights: bool, max_bytes: int
) -> tuple[Blob, np.ndarray, np.ndarray, Sizes]:
    """Sources (E,), targets (E,) and (num_sources, num_targets), if the file has them."""
    with open_regular(path, max_bytes) as file:
        blob = Blob(file_name(path), b"", 0)
        archive, names = open_archive(blob.path, file, max_bytes)
        check_names(blob, names)
        weights = [name for name in names if name in _WEIGHTS]
        if weights and not ignore_weights:
            raise blob.fault("edges without weights", f"the array {weights[0]}", "weights='ignore'")
        array_names = ["edge_index", *(name for name in _SIZES if name in names)]
        arrays = read_entries(blob.path, archive, array_names)
    pair = _pair(blob, arrays["edge_index"], "edge_index")
    size = {name: integers(blob, arrays[name], name).item() for name in _SIZES if name in arrays}
    num_nodes = size.get("num_nodes")
    return (
        blob,
        pair[0],
        pair[1],
        (size.get("num_sources", num_nodes), size.get("num_targets", num_nodes)),
    )
