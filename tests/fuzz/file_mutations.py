"""Ways in which a file goes wrong, each a function of its bytes and of a seeded source of
choices.
"""

import bz2
import gzip
import io
import lzma
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable

from file_seeds import ENDINGS, SEEDS

Mutation = Callable[[bytes, random.Random], bytes]
LARGEST = 1 << 17  # bytes of a mutated file

_COUNTS = [
    b"0",
    b"-1",
    b"1",
    b"255",
    b"65536",
    b"2147483647",
    b"2147483648",
    b"4294967296",
    b"1000000000000",
]
_COUNTS += [
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"9" * 40,
]
_WORDS = [
    b"nan",
    b"-inf",
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"0x10",
    b"1_000",
    b"1.5",
    b"1e3",
    b"+",
    b"-",
    b".",
    b"e5",
    b"",
]
_WORDS += [
    "\uff11".encode(),
    "\u0661".encode(),
    "\u00bd".encode(),
    b"True",
    b"None",
    b"''",
    b"1j",
    b"1,5",
    b"#",
    b"%",
    b"//",
    b"\\",
]
_BLANKS = [
    b"\0",
    b"\r",
    b"\n",
    b"\r\n",
    b"\v",
    b"\f",
    b"\t",
    b"\x1a",
    b"\x1c",
    b"\x85",
    b"\xa0",
    "\u2028".encode(),
    b",",
    b" ",
]
_ENDS = (
    1,
    -1,
    0,
    127,
    128,
    255,
    32767,
    65535,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
)


def _truncate(data: bytes, pick: random.Random) -> bytes:
    return data[: pick.randrange(len(data) + 1)]


def _behead(data: bytes, pick: random.Random) -> bytes:
    return data[pick.randrange(min(64, len(data)) + 1) :]


def _flip_bits(data: bytes, pick: random.Random) -> bytes:
    wrong = bytearray(data)
    for _ in range(pick.choice((1, 1, 2, 8))):
        wrong[pick.randrange(len(wrong))] ^= 1 << pick.randrange(8)
    return bytes(wrong)


def _binary_count(data: bytes, pick: random.Random) -> bytes:
    """An extreme number of 1, 2, 4 or 8 bytes somewhere, or one of the floats that are none."""
    at, size = pick.randrange(len(data)), pick.choice((1, 2, 4, 8))
    wrong = (pick.choice(_ENDS) % (1 << 8 * size)).to_bytes(size, pick.choice(("little", "big")))
    if pick.random() < 0.2:
        code = pick.choice(("<f", "<d", ">f", ">d"))
        wrong = struct.pack(code, pick.choice((float("nan"), float("inf"), -float("inf"), 1e38)))
    return data[:at] + wrong + data[at + len(wrong) :]


def _numbers(data: bytes) -> list[re.Match[bytes]]:
    return list(re.finditer(rb"[-+]?\d+(\.\d*)?(e[-+]?\d+)?", data[:4096]))


def _text_count(data: bytes, pick: random.Random) -> bytes:
    return _replaced(data, pick, _numbers(data), _COUNTS)


def _word(data: bytes, pick: random.Random) -> bytes:
    return _replaced(data, pick, list(re.finditer(rb"[^\s,]+", data[:4096])), _WORDS)


def _nudged(data: bytes, pick: random.Random) -> bytes:
    """A count or an index that is off by a little."""
    found = [match for match in _numbers(data) if match[0].isdigit() and len(match[0]) < 18]
    if not found:
        return _flip_bits(data, pick)
    match = pick.choice(found)
    near = str(int(match[0]) + pick.choice((-2, -1, 1, 2))).encode()
    return data[: match.start()] + near + data[match.end() :]


def _replaced(
    data: bytes, pick: random.Random, found: list[re.Match[bytes]], by: list[bytes]
) -> bytes:
    if not found:
        return _binary_count(data, pick)
    match = pick.choice(found)
    return data[: match.start()] + pick.choice(by) + data[match.end() :]


def _blank(data: bytes, pick: random.Random) -> bytes:
    at = pick.randrange(len(data) + 1)
    return data[:at] + pick.choice(_BLANKS) * pick.choice((1, 1, 3, 100)) + data[at:]


def _lines(data: bytes, pick: random.Random) -> bytes:
    """Lines swapped, doubled, dropped, joined or in any order."""
    lines = data.splitlines(keepends=True)
    a, b = pick.randrange(len(lines)), pick.randrange(len(lines))
    how = pick.randrange(5)
    if how == 0:
        lines[a], lines[b] = lines[b], lines[a]
    elif how == 1:
        lines.insert(b, lines[a])
    elif how == 2:
        del lines[a]
    elif how == 3:
        lines[a] = lines[a].rstrip(b"\r\n") + pick.choice((b" ", b"", b","))
    else:
        pick.shuffle(lines)
    return b"".join(lines)


def _cut(data: bytes, pick: random.Random) -> bytes:
    a, b = sorted((pick.randrange(len(data) + 1), pick.randrange(len(data) + 1)))
    return data[:a] + data[b:]


