"""GLB and GLTF files, decoded by trimesh; all meshes of a scene, placed by nodes, as one."""

import io
import json
import os
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from ...errors import LoaderError, need_extra
from ...io.reading import Blob, PathLike, read
from .parts import Parts
from .raw import Contents, Raw, reads, writes
from .words import unit

_WORDS = {"TEXCOORD_0": "uv", "COLOR_0": "color", "NORMAL": "normal"}
_PLAIN = (
    "KHR_materials_",
    "KHR_technique",
    "KHR_texture_",
    "EXT_texture_",
    "MSFT_texture_",
    "KHR_lights_",
    "KHR_xmp",
)
_PACKED = ("draco", "compression", "quantization")
_TRIANGLES = (4, 5)
_TYPES = {"f4": 5126, "u1": 5121, "i1": 5120, "u2": 5123, "i2": 5122}


@reads(
    ".glb",
    ".gltf",
    contents=Contents(
        read=(
            "triangles and points of the scene, placed by nodes; `NORMAL`, `TEXCOORD_0`, "
            "`COLOR_0`, attributes `_NAME`"
        ),
        noted=(
            "joined meshes; attributes of some meshes only, further sets, tangents, morph "
            "targets, skins, animations, cameras, materials, other scenes"
        ),
        refused="lines and strips, compression, sparse accessors, buffers elsewhere",
    ),
)
def read_gltf(path: PathLike, allow_nonfinite: bool, max_bytes: int) -> Raw:
    """Triangles and points of a scene; buffers of a .gltf lie in its folder, images stay closed."""
    try:
        from trimesh.exchange.gltf import load_gltf
    except ImportError:
        raise need_extra("trimesh", "mesh") from None
    blob = read(path, max_bytes)
    tree, binary = _container(blob)
    try:
        buffers = _buffers(blob, tree, binary, max_bytes)
        modes = _prepare(blob, tree, sum(map(len, buffers.values())) or len(blob.data))
        left = _left_out(tree)
        text = io.BytesIO(json.dumps(tree).encode())
        scene = load_gltf(text, resolver=buffers, skip_materials=True)
        raw = _joined(blob, scene, modes)
        if left:
            raw = replace(raw, notes=(*raw.notes, f"left out: {', '.join(left)}"))
        return raw
    except LoaderError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {str(error)[:200]}"
        raise blob.fault("a glTF 2.0 scene", got, "export it again") from None


def _container(blob: Blob) -> tuple[dict[str, Any], bytes]:
    """The JSON of a file, and the binary chunk of a GLB."""
    data = blob.data
    binary = b""
    if data[:4] == b"glTF":
        size, length = (int.from_bytes(data[at : at + 4], "little") for at in (8, 12))
        if size != len(data) or length > len(data) - 20 or data[16:20] != b"JSON":
            raise blob.fault(
                f"{size} bytes, as its header says, a chunk of JSON first",
                f"{len(data)}",
                "get it whole",
            )
        rest = data[20 + length :]
        data = data[20 : 20 + length]
        binary = rest[8 : 8 + int.from_bytes(rest[:4], "little")]
        if len(rest) >= 8 and len(binary) != int.from_bytes(rest[:4], "little"):
            raise blob.fault(
                "a whole binary chunk", f"{len(binary)} bytes of it", "get the whole file"
            )
    try:
        tree = json.loads(data)
        if not isinstance(tree, dict) or not str(tree["asset"]["version"]).startswith("2."):
            raise ValueError("no asset of version 2.0")
        return tree, binary
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise blob.fault(
            "glTF 2.0", f"{type(error).__name__}: {str(error)[:200]}", "export it again"
        ) from None


def _buffers(blob: Blob, tree: dict[str, Any], binary: bytes, max_bytes: int) -> dict[str, bytes]:
    """The bytes of all external buffers, which must lie in the same folder."""
    out = {}
    for number, buffer in enumerate(tree.get("buffers", ())):
        uri = buffer.setdefault("uri", f"chunk {number}")
        if uri.startswith("data:"):
            continue
        if uri == "chunk 0":
            out[uri] = binary[: buffer["byteLength"]]
        elif os.path.basename(uri) == uri and uri.endswith(".bin"):
            out[uri] = read(os.path.join(os.path.dirname(blob.path), uri), max_bytes).data
        else:
            raise blob.fault(
                "a buffer in the file, or a .bin beside it", ascii(uri[:80]), "export it as .glb"
            )
        if len(out[uri]) < buffer["byteLength"]:
            raise blob.fault(
                f"{buffer['byteLength']} bytes of {uri}", f"{len(out[uri])}", "get the whole file"
            )
    return out


