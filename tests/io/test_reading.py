"""What is refused before a byte is interpreted (D17, D21 to D26), and sniff."""

import gzip
import io
import os
import pickle
import struct
import threading
import zipfile

import numpy as np
import pytest

from graphattn.convert.files import load_edges, load_mask, sniff
from graphattn.errors import LoaderError
from graphattn.shapes import load

LOADERS = {
    "m.off": load,
    "p.ply": load,
    "p.npz": load,
    "e.txt": load_edges,
    "e.npz": load_edges,
    "m.npy": load_mask,
}
EACH = pytest.mark.parametrize(
    ("name", "loader"), [*LOADERS.items(), ("e.txt", sniff), ("m.npy", sniff)]
)


def refused(loader, path, *words, **options):
    """The message of the LoaderError, which must have all of ``words``."""
    with pytest.raises(LoaderError) as error:
        loader(path, **options)
    for word in ("expected", "Try", *words):
        assert word in str(error.value), str(error.value)
    return str(error.value)


class Bomb:
    """A pickle of it writes a file when it is read."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@EACH
def test_not_a_regular_file(name, loader, tmp_path):
    """A FIFO would hang an ordinary open: the timer turns that into a failure."""
    path = tmp_path / name
    refused(loader, path, name, "No such file")
    refused(loader, path / name, name)
    refused(loader, f"{tmp_path}\0{name}", "null")
    refused(loader, str(tmp_path / ("x" * 300 + name)), "long")
    refused(loader, None, "path", "NoneType")
    refused(loader, 3, "path", "int")
    path.mkdir()
    refused(loader, path, "directory")
    path.rmdir()
    path.symlink_to("/dev/zero")
    refused(loader, path, "device")
    path.unlink()
    path.symlink_to(path)
    refused(loader, path, "symbolic links")
    path.unlink()
    os.mkfifo(path)
    done = []
    thread = threading.Thread(
        target=lambda: done.append(refused(loader, path, "pipe")), daemon=True
    )
    thread.start()
    thread.join(120)
    assert done, "opening a FIFO hangs, or it is not refused"


@EACH
def test_no_permission(name, loader, tmp_path, monkeypatch):
    path = tmp_path / name
    path.write_bytes(b"0 1\n")

    def denied(*arguments, **more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)  # root may read everything
    refused(loader, path, name, "Permission denied")


def test_the_name_comes_to_mean_a_device_after_the_check(tmp_path, monkeypatch):
    path = tmp_path / "p.xyz"
    path.write_text("0 0 0\n", encoding="utf-8")
    true_open = os.open
    monkeypatch.setattr(os, "open", lambda name, flags: true_open("/dev/zero", flags))
    refused(load, path, "0 bytes" if os.stat("/dev/zero").st_size else "empty")


@EACH
def test_size_cap(name, loader, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"0 1 2\n" * 100)
    refused(loader, path, "expected at most 599 bytes", "600", "max_bytes", max_bytes=599)
    path.write_bytes(b"")
    refused(loader, path, "empty")
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a hole of 1 TiB
    refused(loader, path, f"got {1 << 40}.")


@pytest.mark.parametrize("name", ["m.off.gz", "m.zip", "m.tar", "m.tgz", "e.csv.bz2", "e.xz"])
@pytest.mark.parametrize("loader", [load, load_edges, load_mask, sniff])
def test_compressed_by_name(name, loader, tmp_path):
    refused(loader, tmp_path / name, "unpack it first")


def test_compressed_by_content(tmp_path):
    path = tmp_path / "m.off"
    path.write_bytes(gzip.compress(b"OFF\n" + bytes(10**6)))
    refused(load, path, "gzip", "unpack it first")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../m.off", "OFF\n")
    refused(load, path, "zip", "unpack it first")


def test_npz_bomb(tmp_path):
    path = tmp_path / "e.npz"
    np.savez_compressed(path, edge_index=np.zeros((2, 5 << 20), np.int64))
    refused(load_edges, path, f"{(80 << 20) + 128} bytes", "numpy.savez")
    np.savez(
        path, edge_index=np.zeros((2, 5), np.int64), **{f"x{i}": np.zeros(1) for i in range(70)}
    )
    refused(load_edges, path, "71 arrays")
    np.savez_compressed(path, edge_index=np.zeros((2, 1000), np.int64))
    assert len(load_edges(path).source) == 1000
    refused(load_edges, path, "max_bytes", max_bytes=10_000)


@pytest.mark.parametrize("liar", ["smaller", "larger"])
def test_npz_entry_lies_about_its_size(liar, tmp_path):
    stream = io.BytesIO()
    np.savez_compressed(stream, edge_index=np.zeros((2, 1000), np.int64))
    data = bytearray(stream.getvalue())
    at = data.index(b"PK\x01\x02") + 24  # size in the directory
    data[at : at + 4] = struct.pack("<I", 200 if liar == "smaller" else 40_000)
    path = tmp_path / "e.npz"
    path.write_bytes(data)
    refused(load_edges, path, "e.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_of_unbounded_methods(method, tmp_path):
    path = tmp_path / "e.npz"
    stream = io.BytesIO()
    np.save(stream, np.zeros((2, 3), np.int64))
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("edge_index.npy", stream.getvalue())
    refused(load_edges, path, "compression method")


def test_object_array_is_not_unpickled(tmp_path):
    marker = tmp_path / "marker"
    for name, loader in {
        "m.npy": load_mask,
        "p.npy": load,
        "e.npy": load_edges,
        "s.npy": sniff,
    }.items():
        path = tmp_path / name
        np.save(path, np.array([[Bomb(marker)]], dtype=object), allow_pickle=True)
        refused(loader, path, "dtype object", "pickles")
    np.savez(tmp_path / "e.npz", edge_index=np.array([Bomb(marker)], dtype=object))
    refused(load_edges, tmp_path / "e.npz", "edge_index", "pickles")
    record = np.zeros(3, [("a", "i8"), ("b", "O")])
    np.save(tmp_path / "e.npy", record, allow_pickle=True)
    refused(load_edges, tmp_path / "e.npy", "array of numbers")
    assert not marker.exists()
    np.load(tmp_path / "m.npy", allow_pickle=True)
    assert marker.exists(), "the bomb is no bomb"


def npy(header, body=b""):
    """A .npy file with this header, whatever it says."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


