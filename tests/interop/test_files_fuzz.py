"""D27 in small: whatever the bytes, a loader returns or raises LoaderError, in bounded time and memory."""

import contextlib
import io
import struct
import time

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphattn.errors import LoaderError
from graphattn.interop.files import load_edges, load_mask, load_mesh, load_points, sniff

TRIANGLE = b"0 0 0\n1 0 0\n0 1 0\n"
HEAD = (
    b"ply\nformat %s 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    b"element face 2\nproperty list uchar int vertex_indices\nend_header\n"
)
FACES = struct.pack("<9fB3iB4i", *range(9), 3, 0, 1, 2, 4, 0, 1, 2, 0)


def saved(function, *arguments, **named):
    """The bytes of a file that ``function`` writes."""
    stream = io.BytesIO()
    function(stream, *arguments, **named)
    return stream.getvalue()


SEEDS = [
    (".off", b"COFF\n3 2 0 # c\n" + TRIANGLE + b"3 0 1 2 9\n4 0 1 2 0\n"),
    (".obj", b"mtllib a\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvn 0 0 1\nf 1//1 2//1 \\\n 3//1\nf -1 -2 -3\nl 1 2\n"),
    (".ply", HEAD % b"ascii" + TRIANGLE + b"3 0 1 2\n4 0 1 2 0\n"),
    (".ply", HEAD % b"binary_little_endian" + FACES),
    (
        ".stl",
        b"solid a\nfacet normal 0 0 1\nouter loop\n" + b"vertex 0 0 1\n" * 3 + b"endloop\nendfacet\nendsolid\n",
    ),
    (".stl", bytes(80) + struct.pack("<I", 1) + struct.pack("<12fH", *range(12), 0)),
    (".xyz", b"# a\n1.5, 2, -3e4\n4 5 6\n"),
    (".txt", b"% a\n0 1\n1, 2\n999999 3\n"),
    (".npy", saved(np.save, np.ones((2, 3)))),
    (".npy", saved(np.save, np.ones((2, 3), np.int32))),
    (".npy", saved(np.save, np.ones((2, 3), bool))),
    (".npz", saved(np.savez, edge_index=np.ones((2, 3), int), num_nodes=np.array(4))),
    (".npz", saved(scipy.sparse.save_npz, scipy.sparse.eye(5, format="csr"))),
]
WORDS = [
    b"\n",
    b" ",
    b"-",
    b"99",
    b"1e400",
    b"nan",
    b"0",
    b"\0",
    b"\r",
    b"#",
    b",",
    b"/",
    b"\\\n",
    b"\xff\xff\xff\xff",
    b"\x80\x04",
]
CALLS = [
    *((load_mesh, {"allow_nonfinite": flag}) for flag in (False, True)),
    *((load_points, {"allow_nonfinite": flag}) for flag in (False, True)),
    *((load_edges, options) for options in ({}, {"relabel": True, "weights": "ignore"}, {"header": True})),
    (load_mask, {}),
    (sniff, {}),
]


@st.composite
def mutated(draw, data):
    """``data`` with a few pieces cut, doubled, overwritten or inserted."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 9)))
        piece = draw(st.sampled_from(WORDS) | st.binary(max_size=5) | st.just(bytes(data[at:end]) * 3))
        data[at : end if draw(st.booleans()) else at] = piece
    return bytes(data)


def attempt(path):
    """Try every loader; return how many took the file."""
    taken = 0
    for loader, options in CALLS:
        with contextlib.suppress(LoaderError):
            loader(path, **options)
            taken += 1
    return taken


@pytest.mark.parametrize(("kind", "seed"), SEEDS, ids=[f"{i}{kind}" for i, (kind, _) in enumerate(SEEDS)])
def test_d27_only_loader_error_escapes(kind, seed, tmp_path):
    path = tmp_path / f"fuzz{kind}"
    path.write_bytes(seed)
    assert attempt(path), "the seed itself must be a good file"

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(mutated(seed))
    def fuzz(data):
        path.write_bytes(data)
        attempt(path)

    fuzz()


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in SEEDS}))
def test_d27_bytes_at_random(kind, tmp_path):
    path = tmp_path / f"fuzz{kind}"

    @settings(max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=300) | st.text(alphabet="0123456789.eE+-/ \n\t,#nanifvOF", max_size=300).map(str.encode))
    def fuzz(data):
        path.write_bytes(data)
        attempt(path)

    fuzz()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("m.off", b"OFF\n1 1 1\n" + b"\n" * 10**6),
        ("m.off", b"OFF\n" + b"1 " * 5 * 10**5),
        ("m.obj", b"f 1\n" * 250_000),
        ("m.obj", b"v\n" * 500_000),
        ("m.obj", b"s\n" * 500_000),
        ("m.obj", b"v 0 0 0\nf" + b" 1/" * 300_000),
        ("m.obj", b"v 0 0 0\nf 1 \\\n" + b"1 \\\n" * 250_000),
        (
            "m.ply",
            (HEAD % b"binary_little_endian").replace(b"face 2", b"face 1000000")
            + bytes(36)
            + b"\1\0\0\0\0"
            + bytes(10**6),
        ),
        ("m.stl", b"solid\nfacet\n" + b"vertex\n" * 150_000),
        ("p.xyz", b"1 2 3\n" * 170_000 + b"1e 2 3\n"),
        ("p.xyz", b"," * 10**6),
        ("p.xyz", b"," + b" " * 10**6),
        ("p.xyz", b"#\n" * 500_000),
        ("e.txt", b"9999999999999999999 0\n" * 45_000),
        ("e.txt", b"0" * 10**6 + b" 1\n"),
    ],
)
def test_d27_a_second_for_a_megabyte(name, data, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    start = time.thread_time()  # other programs do not count
    with contextlib.suppress(LoaderError):
        {"m": load_mesh, "p": load_points, "e": load_edges}[name[0]](path)
    assert time.thread_time() - start < 5