def _repeat(data: bytes, pick: random.Random) -> bytes:
    """A piece many times over: long lines, long lists, deep headers."""
    a = pick.randrange(len(data))
    b = min(len(data), a + pick.choice((1, 2, 8, 64)))
    many = pick.choice((2, 10, 1000, LARGEST // max(1, b - a)))
    return data[:a] + data[a:b] * many + data[b:]


def _splice(data: bytes, pick: random.Random) -> bytes:
    other = pick.choice(SEEDS)[1]
    return data[: pick.randrange(len(data) + 1)] + other[pick.randrange(len(other) + 1) :]


def _encoded(data: bytes, pick: random.Random) -> bytes:
    text = data.decode("latin-1")
    how = pick.choice(
        (
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "utf-32",
            "utf-8-sig",
            "utf-7",
            "cp037",
            "bom",
            "cr",
            "crlf",
        )
    )
    if how in ("cr", "crlf"):
        return data.replace(b"\n", b"\r" if how == "cr" else b"\r\n")
    return (
        pick.choice((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")) + data
        if how == "bom"
        else text.encode(how)
    )


def _packed(data: bytes, pick: random.Random) -> bytes:
    """Compressed under the plain name: itself, or a few bytes that unpack to megabytes."""
    inside = data if pick.random() < 0.5 else bytes(1 << 20) + data
    how = pick.choice((gzip.compress, bz2.compress, lzma.compress, _zipped))
    found = how(inside)
    return found if pick.random() < 0.7 else _flip_bits(found, pick)


def _zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("edge_index.npy"), data, archive.compression)
    return stream.getvalue()


def _array_header(data: bytes, pick: random.Random) -> bytes:
    """The dictionary at the head of a .npy file, rewritten; its length right or wrong."""
    if not data.startswith(b"\x93NUMPY") or len(data) < 10:
        return _text_count(data, pick)
    size = struct.unpack("<H", data[8:10])[0]
    head, body = data[10 : 10 + size].strip() or b"{}", data[10 + size :]
    types = (
        b"|O",
        b"<f8",
        b"<i8",
        b"|b1",
        b"<U2",
        b"<m8[s]",
        b"<M8[ns]",
        b"|V4",
        b"<c16",
        b">i2",
        b"|S0",
        b"f8,i4",
        b"<f9",
    )
    wrong = (
        lambda: re.sub(rb"'descr': '[^']*'", b"'descr': '" + pick.choice(types) + b"'", head),
        lambda: re.sub(
            rb"'shape': \([^)]*\)",
            b"'shape': (" + b", ".join(pick.choices(_COUNTS, k=pick.randrange(5))) + b",)",
            head,
        ),
        lambda: head.replace(b"False", pick.choice((b"True", b"0", b"None", b"[]"))),
        lambda: head.replace(
            b"{",
            pick.choice((b"{" * 300, b"[", b"{'descr': '<f8', ", b"__import__('os').abort() or {")),
        ),
        lambda: b"(" * pick.choice((10, 4000)) + head,
        lambda: _word(head, pick),
    )
    head = pick.choice(wrong)() or b" "
    length = len(head) if pick.random() < 0.8 else pick.choice((0, 1, 9, 2**15, 65535))
    return (
        b"\x93NUMPY"
        + bytes(pick.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9))))
        + struct.pack("<H", length % 65536)
        + head
        + body
    )


def _archive(data: bytes, pick: random.Random) -> bytes:
    """A .npz written again: entries renamed, doubled, dropped, broken inside, or full of zeros."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:
        entries = []
    if not entries:
        return _packed(data, pick)
    at = pick.randrange(len(entries))
    name, body = entries[at]
    names = (
        "edge_index.npy",
        "source.npy",
        "target.npy",
        "format.npy",
        "shape.npy",
        "indptr.npy",
        "../x.npy",
        "a",
        "\u00e9.npy",
    )
    how = pick.randrange(6)
    if how == 0:
        entries[at] = (pick.choice(names), body)
    elif how == 1:
        entries.append((pick.choice((name, *names)), body))
    elif how == 2:
        del entries[at]
    elif how == 3:
        entries[at] = (name, pick.choice(ON_BYTES)(body, pick) if body else b"x")
    elif how == 4:
        entries[at] = (name, _array_header(body, pick))
    else:
        entries[at] = (name, body[:128] + bytes(pick.choice((1 << 16, 1 << 22))))
    entries = list(dict(entries).items()) if pick.random() < 0.9 else entries
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # of two entries of one name
        for entry, content in entries:
            archive.writestr(zipfile.ZipInfo(entry), content, pick.choice((0, 8, 8, 8, 12, 14)))
    found = stream.getvalue()
    return found if pick.random() < 0.7 else _flip_bits(found, pick)


def _directory(data: bytes, pick: random.Random) -> bytes:
    """Sizes, offsets and methods in a zip's directory that are not so."""
    heads = [match.start() for match in re.finditer(rb"PK\x01\x02|PK\x03\x04|PK\x05\x06", data)]
    if not heads:
        return _binary_count(data, pick)
    at = pick.choice(heads) + pick.randrange(4, 46)
    size = pick.choice((2, 4))
    return (
        data[:at]
        + (pick.choice(_ENDS) % (1 << 8 * size)).to_bytes(size, "little")
        + data[at + size :]
    )


ON_BYTES: tuple[Mutation, ...] = (
    _truncate,
    _behead,
    _flip_bits,
    _binary_count,
    _text_count,
    _word,
    _nudged,
)
ON_BYTES += (_blank, _lines, _cut, _repeat, _splice, _encoded, _array_header)
ALL: tuple[Mutation, ...] = (*ON_BYTES, _packed, _archive, _directory)


def mutated(seed: int, number: int) -> tuple[str, bytes]:
    """The ending and the bytes of one wrong file; the same for the same two numbers."""
    pick = random.Random(f"{seed}, {number}")
    ending, data = SEEDS[number % len(SEEDS)]
    usual: tuple[Mutation, ...] = ON_BYTES
    if ending in (".npy", ".npz"):
        usual += (_array_header,) * 4 if ending == ".npy" else (_archive,) * 6 + (_directory,) * 3
    for _ in range(pick.choice((1, 1, 1, 2, 3, 5))):
        data = pick.choice(usual if pick.random() < 0.97 else ALL)(data or b"\n", pick)[
            : 8 * LARGEST
        ]
    return (pick.choice(ENDINGS) if pick.random() < 0.02 else ending), data
