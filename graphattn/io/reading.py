"""One regular file, opened without blocking, read once, within a budget; the errors of loaders.

No name is trusted: a FIFO, a device, a directory or a loop of links is refused before it is opened,
and no reader opens a second file (an OBJ's ``mtllib`` is ignored).
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from ..errors import LoaderError

MAX_BYTES = 1 << 30  # 1 GiB; every loader's max_bytes= raises it
PathLike = str | os.PathLike[str]

_MAGIC = {
    b"\x1f\x8b": "a gzip file",
    b"\x1f\x9d": "a compress (.Z) file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\x04\x22\x4d\x18": "an lz4 file",
    b"7z\xbc\xaf": "a 7z archive",
    b"PK\x03\x04": "a zip archive",
    b"Rar!": "a rar archive",
    **{b"\x80" + bytes([version]): "a pickle" for version in range(2, 6)},
}
_UNPACK = (
    "unpack it first: a compressed file is never expanded here, because it can expand without bound"
)
_PICKLE = (
    "re-save it as .npz or text: a pickle runs code when it is read, so none is ever read here"
)
_REFUSED = {
    **dict.fromkeys(
        (".gz", ".tgz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".7z", ".rar", ".tar", ".z"), _UNPACK
    ),
    **dict.fromkeys((".pkl", ".pickle", ".gpickle", ".pt", ".pth"), _PICKLE),
    ".graphml": "write networkx.write_edgelist(G, path, data=False): XML can expand without bound",
}


@dataclass(frozen=True)
class Blob:
    """The bytes of one file, and errors at a place in it."""

    path: str
    data: bytes
    size: int  # bytes on disk; more than len(data) when only the head was read

    def fault(
        self, expected: str, got: str, fix: str, *, offset: int | None = None, at: str = ""
    ) -> LoaderError:
        """The error at the line of ``offset`` (bytes); ``at`` is a vertex, face or edge."""
        line = ""
        if offset is not None:
            line = f"line {self.line(offset)}"
        where = ", ".join(part for part in (self.path, line, _short(at)) if part)
        return fault(where, _short(expected), _short(got), fix)

    def line(self, offset: int) -> int:
        """The number of the line of a byte, from 1."""
        return self.data.count(10, 0, int(offset)) + 1


def fault(where: object, expected: str, got: object, fix: str) -> LoaderError:
    """The error for a file, or a place in it."""
    return LoaderError(f"{where}: expected {expected}, got {got}. Try: {fix}.")


def _short(text: str) -> str:
    """Text from a file, which may be a megabyte, cut to a readable length."""
    if len(text) <= 300:
        return text
    return f"{text[:300]}..."


def show(text: bytes) -> str:
    """A short, printable quotation of ``text``."""
    quoted = ascii(text[:40].decode("latin-1"))
    if len(text) > 40:
        return f"{quoted}..."
    return quoted


def suffix(
    path: PathLike, endings: tuple[str, ...], verb: str, calls: Mapping[str, str] | None = None
) -> str:
    """The lower-case extension of ``path``; a LoaderError unless it is one of ``endings``.

    Args:
        path: A path of a file.
        endings: What is accepted.
        verb: The function that asks.
        calls: By ending or whole name, the call of another library that reads such files.
    """
    name = file_name(path)
    ending = os.path.splitext(name.rstrip("/"))[1].lower()  # of a folder that is a store
    if ending in endings:
        return ending
    if os.path.isdir(name):
        raise fault(name, "a file", "a directory", "the path of a file in it")
    fix = f"convert it; {verb} reads these only"
    if verb.startswith("save"):
        fix = "give the path one of these endings"
    others = _REFUSED | dict(calls or {})
    fix = others.get(ending or os.path.basename(name).lower(), fix)
    if not ending:
        ending = "no extension"
    raise fault(name, f"one of {', '.join(endings)}", f"{ending!r}", fix)


def open_regular(path: PathLike, max_bytes: int = MAX_BYTES) -> BinaryIO:
    """Open a regular file of at most ``max_bytes`` bytes without blocking, else a LoaderError."""
    name = file_name(path)
    try:
        # before opening: opening a FIFO blocks, and a device may act
        if stat.S_ISREG(os.stat(name).st_mode):
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            file = os.fdopen(os.open(name, flags), "rb")
        else:
            raise fault(name, "a regular file", "a directory, pipe or device", "a path to a file")
    except (OSError, ValueError) as error:
        if isinstance(error, LoaderError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise LoaderError(
            f"{name}: expected a file that can be read, got: {reason}. Try: check path and rights."
        ) from None
    info = os.fstat(file.fileno())  # again: the name may now belong to another file
    if stat.S_ISREG(info.st_mode) and 0 < info.st_size <= max_bytes:
        return file
    file.close()
    if not info.st_size:
        raise fault(name, "data", "an empty file", "write or copy it again")
    raise fault(name, f"at most {max_bytes} bytes", info.st_size, "max_bytes=... if that is meant")


def read(path: PathLike, max_bytes: int = MAX_BYTES, head: int | None = None) -> Blob:
    """All bytes of ``path`` (or the first ``head``), refused if they are compressed or a pickle."""
    with open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        want = size
        if head is not None:
            want = min(size, head)
        try:
            blob = Blob(file_name(path), file.read(want), size)
        except OSError as error:
            raise LoaderError(
                f"{file_name(path)}: expected {want} bytes, got: {error.strerror}. Try: copy the "
                "file."
            ) from None
    if len(blob.data) != want:
        raise blob.fault(
            f"{want} bytes",
            f"{len(blob.data)}: the file changed while it was read",
            "read it again",
        )
    for magic, kind in _MAGIC.items():
        # a .safetensors begins with a length
        if blob.data.startswith(magic) and blob.data[4:9] != b"\0\0\0\0{":
            fix = _UNPACK
            if "pickle" in kind:
                fix = _PICKLE
            raise blob.fault("plain data", kind, fix)
    return blob


def file_name(path: PathLike) -> str:
    """``path`` as a string."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise fault("path", "a str or a Path", type(path).__name__, "str(path)") from None
