"""The words of a shape for columns of files: ``pos`` for x, y, z, ``color`` in [0, 1] for RGB."""

import numpy as np

_GROUPS = (
    ("pos", "x y z"),
    ("pos", "x y"),
    ("normal", "nx ny nz"),
    ("normal", "normal_x normal_y normal_z"),
    ("normal", "nx ny"),  # of a plane
    ("normal", "normal_x normal_y"),
    ("color", "red green blue"),
    ("color", "r g b"),
    ("color", "rf gf bf"),
    ("uv", "s t"),
    ("uv", "u v"),
    ("uv", "texture_u texture_v"),
)


def worded(columns: dict[str, np.ndarray], *, any_case: bool = False) -> dict[str, np.ndarray]:
    """Columns under the words of a shape; what has no word keeps its name and its type."""
    out = dict(columns)
    spelling = {name.lower(): name for name in columns if any_case} | {
        name: name for name in columns
    }
    for word, names in _GROUPS:
        parts = [spelling.get(name, "") for name in names.split()]
        if word not in out and all(parts) and all(part in out for part in parts):
            out[word] = side_by_side([out.pop(part) for part in parts])
    if "label" in out and "y" not in out:
        out["y"] = out.pop("label")
    for word in {"color", "alpha"} & set(out):
        out[word] = unit(out[word])
    return out


def side_by_side(columns: list[np.ndarray]) -> np.ndarray:
    """(N, k) of k columns (N,); in one pass where they lie side by side in one table."""
    first = columns[0]
    size = columns[0].itemsize
    where = [column.__array_interface__["data"][0] for column in columns]
    steps = {(column.dtype, column.strides) for column in columns}
    beside = [at - where[0] for at in where] == [size * i for i in range(len(columns))]
    of_rows = len(steps) == 1 and first.strides[0] >= size * len(columns)
    if not (beside and of_rows and len(first)):
        return np.stack(columns, axis=1)
    if first.strides[0] == size * len(columns):  # the table is nothing but these columns
        return np.ndarray((len(first), len(columns)), first.dtype, first.base, _offset(first))
    row = np.ndarray(
        (len(first),), f"V{size * len(columns)}", first.base, _offset(first), first.strides
    )
    return row.copy().view(first.dtype).reshape(len(first), len(columns))


def _offset(column: np.ndarray) -> int:
    base = column.base
    assert isinstance(base, np.ndarray)
    return column.__array_interface__["data"][0] - base.__array_interface__["data"][0]


def unit(values: np.ndarray) -> np.ndarray:
    """Colours in [0, 1]: unsigned integers over their largest, others over 1, 255 or 65535."""
    if values.dtype.kind == "f" and not (values > 1).any():
        return values
    if values.dtype.kind == "u":
        most = np.iinfo(values.dtype).max
    else:
        largest = values.max(initial=0)
        if largest <= 1:
            most = 1
        elif largest <= 255:
            most = 255
        else:
            most = 65535
    if values.itemsize < 8:
        return np.divide(values, np.float32(most), dtype=np.float32)
    return np.divide(values, np.float32(most), dtype=np.float64)


def levels(values: np.ndarray) -> np.ndarray:
    """Colours as the bytes, or the numbers to 65535, that they exactly are; else as they are."""
    for dtype in (np.uint8, np.uint16):
        steps = np.rint(values * np.iinfo(dtype).max)
        if ((steps >= 0) & (steps <= np.iinfo(dtype).max)).all():
            small = steps.astype(dtype)
            if np.array_equal(unit(small).astype(values.dtype), values):
                return small
    return values


def narrow(values: np.ndarray, *, allow_int: bool) -> np.ndarray:
    """Numbers of a text as int64, float32 or float64, whichever is exact.

    int64 only with ``allow_int`` and where all are whole; float64 where float32 is too coarse.

    It is where the numbers lie further from 0 than 16 times their extent: coordinates of a map.
    """
    are_whole = allow_int and len(values) > 0 and np.array_equal(values, np.rint(values))
    if are_whole and np.abs(values).max() < 2**53:
        return values.astype(np.int64)
    if values.ndim > 1:
        finite = values[np.isfinite(values).all(-1)]
    else:
        finite = values[np.isfinite(values)]
    limit = np.finfo(np.float32).max
    if len(finite):
        extent = np.ptp(finite, axis=0).max()
        if extent > 0:
            limit = min(limit, 16 * extent)
    if np.abs(finite).max(initial=0) > limit:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)
