"""Files of trajectories: NPZ, and time series of meshes as ParaView reads them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch

from ..errors import LoaderError, ShapeError, need_extra, warn
from ..graphs.mesh.cells import KINDS
from ..io.arrays import open_archive, read_entries
from ..io.reading import MAX_BYTES, PathLike, fault, file_name, open_regular, suffix
from ..io.writing import replace_file
from .trajectory import Trajectory
from .weather import ENDINGS as WEATHER
from .weather import load_weather, save_weather

SERIES = (".npz", ".xdmf", ".xmf", ".pvd", *WEATHER)  # of a whole trajectory
_POSITIONS = ("pos", "points", "mesh_pos", "positions", "vertices")
_TIME = ("time", "times", "t")
_KINDS_OF_NODES = ("kinds", "node_type")


def load_trajectory(
    path: PathLike | Sequence[PathLike], *, max_bytes: int = MAX_BYTES
) -> Trajectory:
    """A simulation from a file, or from one file for each step.

    ============= =====================================================================================
    ``.npz``      ``pos`` (also ``points``, ``mesh_pos``) (N, d) or (T, N, d); ``time`` (T,) or ``dt``;
                  ``faces``, ``cells`` or tables named by their kind (``tetra``, ``cells.quad``);
                  ``fixed`` or ``fixed.NAME``; ``kinds`` or ``node_type`` (N,); ``forcing.NAME``
                  (T, N, C), (1, N, C) of what stays;
                  every other array (T, N) or (T, N, C) is a field
    ``.xdmf``     a temporal collection, of fields at the nodes
    ``.pvd``      steps that it names, with their times
    ``.vtu``      a list of paths, a step each, in order; times are 0, 1, 2 and so on
    ``.nc``       NetCDF (also ``.nc4``), and stores ``.zarr``, by the conventions of CF: ``time`` (or
                  ``valid_time``), ``latitude`` and ``longitude`` of a grid, or of a list of cells, in
                  any order of dimensions; or ``x`` and ``y``. Variables of time and place are fields,
                  levels their components; what stays, or is the same everywhere, is forcing. Hours
                  from the first time; positions on the unit sphere
    ============= =====================================================================================

    Fields of cells are warned of and left out. A third coordinate that is 0 everywhere is dropped,
    and so is that of vectors with three components in such a plane that is 0.

    Args:
        path: A file, or a list of files.
        max_bytes: Largest size of a file, of ``.nc`` and ``.zarr`` that of all their numbers.
    Raises:
        LoaderError: If a file cannot be read, or its mesh differs from the first step's.
        ShapeError: If its arrays are no trajectory; the step and the field are named.
    Example:
        >>> import tempfile
        >>> swirl = Trajectory(torch.rand(4, 2), {"u": torch.rand(3, 4, 2)}, dt=0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_trajectory(swirl, f"{folder}/swirl.npz")
        ...     load_trajectory(f"{folder}/swirl.npz")
        Trajectory(3 steps of 4 nodes in 2 dimensions, u (2), particles, dt 0.1)
    """
    if not isinstance(path, str | Path) and isinstance(path, Sequence):
        return _of_steps(str(path[0]), [(float(i), file) for i, file in enumerate(path)])
    ending = suffix(path, (*SERIES, ".vtu"), "load_trajectory")
    if ending in WEATHER:
        return load_weather(path, max_bytes)
    if ending == ".npz":
        return _of_arrays(path, max_bytes)
    if ending == ".pvd":
        return _of_steps(file_name(path), _named_steps(path))
    if ending == ".vtu":
        return _of_steps(file_name(path), [(0.0, path)])
    return _of_collection(file_name(path))


def load_trajectories(folder: PathLike, *, max_bytes: int = MAX_BYTES) -> list[Trajectory]:
    """All trajectories of a folder, a file each, in the natural order of their names.

    Raises:
        LoaderError: If there is none, or their fields differ: the file is named.
    """
    return list(each_trajectory(folder, max_bytes))


def each_trajectory(folder: PathLike, max_bytes: int = MAX_BYTES) -> Iterator[Trajectory]:
    """The trajectories of a folder, one after the other."""
    files = [file for file in Path(file_name(folder)).iterdir() if file.suffix.lower() in SERIES]
    if not files:
        raise fault(
            folder, f"files {', '.join(SERIES)}", "none", "save_trajectory(trajectory, path)"
        )
    files.sort(
        key=lambda file: [int(w) if w.isdigit() else w for w in re.split(r"(\d+)", file.name)]
    )
    first: dict[str, int] = {}
    for file in files:
        trajectory = load_trajectory(file, max_bytes=max_bytes)
        widths = {name: x.shape[-1] for name, x in trajectory.fields.items()}
        first = first or widths
        if widths != first:
            words = f"the fields of {files[0].name}, {first}"
            raise fault(file, words, widths, "another folder")
        yield trajectory


def save_trajectory(trajectory: Trajectory, path: PathLike) -> None:
    """Write a trajectory as ``.npz``, or for ParaView as ``.xdmf``, or ``.pvd`` where nodes move.

    One that was read from ``.nc`` or ``.zarr`` is written as either with the same coordinates.
    ``.npz`` has all else, and :func:`load_trajectory` reads the same numbers. The others have
    positions, cells and fields; a mesh in the plane keeps two coordinates in ``.xdmf``, and vectors
    of two components have a third, 0, that ParaView needs.

    Raises:
        LoaderError: If the file cannot be written, or ``.xdmf`` should hold nodes that move.
    """
    ending = format_of(trajectory, path)
    if ending in WEATHER:
        save_weather(trajectory, path)
        return
    if ending == ".npz":
        arrays: Any = {name: x.detach().cpu().numpy() for name, x in trajectory.tensors().items()}
        replace_file(path, lambda file: np.savez_compressed(file, **arrays))
        return
    steps = range(trajectory.num_steps)
    if ending == ".xdmf":
        meshio = _meshio()
        mesh = _mesh_of(trajectory, 0)
        with meshio.xdmf.TimeSeriesWriter(file_name(path), data_format="XML") as writer:
            writer.write_points_cells(mesh.points, mesh.cells)
            for step in steps:
                time = float(trajectory.time[step])
                writer.write_data(time, point_data=_mesh_of(trajectory, step).point_data)
        return
    folder = Path(file_name(path)).with_suffix("")
    folder.mkdir(exist_ok=True)
    lines = []
    for step in steps:
        file = folder / f"{step:06d}.vtu"
        _mesh_of(trajectory, step, 3).write(file)
        lines.append(
            f'<DataSet timestep="{float(trajectory.time[step])!r}" file="{folder.name}/{file.name}"/>'
        )
    head = '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1">\n<Collection>'
    text = "\n".join([head, *lines, "</Collection>\n</VTKFile>\n"])
    replace_file(path, lambda file: file.write(text.encode()))


def format_of(trajectory: Trajectory, path: PathLike) -> str:
    """The ending of a file that a trajectory is written to, if that holds it."""
    ending = suffix(path, (".npz", ".xdmf", ".pvd", *WEATHER), "save_trajectory")
    if ending in WEATHER and trajectory.template is None:
        raise fault(path, "a trajectory read from .nc or .zarr", "another", "a .npz or .xdmf")
    if ending == ".xdmf" and trajectory.pos.dim() == 3:
        raise fault(path, "nodes that stay, as .xdmf has one mesh", "nodes that move", "a .pvd")
    return ending


def _of_arrays(path: PathLike, max_bytes: int) -> Trajectory:
    with open_regular(path, max_bytes) as file:
        where = file_name(path)
        archive, names = open_archive(where, file, max_bytes)
        arrays = {name: np.array(x) for name, x in read_entries(where, archive, names).items()}
    place = next((name for name in _POSITIONS if name in arrays), None)
    if place is None:
        fix = "numpy.savez(path, pos=..., u=...)"
        raise fault(where, "an array pos of shape (N, d)", f"the arrays {names[:8]}", fix)
    pos = arrays.pop(place)
    if pos.ndim == 3 and len(pos) and (pos == pos[:1]).all():
        pos = pos[0]
    options: dict[str, Any] = {"name": Path(where).name, "forcing": {}, "cells": [], "fixed": {}}
    fields: dict[str, Any] = {}
    for name, array in arrays.items():
        group, _, rest = name.partition(".")
        if group == "fields" and rest:
            fields[rest] = array
        elif group == "forcing" and rest:
            options["forcing"][rest] = array
        elif group == "fixed":
            if not rest:
                options["fixed"] = array.astype(bool).reshape(-1)
            else:
                options["fixed"][rest] = array.astype(bool).reshape(-1)
        elif name == "dt":
            options["dt"] = float(array)
        elif name in _TIME:
            options["time"] = array
        elif name in _KINDS_OF_NODES:
            options["kinds"] = _constant(where, name, array, 1)
        elif group in ("cells", "faces") or name in KINDS:
            rows = _constant(where, name, array, 2)
            options["cells"].append((_kind(where, name, rows, pos.shape[-1]), rows))
        else:
            fields[name] = array
    steps = {len(array) for array in fields.values()}
    forcing = options["forcing"].items()
    options["constant"] = [name for name, x in forcing if x.shape[:1] == (1,) and steps != {1}]
    if not options["fixed"] and isinstance(options["fixed"], dict):
        options["fixed"] = None
    return Trajectory(torch.from_numpy(pos), fields, **options)


def _constant(where: str, name: str, array: np.ndarray, axes: int) -> np.ndarray:
    """An array of the mesh without its axis of time, along which it must not change."""
    if name in _KINDS_OF_NODES and array.shape[-1:] == (1,):
        array = array[..., 0]
    if array.ndim <= axes:
        return array
    if array.ndim > axes + 1 or (array != array[:1]).any():
        fix = "a trajectory for each mesh"
        raise fault(where, f"{name} that stays over time", f"{array.shape} that changes", fix)
    return array[0]


def _kind(where: str, name: str, rows: np.ndarray, axes: int) -> str:
    """The kind of cells: the name's, or what its number of corners can be alone."""
    last = name.rpartition(".")[2]
    if last in KINDS:
        return last
    corners = rows.shape[-1]
    if corners == 3:
        return "triangle"
    if corners == 4 and (name == "faces" or axes == 2):
        return "quad"
    if corners == 4:
        return "tetra"
    raise fault(where, "cells of 3 or 4 corners", rows.shape, "a name by kind, such as cells.wedge")


def _meshio() -> Any:
    try:
        import meshio
        import meshio.xdmf
    except ModuleNotFoundError:
        raise need_extra("meshio", "fem") from None
    return meshio


def _mesh_of(trajectory: Trajectory, step: int, least_axes: int = 2) -> Any:
    """The mesh of a step for meshio; particles are cells of one vertex."""
    meshio = _meshio()
    cells = [(kind, rows.cpu().numpy()) for kind, rows in trajectory.cells]
    if not cells:
        cells = [("vertex", np.arange(trajectory.num_nodes)[:, None])]
    data = {}
    for name, x in trajectory.fields.items():
        values = x[step].detach().cpu().numpy()
        if values.shape[1] == 1:
            values = values[:, 0]
        elif values.shape[1] == 2:
            values = np.pad(values, ((0, 0), (0, 1)))
        data[name] = values
    pos = trajectory.positions(step).detach().cpu().numpy()
    axes = max(pos.shape[1], least_axes)
    return meshio.Mesh(np.pad(pos, ((0, 0), (0, axes - pos.shape[1]))), cells, point_data=data)


def _named_steps(path: PathLike) -> list[tuple[float, Path]]:
    """The times and files that a .pvd names."""
    where = file_name(path)
    try:
        sets = list(ElementTree.parse(where).iter("DataSet"))
        return [
            (float(each.get("timestep", i)), Path(where).parent / each.attrib["file"])
            for i, each in enumerate(sets)
        ]
    except (OSError, ElementTree.ParseError, KeyError, ValueError) as error:
        raise fault(where, "a .pvd with steps", f"{error!r}", "ParaView's own") from None


def _of_steps(where: str, steps: Sequence[tuple[float, PathLike]]) -> Trajectory:
    meshes = []
    for _, file in steps:
        meshes.append((file_name(file), _read(_meshio().read, file_name(file))))
    times = [time for time, _ in steps]
    if not meshes:
        raise fault(where, "at least one step", "none", "another file")
    first = meshes[0][1]
    for file, mesh in meshes[1:]:
        same = [block.type for block in mesh.cells] == [block.type for block in first.cells]
        if not same or any(
            not np.array_equal(a.data, b.data) for a, b in zip(mesh.cells, first.cells, strict=True)
        ):
            raise fault(
                file, f"the cells of {meshes[0][0]}", "others", "a trajectory for each mesh"
            )
    pos = np.stack([mesh.points for _, mesh in meshes])
    if (pos == pos[:1]).all():
        pos = pos[0]
    data = [(file, mesh.point_data, mesh.cell_data) for file, mesh in meshes]
    return _joined(where, times, pos, first.cells, data)


def _of_collection(where: str) -> Trajectory:
    meshio = _meshio()
    reader = _read(meshio.xdmf.TimeSeriesReader, where)
    times = []
    data = []
    with reader:
        pos, cells = reader.read_points_cells()
        for step in range(reader.num_steps):
            time, of_points, of_cells = reader.read_data(step)
            times.append(time)
            data.append((f"{where}, step {step}", of_points, of_cells))
    return _joined(where, times, pos, cells, data)


def _read(call: Any, where: str) -> Any:
    """What meshio reads; its errors name no file."""
    try:
        return call(where)
    except (Exception, SystemExit) as error:  # it ends the process where it does not know a file
        raise fault(where, "a mesh that meshio reads", f"{error!r}"[:200], "meshio info") from None


def _joined(
    where: str,
    times: list[float],
    pos: np.ndarray,
    cells: Iterable[Any],
    data: list[tuple[str, dict[str, np.ndarray], dict[str, Any]]],
) -> Trajectory:
    """Steps side by side; a plane has two coordinates."""
    names = data[0][1].keys()
    for place, of_points, _ in data:
        if of_points.keys() != names:
            got = sorted(of_points)
            raise fault(
                place, f"the fields {sorted(names)} of the first step", got, "all steps alike"
            )
    dropped = sorted(set().union(*(of_cells for _, _, of_cells in data)))
    if dropped:
        warn(f"{where}: fields of cells are left out: {', '.join(dropped)}; average them to nodes")
    is_plane = pos.shape[-1] == 3 and not pos[..., 2].any()
    if is_plane:
        pos = pos[..., :2]
    fields: dict[str, Any] = {}
    for name in names:
        shapes = {of_points[name].shape for _, of_points, _ in data}
        if len(shapes) > 1:
            raise ShapeError(f"{where}: field {name} must keep its shape, got {sorted(shapes)}")
        values = np.stack([of_points[name] for _, of_points, _ in data])
        if pos.shape[-1] == 2 and values.shape[2:] == (3,) and not values[..., 2].any():
            values = values[..., :2]
        fields[name] = values
    if not fields:
        raise LoaderError(
            f"{where}: expected fields at the nodes, got none. Try: cell data to point data."
        )
    blocks = [(block.type, block.data) for block in cells if block.type != "vertex"]
    return Trajectory(
        torch.from_numpy(pos),
        fields,
        cells=blocks,
        time=torch.tensor(times, dtype=torch.float64),
        name=Path(where).name,
    )
