"""Edges in .npz files: plain arrays, or a scipy sparse matrix whose row is the target."""

import numpy as np

from ._guard import Blob, PathLike, file_name, open_regular
from ._npy import integers, open_archive, read_entries

_SIZES = ("num_sources", "num_targets", "num_nodes")
_WEIGHTS = ("data", "weight", "weights", "edge_weight", "edge_weights", "edge_attr")
_LAYOUTS: dict[str, set[str]] = {
    "scipy": {"format", "shape"},
    "pair": {"source", "target"},
    "edge_index": {"edge_index"},
}
Sizes = tuple[int | None, int | None]


def layout(blob: Blob, names: list[str]) -> str:
    """The layout of these arrays."""
    for kind, needed in _LAYOUTS.items():
        if set(needed) <= set(names):
            return kind
    expected = "edge_index, or source and target, or a matrix of scipy.sparse.save_npz"
    raise blob.fault(expected, f"the arrays {names[:8]}"[:120], "numpy.savez(path, edge_index=...)")


def read_npz(path: PathLike, ignore_weights: bool, max_bytes: int) -> tuple[Blob, np.ndarray, np.ndarray, Sizes]:
    """Sources (E,), targets (E,) and (num_sources, num_targets), if the file has them."""
    with open_regular(path, max_bytes) as file:
        blob = Blob(file_name(path), b"", 0)
        archive, names = open_archive(blob.path, file, max_bytes)
        kind = layout(blob, names)
        if kind == "scipy":
            wanted: list[str] = [
                name for name in ("format", "shape", "data", "row", "col", "indices", "indptr") if name in names
            ]
            source, target, sizes = _matrix(blob, read_entries(blob.path, archive, wanted), ignore_weights)
            return blob, source, target, sizes
        weights = [name for name in names if name in _WEIGHTS]
        if weights and not ignore_weights:
            raise blob.fault("edges without weights", f"the array {weights[0]}", "weights='ignore'")
        wanted = [*_LAYOUTS[kind], *(name for name in _SIZES if name in names)]
        arrays = read_entries(blob.path, archive, wanted)
    if kind == "pair":
        source, target = (integers(blob, arrays[name], name) for name in ("source", "target"))
        if source.ndim != 1 or source.shape != target.shape:
            got = f"shapes {source.shape} and {target.shape}"
            raise blob.fault("source and target of one shape (E,)", got, "save both with one number for each edge")
    else:
        pair = integers(blob, arrays["edge_index"], "edge_index")
        if pair.ndim != 2 or len(pair) != 2:
            raise blob.fault("edge_index of shape (2, E)", f"{pair.shape}", "edge_index.T if it is (E, 2)")
        source, target = pair
    size = {name: _scalar(blob, arrays[name], name) for name in _SIZES if name in arrays}
    both = size.get("num_nodes")
    return blob, source, target, (size.get("num_sources", both), size.get("num_targets", both))


def _scalar(blob: Blob, array: np.ndarray, name: str) -> int:
    number = integers(blob, array, name)
    if number.size != 1:
        raise blob.fault("one number", f"shape {number.shape}", "save it as an integer", at=name)
    return int(number.reshape(-1)[0])


def _matrix(blob: Blob, arrays: dict[str, np.ndarray], ignore_weights: bool) -> tuple[np.ndarray, np.ndarray, Sizes]:
    """The edges of a csr, csc or coo matrix: row is the target, column the source."""
    kind = str(arrays["format"].reshape(-1)[:1].astype("U8").tolist()[:1])[2:-2]
    shape = integers(blob, arrays["shape"], "shape")
    fields = {"coo": ("row", "col"), "csr": ("indptr", "indices"), "csc": ("indptr", "indices")}.get(kind)
    if fields is None or shape.shape != (2,) or not {*fields, "data"} <= set(arrays):
        got = f"format {kind!r}, shape {shape.tolist()[:4]}, arrays {sorted(arrays)}"[:120]
        raise blob.fault("a csr, csc or coo matrix of 2 dimensions", got, "save matrix.tocoo()")
    major, minor = (integers(blob, arrays[name], name) for name in fields)
    if kind != "coo":
        rows = int(shape[0 if kind == "csr" else 1])
        if major.shape != (rows + 1,) or major[0] != 0 or (np.diff(major) < 0).any() or major[-1] != minor.size:
            got = f"{major.size} numbers up to {major.max(initial=0)} for {minor.size} entries"
            raise blob.fault(f"indptr of {rows + 1} ascending numbers from 0 to the end", got, "save it again")
        major = np.repeat(np.arange(rows), np.diff(major))
    data = arrays["data"]
    if not (major.ndim == minor.ndim == data.ndim == 1 and len(major) == len(minor) == len(data)):
        got = f"shapes {major.shape}, {minor.shape}, {data.shape}"
        raise blob.fault("as many rows as columns and entries", got, "save it again with scipy.sparse.save_npz")
    if not ignore_weights and data.dtype.kind in "biufc" and (data != 1).any():
        other = data[data != 1][0]
        raise blob.fault("entries that are all 1", str(other), "weights='ignore', or save matrix.astype(bool)")
    target, source = (minor, major) if kind == "csc" else (major, minor)
    return source, target, (int(shape[1]), int(shape[0]))
