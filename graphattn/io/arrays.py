"""Arrays of .npy and .npz files: headers must match the bytes that follow; pickles are refused."""

import io
import math
import os
import warnings
import zipfile
from collections.abc import Collection
from typing import BinaryIO, Literal, NamedTuple, NoReturn

import numpy as np

from .reading import Blob, PathLike, read

HEAD_BYTES = 1 << 16  # more than any header numpy accepts
_ENTRIES = 64  # arrays in one .npz
_FREE = 64 << 20  # an .npz may unpack to 64 MiB
_RATIO = 200  # or to 200 times its size


class ArrayHeader(NamedTuple):
    """The header of a .npy file."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    body: int  # byte at which the numbers begin

    @property
    def order(self) -> Literal["C", "F"]:
        """The order of the numbers, as numpy names it."""
        if self.fortran:
            return "F"
        return "C"


def read_header(blob: Blob, at: str = "") -> ArrayHeader:
    """Shape and dtype, checked against the bytes that follow; dtypes of objects are refused."""
    stream = io.BytesIO(blob.data[:HEAD_BYTES])
    try:
        version = np.lib.format.read_magic(stream)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header of Python 2
            shape, fortran, dtype = reader(stream)
    except Exception as error:  # numpy evaluates the header: random bytes may raise any error
        got = f"{type(error).__name__}: {str(error)[:60]!r}"
        raise blob.fault(
            "a .npy header of version 1 or 2", got, "save it again with numpy.save", at=at
        ) from None
    if dtype.kind not in "biufcSU" or not dtype.itemsize:
        fix = (
            "save plain numbers (objects are pickles, which run code when they are read, so "
            "none is ever read here)"
        )
        raise blob.fault("an array of numbers", f"dtype {str(dtype)[:60]}", fix, at=at)
    need = math.prod(shape) * dtype.itemsize
    left = blob.size - stream.tell()
    if need != left or min(shape, default=0) < 0:
        expected = f"{need} bytes of numbers for shape {shape} of {dtype}"
        raise blob.fault(expected[:200], f"{left}", "get the whole file", at=at)
    return ArrayHeader(shape, fortran, dtype, stream.tell())


def read_array(blob: Blob, at: str = "") -> np.ndarray:
    """The array, read-only, sharing the bytes of ``blob``."""
    head = read_header(blob, at)
    count = math.prod(head.shape)
    try:
        if count == 0:  # frombuffer refuses empty buffers
            return np.zeros(head.shape, head.dtype)
        flat = np.frombuffer(blob.data, head.dtype, count, head.body)
        return flat.reshape(head.shape, order=head.order)
    except ValueError:  # too many dimensions, or (0, 2**62, 2**62)
        got = str(head.shape)[:60]
        raise blob.fault(
            "a shape that numpy can hold", got, "save it again with numpy.save", at=at
        ) from None


def map_array(path: PathLike) -> np.ndarray:
    """The array of a .npy file, mapped and not read."""
    blob = read(path, 1 << 40, HEAD_BYTES)
    head = read_header(blob)
    return np.memmap(blob.path, head.dtype, "r", head.body, head.shape, head.order)


def integers(blob: Blob, array: np.ndarray, at: str = "") -> np.ndarray:
    """Numbers as int64, refused unless they are integers from 0 to 2**63 - 1."""
    if array.dtype.kind not in "iu":
        raise blob.fault("integers", f"dtype {array.dtype}", "array.astype(numpy.int64)", at=at)
    for end in (array.min(initial=0), array.max(initial=0)):
        if not 0 <= int(end) < 2**63:
            raise blob.fault("ids from 0 to 2**63 - 1", str(end), "renumber from 0", at=at)
    return array.astype(np.int64)


def open_archive(path: str, file: BinaryIO, max_bytes: int) -> tuple[zipfile.ZipFile, list[str]]:
    """The archive and the names of its arrays."""
    blob = Blob(path, b"", 0)
    try:
        archive = zipfile.ZipFile(file)
        entries = archive.infolist()
    except Exception as error:  # zipfile reads its directory with struct: many kinds of error
        _broken(blob, error)
    size = os.fstat(file.fileno()).st_size
    budget = min(max_bytes, max(_FREE, _RATIO * size))
    total = sum(entry.file_size for entry in entries)
    if len(entries) > _ENTRIES or total > budget:
        got = f"{len(entries)} arrays of {total} bytes in a file of {size}"
        fix = "save edge_index alone, with numpy.savez, or pass max_bytes=..., if it is meant"
        raise blob.fault(f"at most {_ENTRIES} arrays of {budget} bytes", got, fix)
    names = [entry.filename.removesuffix(".npy") for entry in entries]
    if len(set(names)) < len(names):
        raise blob.fault(
            "arrays with different names", str(sorted(names))[:80], "save it again with numpy.savez"
        )
    return archive, names


def read_entries(
    path: str, archive: zipfile.ZipFile, names: Collection[str]
) -> dict[str, np.ndarray]:
    """The named arrays; each is unpacked up to the size in its entry."""
    out = {}
    for name in names:
        try:
            entry = archive.getinfo(f"{name}.npy")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # not bounded when unpacked
                raise NotImplementedError(f"compression method {entry.compress_type}")
            with archive.open(entry) as stream:
                data = stream.read(entry.file_size + 1)
            if len(data) != entry.file_size:
                raise EOFError(f"{entry.filename} does not have {entry.file_size} bytes")
        except Exception as error:  # a missing entry, a broken stream, a wrong checksum, a password
            _broken(Blob(path, b"", 0), error)
        out[name] = read_array(Blob(path, data, len(data)), f"array {name}")
    return out


def _broken(blob: Blob, error: Exception) -> NoReturn:
    got = f"{type(error).__name__}: {str(error)[:80]!r}"
    raise blob.fault("a .npz file", got, "save it again with numpy.savez") from None