def _prepare(blob: Blob, tree: dict[str, Any], size: int) -> list[int]:
    """Have trimesh hand over what it would drop or change, and refuse what it would read as zeros.

    It drops texture coordinates without a material, and attributes of points; makes zeros of sparse
    and of compressed accessors, and whole numbers of normalised positions.
    """
    for name in sorted(tree.get("extensionsRequired", ())):
        if name.startswith(_PLAIN):
            continue  # of surfaces and lights: it changes no vertex
        if any(word in name for word in _PACKED):
            raise blob.fault(
                "a scene without compression", f"the extension {name}", "export it uncompressed"
            )
        raise blob.fault(
            "no extensions but of materials", f"{name}, which is required", "export it without"
        )
    for number, accessor in enumerate(tree.get("accessors", ())):
        if (
            "sparse" in accessor
            or "bufferView" not in accessor
            or not 0 <= accessor["count"] <= size
        ):
            if "sparse" in accessor:
                got = "sparse"
            else:
                got = f"{accessor['count']} numbers"
            raise blob.fault(
                "accessors with all their numbers in a buffer",
                got,
                "export it",
                at=f"accessor {number}",
            )
    modes = []
    for mesh in tree.get("meshes", ()):
        for primitive in mesh["primitives"]:
            mode = primitive.get("mode", 4)
            attributes = primitive["attributes"]
            if mode not in (0, *_TRIANGLES):
                raise blob.fault(
                    "triangles or points", f"primitives of mode {mode}", "export them as triangles"
                )
            modes.append(mode)
            kinds = {name: tree["accessors"][at] for name, at in attributes.items()}
            if kinds["POSITION"]["componentType"] != 5126:
                raise blob.fault("positions of float32", "others", "export it without quantisation")
            attributes |= {
                f"_{word}": attributes[name] for name, word in _WORDS.items() if name in attributes
            }
            if mode == 0:
                primitive["mode"] = 1  # of which trimesh keeps the attributes
    return modes


def _left_out(tree: dict[str, Any]) -> list[str]:
    """Parts of a scene that a mesh has no place for."""
    primitives = [primitive for mesh in tree.get("meshes", ()) for primitive in mesh["primitives"]]
    names = {name for primitive in primitives for name in primitive["attributes"]}
    left = sorted(name for name in names - {"POSITION", *_WORDS} if not name.startswith("_"))
    if any("targets" in primitive for primitive in primitives):
        left.append("morph targets and their weights")
    left += [word for word in ("skins", "animations", "cameras", "materials") if tree.get(word)]
    scenes = len(tree.get("scenes", ()))
    if scenes > 1:
        left.append(f"{scenes - 1} other scenes")
    return left


def _joined(blob: Blob, scene: dict[str, Any], modes: list[int]) -> Raw:
    """All geometries, each as often as a node shows it."""
    meshes = dict(scene["geometry"])
    is_cloud = {name: mode == 0 for name, mode in zip(meshes, modes, strict=True)}
    world = {scene["base_frame"]: np.eye(4)}
    placed = []
    for edge in scene["graph"]:
        world[edge["frame_to"]] = matrix = world[edge["frame_from"]] @ np.asarray(edge["matrix"])
        if "geometry" in edge:
            placed.append((edge["geometry"], matrix))
    tables = []
    faces = [np.zeros((0, 3), np.int64)]
    start = 0
    for name, matrix in placed[::-1] or [(name, np.eye(4)) for name in meshes]:
        mesh = meshes[name]
        tables.append(_moved(mesh, matrix))
        if is_cloud[name]:
            corner = np.zeros((0, 3), np.int64)
        else:
            corner = np.asarray(mesh["faces"], np.int64)
        if corner.size and not 0 <= corner.min() <= corner.max() < len(mesh["vertices"]):
            got = f"{corner.min()} to {corner.max()}"
            raise blob.fault(
                f"faces of vertices 0 to {len(mesh['vertices']) - 1}",
                got,
                "export it again",
                at=name,
            )
        if np.linalg.det(matrix[:3, :3]) > 0:
            corners = corner
        else:
            corners = corner[:, ::-1]
        faces.append(corners + start)
        start += len(mesh["vertices"])
    if not tables:
        raise blob.fault("points", "an empty scene", "check how it was exported")
    names = [name for name in tables[0] if all(name in table for table in tables)]
    left = sorted({name for table in tables for name in table} - set(names))
    points = {name: np.concatenate([table[name] for table in tables]) for name in names}
    notes = ((f"{len(placed)} meshes joined",) if len(placed) > 1 else ()) + tuple(
        f"{name} left out, which some meshes do not have" for name in left
    )
    corner = np.concatenate(faces)
    return Raw(blob, points, np.arange(0, corner.size + 1, 3), corner.reshape(-1), notes=notes)


