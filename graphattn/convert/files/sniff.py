"""The kind of a file of edges, or of a file of an array, from its ending and its header."""

from typing import Literal

from ...io.arrays import HEAD_BYTES, open_archive, read_header
from ...io.reading import MAX_BYTES, Blob, PathLike, file_name, open_regular, read, suffix
from .edges import ENDINGS, check_names


def sniff(path: PathLike, *, max_bytes: int = MAX_BYTES) -> Literal["points", "edges", "mask"]:
    """The loader for this file, from its name and header.

    A .npy file is a mask if it is bool (T, S), edges if it is integer (2, E), points if it is float
    (N, d); a .npz file is edges, and so is text.

    Raises:
        LoaderError: If no loader reads it.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "mask.npy"
        >>> np.save(path, np.ones((3, 5), dtype=bool))
        >>> sniff(path)
        'mask'
    """
    kind = suffix(path, ENDINGS, "sniff")
    if kind == ".npz":
        with open_regular(path, max_bytes) as file:
            check_names(
                Blob(file_name(path), b"", 0), open_archive(file_name(path), file, max_bytes)[1]
            )
        return "edges"
    blob = read(path, max_bytes, head=HEAD_BYTES)
    if kind != ".npy":
        return "edges"
    shape, _, dtype, _ = read_header(blob)
    match dtype.kind, shape:
        case "b", (_, _):
            return "mask"
        case "i" | "u", (2, _):
            return "edges"
        case "f", (_, _):
            return "points"
    expected = "bool (T, S), integers (2, E) or floats (N, d)"
    if dtype.kind != "b":
        mask = "array.astype(bool) if it is a mask"
    else:
        mask = "one mask, with a row for each target"
    if shape[1:] == (2,):
        fix = "array.T if it is (E, 2)"
    else:
        fix = mask
    raise blob.fault(
        expected, f"shape {shape} of {dtype}"[:120], f"{fix}; else save it as one of these"
    )
