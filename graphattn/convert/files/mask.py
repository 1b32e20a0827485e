"""Boolean masks from .npy files."""

import numpy as np

from ...io.arrays import read_array
from ...io.reading import MAX_BYTES, PathLike, read, suffix


def load_mask(path: PathLike, *, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """Read a mask; ``mask[t, s]`` True means that target t may read source s.

    Args:
        path: A .npy file with a bool array (T, S): a row for each target.
        max_bytes: Refuse larger files.

    Returns:
        (T, S) bool.

    Raises:
        LoaderError: If it is not a bool array of two dimensions; numbers are not converted.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "causal.npy"
        >>> np.save(path, np.tri(3, dtype=bool))
        >>> print(load_mask(path).astype(int))
        [[1 0 0]
         [1 1 0]
         [1 1 1]]
    """
    suffix(path, (".npy",), "load_mask")
    blob = read(path, max_bytes)
    array = read_array(blob)
    if array.dtype != np.bool_ or array.ndim != 2:
        raise blob.fault(
            "bool of shape (T, S)",
            f"shape {array.shape} of {array.dtype}",
            "save array.astype(bool), True where target (row) t may read source (column) s",
        )
    if (array.view(np.uint8) > 1).any():
        raise blob.fault(
            "bytes 0 and 1", f"{array.view(np.uint8).max()}", "save it again with numpy.save"
        )
    return array.copy(order="C")