def _moved(mesh: dict[str, Any], matrix: np.ndarray) -> dict[str, np.ndarray]:
    """The attributes of a mesh where a node puts it."""
    out = {
        name[1:]: np.asarray(values) for name, values in mesh.get("vertex_attributes", {}).items()
    }
    out = {
        name: values[:, 0] if values.shape[1:] == (1,) else values for name, values in out.items()
    }
    out = {"y" if name == "label" else name: values for name, values in out.items()}
    pos = np.asarray(mesh["vertices"])
    turn = matrix[:3, :3].astype(np.float32)
    still = np.array_equal(matrix, np.eye(4))
    if still:
        out["pos"] = pos
    else:
        out["pos"] = (pos @ turn.T + matrix[:3, 3]).astype(np.float32)
    if "normal" in out and not still:
        normal = out["normal"] @ np.linalg.inv(turn)
        out["normal"] = normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-30)
    if "uv" in out:
        # integers are shares of the largest
        if out["uv"].dtype.kind == "u":
            uv = unit(out["uv"])
        else:
            uv = out["uv"]
        out["uv"] = uv * np.array([1, -1], "f4") + np.array([0, 1], "f4")  # from the lower left
    if "color" in out and out["color"].shape[1:] == (4,):
        out["color"], out["alpha"] = out["color"][:, :3], out["color"][:, 3]
    return out


@writes(".glb")
def write_glb(file: BinaryIO, parts: Parts) -> None:
    """One mesh, or one set of points; other tensors as attributes ``_name``."""
    parts.holds("...", face=True)
    if {"y", "label"} <= set(parts.points):
        parts.refuse("y or label, which is y in .glb", "both")
        parts.points.pop("label")
    arrays = {
        _attribute(name): parts.fit(name, values, _TYPES)
        for name, values in parts.narrow(4).items()
    }
    if "TEXCOORD_0" in arrays:
        arrays["TEXCOORD_0"] = arrays["TEXCOORD_0"] * np.array([1, -1], "f4") + np.array(
            [0, 1], "f4"
        )
    views = []
    accessors = []
    body = io.BytesIO()
    if parts.face is not None and parts.face.size:
        face = parts.face
    else:
        face = None
    if face is not None:
        arrays["indices"] = face.T.reshape(-1).astype("<u4")
    for name, values in arrays.items():
        # rows begin at multiples of 4
        rows = np.zeros((len(values), -(-values[0].nbytes // 4) * 4), np.uint8)
        rows[:, : values[0].nbytes] = (
            np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)
        )
        views.append({"buffer": 0, "byteOffset": body.tell(), "byteLength": rows.size})
        views[-1] |= {"byteStride": rows.shape[1]} if name != "indices" else {}
        width = values[0].size
        if name == "indices":
            kind = 5125
        else:
            kind = _TYPES[values.dtype.str[1:]]
        accessor: dict[str, Any] = {
            "bufferView": len(views) - 1,
            "componentType": kind,
            "count": len(values),
        }
        accessor["type"] = {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4"}[width]
        if name == "POSITION":
            accessor |= {"min": values.min(0).tolist(), "max": values.max(0).tolist()}
        accessors.append(accessor)
        body.write(rows.tobytes())
    names = {name: place for place, name in enumerate(arrays) if name != "indices"}
    mode = 4
    if face is None:
        mode = 0
    primitive = {"attributes": names, "mode": mode}
    primitive |= {"indices": len(names)} if face is not None else {}
    tree = {
        "asset": {"version": "2.0", "generator": "graphattn"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
    }
    tree |= {"nodes": [{"mesh": 0}], "meshes": [{"primitives": [primitive]}], "bufferViews": views}
    tree |= {"accessors": accessors, "buffers": [{"byteLength": body.tell()}]}
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    file.write(
        b"glTF"
        + np.array([2, 28 + len(text) + body.tell(), len(text)], "<u4").tobytes()
        + b"JSON"
        + text
    )
    file.write(np.array([body.tell()], "<u4").tobytes() + b"BIN\0" + body.getvalue())


def _attribute(name: str) -> str:
    """The name in glTF."""
    words = {word: gltf_name for gltf_name, word in _WORDS.items()} | {"pos": "POSITION"}
    return words.get(name, f"_{'label' if name == 'y' else name}")
