"""Edges in .npz files: ``edge_index``, and the numbers of nodes."""

import numpy as np

from ._guard import Blob, PathLike, file_name, open_regular
from ._npy import integers, open_archive, read_entries

_SIZES = ("num_sources", "num_targets", "num_nodes")
_WEIGHTS = ("data", "weight", "weights", "edge_weight", "edge_weights", "edge_attr")
Sizes = tuple[int | None, int | None]


def check_names(blob: Blob, names: list[str]) -> None:
    """Refuse arrays without edges among them."""
    if "edge_index" not in names:
        fix = "numpy.savez(path, edge_index=...); of a matrix graphattn.from_scipy(scipy.sparse.load_npz(path))"
        raise blob.fault("edge_index", f"the arrays {names[:8]}"[:120], fix)


def read_npz(path: PathLike, ignore_weights: bool, max_bytes: int) -> tuple[Blob, np.ndarray, np.ndarray, Sizes]:
    """Sources (E,), targets (E,) and (num_sources, num_targets), if the file has them."""
    with open_regular(path, max_bytes) as file:
        blob = Blob(file_name(path), b"", 0)
        archive, names = open_archive(blob.path, file, max_bytes)
        check_names(blob, names)
        weights = [name for name in names if name in _WEIGHTS]
        if weights and not ignore_weights:
            raise blob.fault("edges without weights", f"the array {weights[0]}", "weights='ignore'")
        wanted = ["edge_index", *(name for name in _SIZES if name in names)]
        arrays = read_entries(blob.path, archive, wanted)
    pair = integers(blob, arrays["edge_index"], "edge_index")
    if pair.ndim != 2 or len(pair) != 2:
        raise blob.fault("edge_index of shape (2, E)", f"{pair.shape}", "edge_index.T if it is (E, 2)")
    size = {name: _scalar(blob, arrays[name], name) for name in _SIZES if name in arrays}
    both = size.get("num_nodes")
    return blob, pair[0], pair[1], (size.get("num_sources", both), size.get("num_targets", both))


def _scalar(blob: Blob, array: np.ndarray, name: str) -> int:
    number = integers(blob, array, name)
    if number.size != 1:
        raise blob.fault("one number", f"shape {number.shape}", "save it as an integer", at=name)
    return int(number.reshape(-1)[0])
