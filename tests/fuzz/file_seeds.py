"""Valid files of every format that the readers take: what a fuzzer breaks."""

import io
import struct
import tempfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphattn.shapes import save

SQUARE = b"0 0 0\n1 0 0\n1 1 0\n0 1 0.5\n"
PLY = (
    b"ply\nformat %s 1.0\ncomment by hand\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    b"element face 2\nproperty list uchar int vertex_indices\nend_header\n"
)
MIXED = (
    b"ply\nformat %s 1.0\nelement vertex 3\nproperty double x\nproperty double y\nproperty double z\n"
    b"property uchar red\nelement face 3\nproperty list ushort uint vertex_index\nproperty float quality\n"
    b"element edge 2\nproperty int vertex1\nproperty int vertex2\nend_header\n"
)


def saved(function: Callable[..., Any], *arguments: Any, **named: Any) -> bytes:
    """The bytes of a file that ``function`` writes."""
    stream = io.BytesIO()
    function(stream, *arguments, **named)
    return stream.getvalue()


def _mixed(order: str) -> bytes:
    """Three vertices, a triangle, a pentagon and a face without corners, two edges."""
    vertices = b"".join(
        struct.pack(f"{order}3dB", *xyz, 7) for xyz in ((0, 0, 0), (1, 0, 0), (0, 2, -1))
    )
    faces = b"".join(
        struct.pack(f"{order}H{len(corners)}If", len(corners), *corners, 0.5)
        for corners in ((0, 1, 2), (0, 1, 2, 1, 2), (2, 1, 0, 1))
    )
    return vertices + faces + struct.pack(f"{order}4i", 0, 1, 1, 2)


def _stl(count: int) -> bytes:
    body = b"".join(struct.pack("<12fH", 0, 0, 1, *range(9), 0) for _ in range(count))
    return b"made by hand".ljust(80, b"\0") + struct.pack("<I", count) + body


_FACET = b"facet normal 0 0 1\n outer loop\n  vertex 0 0 0\n  vertex 1 0 0\n  vertex 0 1e0 0\n endloop\nendfacet\n"
_CUBE = b"# a cube's side\no side\nmtllib side.mtl\nv 0 0 0\nv 1 0 0 1.0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvn 0 0 1\ng a\n"
_EDGES = np.array([[0, 1, 2, 3, 3], [1, 2, 0, 0, 3]])