@pytest.mark.parametrize(
    ("header", "word"),
    [
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 3)}",
            "24000000000000 bytes",
        ),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -3)}", "bytes"),
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4611686018427387904, "
            "4611686018427387904)}",
            "shape",
        ),
        ("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,)}", "dtype"),
        ("{'descr': '(3,)<f8', 'fortran_order': False, 'shape': (1,)}", ""),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 2000 + ")}", ""),
        ("{'descr': '<f8', 'fortran_order': 7, 'shape': (1,)}", "header"),
        ("{'descr': 'quark', 'fortran_order': False, 'shape': (1,)}", "header"),
        ("(" * 3000, "header"),
        ("'" * 200_0, "header"),
        ("{'descr': '<f8'," + " " * 60_000 + "'fortran_order': False, 'shape': (1,)}", "header"),
        ("", "header"),
    ],
)
def test_npy_header_is_not_believed(header, word, tmp_path):
    for body in (bytes(24), b""):
        data = npy(header, body)
        for name, loader in {"p.npy": load, "m.npy": load_mask, "e.npy": load_edges}.items():
            path = tmp_path / name
            path.write_bytes(data)
            refused(loader, path, word)


def test_truncated_or_too_long(tmp_path):
    path = tmp_path / "p.npy"
    np.save(path, np.ones((5, 3)))
    data = path.read_bytes()
    for cut in (1, 5, 7, 9, 60, len(data) - 1):
        path.write_bytes(data[:cut])
        refused(load, path)
        refused(sniff, path)
    path.write_bytes(data + b"x")
    refused(load, path, "120 bytes", "got 121")
    path.write_bytes(data.replace(b"NUMPY\x01", b"NUMPY\x07"))
    refused(load, path, "version")


def test_graphml_and_pickles(tmp_path):
    marker = tmp_path / "marker"
    for name in ("g.gpickle", "g.pkl", "g.pickle", "g.pt"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(Bomb(marker)))
        refused(load_edges, path, "pickle runs code")
        refused(sniff, path, "pickle runs code")
    for name, loader in LOADERS.items():
        path = tmp_path / name
        path.write_bytes(pickle.dumps(Bomb(marker)))
        refused(loader, path, name)
    refused(load_edges, tmp_path / "e.txt", "a pickle")
    refused(load_edges, tmp_path / "g.graphml", "XML can expand")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "array", "kind"),
    [
        ("a.npy", np.ones((3, 5), bool), "mask"),
        ("a.npy", np.ones((2, 5), bool), "mask"),
        ("a.npy", np.ones((2, 5), np.uint16), "edges"),
        ("a.npy", np.ones((2, 5), np.float32), "points"),
        ("a.NPY", np.ones((7, 2), ">f8"), "points"),
    ],
)
def test_sniff_arrays(name, array, kind, tmp_path):
    path = tmp_path / name
    with open(path, "wb") as file:
        np.save(file, array)
    assert sniff(path) == kind
    {"mask": load_mask, "edges": load_edges, "points": load}[kind](path)


def test_sniff_reads_no_more_than_the_header(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (134217000, 1)}"))
    size = 134217000 * 8 + path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(size)  # a hole of 1 GB
    assert sniff(path) == "points"


@pytest.mark.parametrize(
    "array", [np.ones((5, 2), np.int64), np.ones(5), np.ones((2, 5), complex), np.ones((3, 5), int)]
)
def test_sniff_refuses_arrays_that_are_nothing(array, tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, array)
    refused(sniff, path, "shape", str(array.dtype))


def test_sniff_by_extension(tmp_path):
    for extension in ("CSV", "txt", "tsv", "edges"):
        path = tmp_path / f"a.{extension}"
        path.write_text("0 1\n", encoding="utf-8")
        assert sniff(path) == sniff(str(path)) == "edges"
    for name in ("a", "a.docx", ".npy"):
        refused(sniff, tmp_path / name, "expected one of", ".csv")
    np.savez(tmp_path / "a.npz", edge_index=np.ones((2, 3), int))
    assert sniff(tmp_path / "a.npz") == "edges"
    np.savez(tmp_path / "a.npz", positions=np.ones(3))
    refused(sniff, tmp_path / "a.npz", "positions", "edge_index")
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 not an archive")
    refused(sniff, tmp_path / "a.npz", ".npz")


@pytest.mark.parametrize("order", ["C", "F"])
def test_mask(order, tmp_path):
    path = tmp_path / "m.npy"
    mask = np.asarray(np.random.default_rng(0).random((3, 5)) < 0.5, order=order)
    np.save(path, mask)
    loaded = load_mask(path)
    np.testing.assert_array_equal(loaded, mask)
    loaded[0, 0] = False  # the caller's own
    np.save(path, mask.astype(np.uint8))
    refused(load_mask, path, "uint8", "astype(bool)")
    np.save(path, mask[0])
    refused(load_mask, path, "(5,)")
    np.save(path, mask)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\x02")
    refused(load_mask, path, "bytes 0 and 1", "got 2")
