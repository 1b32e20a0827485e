"""Weather as NetCDF and zarr have it, by the conventions of CF: xarray reads and writes the files."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import GraphError, LoaderError, need_extra, warn
from ..graphs.points.sphere import on_sphere
from ..io.reading import PathLike, fault, file_name
from ..io.writing import replace_file
from .trajectory import Fields, Trajectory

ENDINGS = (".nc", ".nc4", ".zarr")
_NAMES = {
    "latitude": ("latitude", "lat", "latitudes", "nav_lat"),
    "longitude": ("longitude", "lon", "longitudes", "nav_lon"),
    "projection_x_coordinate": ("x",),
    "projection_y_coordinate": ("y",),
}
_UNITS = {  # of CF
    "latitude": ("degrees_north", "degree_north", "degrees_N", "degree_N"),
    "longitude": ("degrees_east", "degree_east", "degrees_E", "degree_E"),
}
_TIMES = ("time", "valid_time", "t", "step", "lead_time", "prediction_timedelta")
_STORE = ("zarr.json", ".zgroup")  # of versions 3 and 2
_ENCODING = ("grid_mapping", "calendar")  # what xarray keeps there of CF
_WRAP = 359.999  # degrees between the first and the last column of a grid


def load_weather(path: PathLike, max_bytes: int) -> Trajectory:
    """A trajectory from a file of NetCDF or a store of zarr.

    Nodes lie at latitudes and longitudes, of a grid or one for each cell, and get unit vectors; or
    at ``x`` and ``y``. What has time and place is a field, whose other dimensions, such as levels,
    are components. What has one of them alone, such as a mask of land, is forcing. Times are hours
    after the first. Where a field is NaN at every step, such as that of the sea on land, nodes are
    fixed at its mean elsewhere.

    Raises:
        LoaderError: With the file, and the field and the step of numbers that are not finite.
    """
    where = file_name(path).rstrip("/")
    with _opened(where) as opened:
        places = [_coordinate(opened, kind) for kind in _NAMES]
        dates = [x for x in opened.data_vars.values() if x.dtype.kind == "M"]
        dataset = opened.set_coords([x.name for x in (*places, *dates) if x is not None])
        if dataset.nbytes > max_bytes:
            fix = "max_bytes=... if that is meant, or some variables or times of it"
            raise fault(where, f"at most {max_bytes} bytes", dataset.nbytes, fix)
        return _trajectory(where, dataset)


def save_weather(trajectory: Trajectory, path: PathLike) -> None:
    """Write a trajectory with the names, dimensions and coordinates of the file it was read from."""
    template = trajectory.template
    where = file_name(path).rstrip("/")
    nodes, _, _ = _places(where, template)
    clock = _clock(where, template, nodes)
    (along,) = clock.dims
    times = clock.to_index()[:1].repeat(trajectory.num_steps)
    if clock.dtype.kind in "mMO":  # dates, of cftime too, or what has passed
        pandas = _module("pandas")
        passed = (trajectory.time * 3.6e6).round().numpy()
        times = times + pandas.to_timedelta(passed, unit="ms")
    else:
        times = times + trajectory.time.numpy()
    dataset = template.drop_vars([*template.data_vars, clock.name])
    dataset = dataset.assign_coords({clock.name: (along, times, clock.attrs)})
    values = {**trajectory.forcing, **trajectory.fields}
    new = sorted(values.keys() - template.data_vars.keys())
    if new:
        raise fault(where, f"the names of its file, {[*template.data_vars]}", new, "a .npz")
    for name, x in values.items():
        sample = template[name]
        if along in sample.dims:
            dims = [*nodes, *(d for d in sample.dims if d not in (along, *nodes))]
            array = x.detach().cpu().numpy().reshape(len(x), *(template.sizes[d] for d in dims))
            is_missing = sample.isnull().isel({along: 0}, drop=True)
            variable = type(sample)(array, dims=(along, *dims), attrs=sample.attrs)
            same = {d: 0 for d in nodes if d not in sample.dims}
            variable = variable.isel(same).where(~is_missing).transpose(*sample.dims)
            variable.encoding = sample.encoding
            sample = variable
        dataset[name] = sample
    if where.lower().endswith(".zarr"):
        store = Path(where)
        if store.exists() and not any((store / name).is_file() for name in _STORE):
            raise fault(
                where, "a store of zarr, which is replaced, or none", "another", "a new name"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other programs read a zarr 3 without its index, too
            dataset.to_zarr(where, mode="w")
        return
    data = dataset.to_netcdf(engine="h5netcdf")  # HDF5 reads what it writes, as files here do not
    replace_file(path, lambda file: file.write(data))


def _trajectory(where: str, dataset: Any) -> Trajectory:
    nodes, pos, unit = _places(where, dataset)
    clock = _clock(where, dataset, nodes)
    (along,) = clock.dims
    dataset = dataset.set_coords(clock.name)
    index = clock.to_index()
    hours = (index - index[0]).to_numpy()
    units = {"pos": unit, "time": str(clock.attrs.get("units", ""))}
    if hours.dtype.kind == "m":
        hours = hours.astype("timedelta64[ms]").astype("float64") / 3.6e6
        units["time"] = "h"
    fields: Fields = {}
    forcing: Fields = {}
    fixed: Fields = {}
    constant = []
    unread = []
    names = list(dataset.data_vars)
    if where.lower().endswith(".zarr"):
        names.sort(key=str)  # a store has no order
    for name in names:
        variable = dataset[name]
        dims = {along, *nodes} & {*variable.dims}
        if variable.dtype.kind not in "iufb" or not dims:
            unread.append(name)
            continue
        x = _values(variable, along, nodes, dataset.sizes)
        x, missing = _filled(where, name, x, clock)
        units[name] = str(variable.attrs.get("units", ""))
        if len(dims) <= len(nodes):
            forcing[name] = x
            if along not in dims:
                constant.append(name)
            continue
        fields[name] = x
        fixed[name] = missing
    if not fields:
        got = [f"{name} {variable.dims}" for name, variable in dataset.data_vars.items()]
        raise fault(where, f"variables of {along} and {', '.join(nodes)}", got[:8], "another file")
    if unread:
        warn(f"left out, without numbers of a time or a place: {', '.join(unread[:12])}")
    # of two steps, as a dimension of one start of a forecast has one
    template = dataset[[*fields, *forcing]].isel({along: slice(2)})
    others = [name for name, x in template.coords.items() if along in x.dims and name != clock.name]
    for variable in template.variables.values():  # without that of a format, or of packed numbers
        encoding = variable.encoding
        variable.encoding = {name: x for name, x in encoding.items() if name in _ENCODING}
    return Trajectory(
        pos,
        fields,
        fixed=fixed,
        forcing=forcing,
        constant=constant,
        time=torch.from_numpy(hours.astype("float64")),
        name=Path(where).name,
        units={name: unit for name, unit in units.items() if unit},
        template=template.drop_vars(others).load(),
    )


def _module(name: str) -> Any:
    try:
        return __import__(name)
    except ModuleNotFoundError:
        raise need_extra(name, "weather") from None


def _opened(where: str) -> Any:
    xarray = _module("xarray")
    options: dict[str, Any] = {}
    if where.lower().endswith(".zarr"):
        _module("zarr")
        options = {"engine": "zarr", "consolidated": False}
    try:
        opened = xarray.open_dataset(where, decode_timedelta=False, decode_coords="all", **options)
    except Exception as error:  # of each engine its own
        if "installed" in str(error) or isinstance(error, ImportError):
            _module("h5netcdf")
            _module("h5py")
        got = f"{type(error).__name__}: {error}"[:200]
        raise fault(where, "a file that xarray reads", got, "xarray.open_dataset(path)") from None
    for name, x in opened.variables.items():  # of times alone: a field in days is one of numbers
        if x.ndim == 1 and (name in x.dims or name in _TIMES):
            opened[name] = xarray.coders.CFTimedeltaCoder().decode(x, name)
    return opened


def _coordinate(dataset: Any, kind: str) -> Any:
    """The variable of a coordinate by its standard name, its units or its own name; or None."""
    bounds = {x.encoding.get("bounds") for x in dataset.variables.values()}
    coordinates = {name: x for name, x in dataset.coords.items() if name not in bounds}
    variables = coordinates
    if kind in _UNITS:  # a field may be called x
        variables = coordinates | dict(dataset.data_vars)
    for variable in variables.values():
        if variable.attrs.get("standard_name") == kind:
            return variable
    units = _UNITS.get(kind, ())
    for variable in coordinates.values():
        if variable.attrs.get("units") in units:
            return variable
    for name in _NAMES[kind]:
        if name in variables:
            return variables[name]
    return next((x for x in variables.values() if x.attrs.get("units") in units), None)


def _places(where: str, dataset: Any) -> tuple[tuple[str, ...], Tensor, str]:
    """The dimensions of the nodes, their positions (N, d), and the unit of these."""
    north, east = (_coordinate(dataset, kind) for kind in ("latitude", "longitude"))
    is_globe = _is_axis(north) and _is_axis(east)
    if not is_globe:
        kinds = ("projection_y_coordinate", "projection_x_coordinate")
        north, east = (_coordinate(dataset, kind) for kind in kinds)
    if not (_is_axis(north) and _is_axis(east)):
        raise fault(
            where,
            "coordinates latitude and longitude, or x and y",
            f"the coordinates {[f'{name} {x.shape}' for name, x in dataset.coords.items()][:12]}",
            "dataset.assign_coords, or dataset.rename",
        )
    nodes = tuple(dict.fromkeys((*north.dims, *east.dims)))
    sizes = {name: dataset.sizes[name] for name in nodes}
    axes = []
    for axis in (north, east):
        values = axis.variable.set_dims(sizes).transpose(*nodes).values
        axes.append(torch.from_numpy(values.reshape(-1).astype("float64")))
    if not is_globe:
        return nodes, torch.stack(axes[::-1], 1).float(), str(east.attrs.get("units", ""))
    if str(north.attrs.get("units", "")).startswith("rad"):
        axes = [axis.rad2deg() for axis in axes]
    lat, lon = axes
    if float(lon.max() - lon.min()) > _WRAP and east.dims != north.dims:
        warn(f"{where}: the first and the last longitude are one place twice; leave one out")
    try:
        return nodes, on_sphere(lat, lon).float(), "radii"
    except GraphError as error:
        raise LoaderError(f"{where}: {error}") from None


def _is_axis(variable: Any) -> bool:
    return variable is not None and variable.ndim > 0 and variable.size > 0


def _clock(where: str, dataset: Any, nodes: tuple[str, ...]) -> Any:
    """The coordinate of time, along one dimension."""
    found: dict[str, tuple[tuple[bool, ...], Any]] = {}  # the likeliest along each dimension
    for name, variable in {**dataset.data_vars, **dataset.coords}.items():
        if len(variable.dims) != 1 or variable.dims[0] in nodes:
            continue
        along = variable.dims[0]
        is_date = variable.dtype.kind in "mM" or "calendar" in variable.encoding
        is_time = is_date or variable.attrs.get("standard_name") == "time"
        if is_time or name in _TIMES:
            likely = (is_time, name == along)
            if along not in found or likely > found[along][0]:
                found[along] = (likely, variable)
    # a forecast has the time of its start, too
    found = {along: x for along, x in found.items() if len(x[1]) > 1} or found
    if len(found) == 1 and dataset.sizes[next(iter(found))]:
        return next(iter(found.values()))[1]
    got = [f"{along} ({dataset.sizes[along]})" for along in found]
    if not found:
        got = [f"{along} ({size})" for along, size in dataset.sizes.items()]
    fix = "a file for each start of a forecast: dataset.isel(time=0)"
    raise fault(where, "one dimension with a coordinate of time", ", ".join(got), fix)


def _values(variable: Any, along: str, nodes: tuple[str, ...], sizes: Any) -> Tensor:
    """Values (T, N, C), or (1, N, C) of what stays."""
    variable = variable.variable
    others = [d for d in variable.dims if d not in (along, *nodes)]
    whole = {along: variable.sizes.get(along, 1)} | {d: sizes[d] for d in (*nodes, *others)}
    array = variable.set_dims(whole).transpose(*whole).values
    array = array.reshape(whole[along], int(np.prod([sizes[d] for d in nodes])), -1)
    if array.dtype != np.float64:
        array = array.astype("float32")
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))


def _filled(where: str, name: str, x: Tensor, clock: Any) -> tuple[Tensor, Tensor]:
    """Values (T, N, C) with a mean where nodes are NaN at every step, and bool (N,) of these."""
    is_missing = torch.isnan(x)
    missing = is_missing.all(0).all(-1)
    label = f"{where}: {name}"
    if bool(missing.all()):
        raise fault(label, "numbers", "NaN alone", "a file without it")
    bad = torch.nonzero(is_missing & ~missing[:, None])
    if len(bad):
        step, node, component = bad[0].tolist()
        got = f"NaN at step {step} ({clock.values[step]}), node {node}, component {component}"
        fix = "dataset.interpolate_na, or levels and times without NaN"
        raise fault(label, "numbers, or NaN at the same nodes at every step", got, fix)
    if bool(missing.any()):
        # without the file: one warning for all of a folder
        words = f"{int(missing.sum()):,} of {len(missing):,} nodes"
        warn(f"{name} is NaN at {words} at every step; there it stays at its mean elsewhere")
        mean = x[:, ~missing].double().mean((0, 1)).to(x.dtype)
        x = torch.where(missing[:, None], mean, x)
    return x, missing