SEEDS: list[tuple[str, bytes]] = [
    (".off", b"OFF\n# a square\n4 2 0\n" + SQUARE + b"3 0 1 2\n3 0 2 3\n"),
    (".off", b"COFF\n4 1 0\n" + SQUARE.replace(b"\n", b" 255 0 0 255\n") + b"4 0 1 2 3\n"),
    (".off", b"STOFF 4 1 0\n" + SQUARE.replace(b"\n", b" 0.5 0.5\n") + b"4 0 1 2 3 0.1 0.2 0.3\n"),
    (
        ".obj",
        _CUBE + b"s off\nusemtl red\nf 1/1/1 2/1/1 3/1/1 4/1/1\nf -4//1 -3//1 \\\n -2//1\nl 1 2\n",
    ),
    (".obj", b"v 0 0 0\r\nv 1 0 0\r\nv 0 1 0\r\nf 1 2 3\r\nf 3 2 1\r\n"),
    (".ply", PLY % b"ascii" + SQUARE + b"3 0 1 2\n4 0 1 2 3\n"),
    (
        ".ply",
        PLY % b"binary_little_endian"
        + struct.pack("<12fB3iB4i", *range(12), 3, 0, 1, 2, 4, 0, 1, 2, 3),
    ),
    (
        ".ply",
        PLY % b"binary_big_endian" + struct.pack(">12fB3iB3i", *range(12), 3, 0, 1, 2, 3, 1, 2, 3),
    ),
    (".ply", MIXED % b"binary_little_endian" + _mixed("<")),
    (".ply", MIXED % b"binary_big_endian" + _mixed(">")),
    (".stl", b"solid side\n" + 2 * _FACET + b"endsolid side\n"),
    (".stl", _stl(1)),
    (".stl", _stl(3)),
    (".xyz", b"# x y z red green blue\n1.5, 2, -3e4, 255, 0, 0\n4 5 6 0 255 0\n.5 +1. -0 1 2 3\n"),
    (".pts", b"0 0 1\n1 0 0\n0 1 0\n"),
    (".csv", b"x,y,z\n0.0,1.0,2.0\n3.5,4.5,5.5\n"),
    (".csv", b"source,target\n0,1\n1,2\n2,0\n"),
    (".txt", b"% a comment\n0 1\n1 2\n2 2\n"),
    (".tsv", b"0\t1\n1\t2\n5\t3\n"),
    (".edges", b"# id id cost\n10 20 0.5\n20 30 0.25\n"),
    (".npy", saved(np.save, np.linspace(-1, 1, 12).reshape(4, 3))),
    (".npy", saved(np.save, np.asfortranarray(np.ones((3, 2), ">f4")))),
    (".npy", saved(np.save, _EDGES.astype(np.int32))),
    (".npy", saved(np.save, _EDGES.astype(">u8"))),
    (".npy", saved(np.save, np.tri(23, 31, dtype=bool))),
    (".npy", saved(np.lib.format.write_array, np.tri(19, dtype=bool), version=(2, 0))),
    (".npz", saved(np.savez, edge_index=_EDGES, num_sources=np.array(5), num_targets=np.array(4))),
    (".npz", saved(np.savez_compressed, edge_index=_EDGES, num_nodes=7)),
    (".npz", saved(np.savez, edge_index=_EDGES, edge_attr=np.ones((5, 2)))),
]


def _written(ending: str, **tensors: Any) -> tuple[str, bytes]:
    """What ``save`` writes of a square with these properties."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"square{ending}"
        pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.5]])
        save(Data(pos=pos, **tensors), path)
        return ending, path.read_bytes()


_FACE = torch.tensor([[0, 0], [1, 2], [2, 3]])
_COLOR, _WIDE = torch.tensor([[1.0, 0, 0.2]] * 4), torch.arange(20.0).reshape(4, 5)
_PCD = (
    "VERSION .7\nFIELDS x y z rgb\nSIZE 4 4 4 4\nTYPE F F F F\nWIDTH 2\nHEIGHT 1\nPOINTS 2\nDATA "
)
SEEDS += [
    _written(".ply", face=_FACE, color=_COLOR, y=torch.arange(4), wide=_WIDE, edge_a=torch.arange(7)),
    _written(".obj", face=_FACE, uv=_COLOR[:, :2], normal=_COLOR),
    _written(".glb", face=_FACE, color=_COLOR, uv=_COLOR[:, :2], y=torch.arange(4)),
    _written(".glb", color=_COLOR),
    _written(".pcd", color=_COLOR, wide=_WIDE),
    _written(".las", y=torch.arange(4)),
    _written(".laz", y=torch.arange(4)),
    _written(".npz", face=_FACE, y=torch.tensor([1])),
    (".pcd", f"{_PCD}ascii\n0 0 0 1e-40\n1 2 3 0\n".encode()),
    (".pcd", f"{_PCD}binary_compressed\n".encode() + struct.pack("<2I", 14, 32) + b"\0\0\xe0\x0e\0\7" + bytes(8)),
    (".gltf", b'{"asset":{"version":"2.0"},"buffers":[{"byteLength":36,"uri":"data:application/octet-stream;base64,'
     + b64encode(np.eye(3, dtype="<f4").tobytes()) + b'"}],"bufferViews":[{"buffer":0,"byteLength":36}],"accessors":['
     b'{"bufferView":0,"componentType":5126,"count":3,"type":"VEC3"}],"meshes":[{"primitives":[{"attributes":{"POSITION":0}}'
     b']}],"nodes":[{"mesh":0}],"scenes":[{"nodes":[0]}],"scene":0}'),
]  # fmt: skip
ENDINGS = sorted({ending for ending, _ in SEEDS})
