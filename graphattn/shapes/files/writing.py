"""A shape into a file."""

from collections.abc import Iterable
from typing import Any, BinaryIO

from ...arguments import several
from ...convert.saving import is_saved_graph, save_graph
from ...errors import LoaderError
from ...graph import Relations
from ...graph.kinds.layers import Layer
from ...io.reading import PathLike, fault, file_name, suffix
from ...io.writing import replace_file
from ..series import save_trajectory
from ..trajectory import Trajectory
from .parts import parts_of
from .raw import WIDTHS, WRITERS


def save(data: Any, path: PathLike, *, lossy: bool = False) -> None:
    r"""Write a point cloud, a mesh or a graph; an old file is replaced only by a complete one.

    Args:
        data: A PyG ``Data`` with ``pos`` (N, 3), and whatever else :func:`load` returns. Texts,
            .pcd and .npy take (N, 2) as well, .npz any (N, d). Or an
            :class:`~graphattn.AttentionGraph`, a pattern, a :class:`~graphattn.PerHead`, a
            :class:`~graphattn.PerExample`, relations, or a list of layers. Or a
            :class:`~graphattn.shapes.Trajectory`, into what
            :func:`~graphattn.shapes.save_trajectory` writes.
        path: Of a graph, a .json that can be read and compared, or a .safetensors
            (``pip install 'graphattn[hf]'``) for many listed edges. Of a shape, a name that ends in
            .ply (binary), .obj, .off, .stl (binary), .glb, .pcd (binary), .las, .laz, .xyz, .pts,
            .txt, .csv, .extxyz (atoms in a cell), .npz or .npy. What :func:`load` reads from it are the same numbers, in a
            type that holds them; but .las and .laz have coordinates as 32-bit integers of a scale,
            and round them. .npz keeps every tensor, .ply all that have a row for each point or
            face.
        lossy: Leave out tensors that the format has no place for, and round numbers that it cannot
            hold.

    Raises:
        GraphError: If a graph cannot be saved; see :func:`~graphattn.convert.graph_to_dict`.
        LoaderError: If the format cannot hold a tensor, ``data`` has no ``pos``, or the file cannot
            be written.

    Example:
        >>> import pathlib, tempfile, torch
        >>> from torch_geometric.data import Data
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "cloud.ply"
        >>> save(Data(pos=torch.rand(5, 3), color=torch.tensor([[1.0, 0, 0]] * 5), curvature=torch.rand(5)), path)
        >>> from graphattn import load
        >>> load(path)
        Shape(pos=[5, 3], curvature=[5], color=[5, 3])
    """
    is_series = isinstance(data, Trajectory)
    if is_series or isinstance(data, Layer | Relations | list | tuple) or is_saved_graph(path):
        if lossy:
            raise LoaderError("lossy: expected False, got True. Try: it is of shapes alone.")
        if is_series:
            return save_trajectory(data, path)
        return save_graph(data, path)
    kind = suffix(path, tuple(WRITERS), "save")
    if not hasattr(data, "to_dict"):
        raise fault("data", "a torch_geometric.data.Data", type(data).__name__, "Data(pos=...)")
    parts = parts_of(data, file_name(path), WIDTHS[kind], lossy)
    replace_file(path, lambda file: WRITERS[kind](file, parts))


def save_frames(shapes: Iterable[Any], path: PathLike, *, lossy: bool = False) -> None:
    """Write structures one after another as extended XYZ, which ASE and others read.

    Args:
        shapes: Shapes as of :func:`load_frames`; without ``z`` the species are X.
        path: A name that ends in .extxyz; a file of that name is replaced once the new one is
            whole.
        lossy: Leave out tensors that the format has no place for.

    Raises:
        LoaderError: If the format cannot hold a tensor, or the file cannot be written.
    """
    kind = suffix(path, (".extxyz",), "save_frames")
    expected = "must be a list of shapes"
    every = [
        parts_of(shape, file_name(path), WIDTHS[kind], lossy)
        for shape in several(shapes, "shapes", expected, LoaderError)
    ]

    def write(file: BinaryIO) -> None:
        for parts in every:
            WRITERS[kind](file, parts)

    replace_file(path, write)
