"""Files of weather, with the dimensions and names that others give them, read and written."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import LoaderError, MissingExtraError, ShapeError
from graphattn.shapes import Trajectory, load_trajectories, load_trajectory, save_trajectory

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5py")
pytest.importorskip("zarr")

T, LAT, LON = 4, np.array([60.0, 0.0, -30.0]), np.arange(0, 360, 72.0)
HOURS = np.array("2020-02-28", "datetime64[ns]") + 6 * np.arange(T) * np.timedelta64(1, "h")
PLACES = {"latitude": LAT, "longitude": LON}


def draw(*shape):
    return np.random.default_rng(sum(shape)).random(shape).astype("float32")


def era5():
    """As the climate data store writes it since 2024, packed."""
    dataset = xarray.Dataset(
        {
            "t": (("valid_time", "pressure_level", "latitude", "longitude"), draw(T, 2, 3, 5)),
            "t2m": (("valid_time", "latitude", "longitude"), draw(T, 3, 5), {"units": "K"}),
        },
        {"valid_time": HOURS, "pressure_level": [500.0, 850.0], **PLACES},
    )
    dataset.t2m.encoding = {"dtype": "int16", "scale_factor": 1e-4, "_FillValue": -1}
    return dataset.assign_coords(number=0, expver=("valid_time", ["0001"] * T))


def weatherbench():
    """Longitude before latitude, constants, and a sea without land."""
    sea = draw(T, 5, 3)
    sea[:, 2, 1] = np.nan
    dims = ("time", "longitude", "latitude")
    return xarray.Dataset(
        {
            "2m_temperature": (dims, draw(T, 5, 3), {"units": "K"}),
            "sea_surface_temperature": (dims, sea),
            "land_sea_mask": (dims[1:], draw(5, 3)),
        },
        {"time": HOURS, **PLACES},
    )


def graphcast():
    """A batch of one, times after the start, and what is the same on all latitudes."""
    day = np.broadcast_to(draw(T, 5), (1, T, 5))
    return xarray.Dataset(
        {
            "z": (("batch", "time", "level", "lat", "lon"), draw(1, T, 2, 3, 5)),
            "day": (("batch", "time", "lon"), day),
            "year": (("batch", "time"), draw(1, T)),
        },
        {
            "time": HOURS - HOURS[0],
            "datetime": (("batch", "time"), HOURS[None]),
            "level": [500, 850],
            "lat": LAT[::-1],
            "lon": LON,
        },
    )


@pytest.mark.parametrize("ending", ["nc", "zarr"])
@pytest.mark.parametrize("made", [era5, weatherbench, graphcast])
@pytest.mark.filterwarnings("ignore:sea_surface_temperature is NaN", "ignore:.*Zarr V3")
def test_files_are_read_where_they_are_and_written_back(made, ending, tmp_path):
    dataset = made()
    path = tmp_path / f"a.{ending}"
    write(dataset, path)
    read = load_trajectory(path)
    assert read.time.tolist() == [0, 6, 12, 18]
    assert read.units["time"] == "h"
    assert "dt 6 h" in repr(read)
    place = ga.graphs.on_sphere(torch.tensor([-30.0]), torch.tensor([72.0]))
    node = int((read.pos - place).norm(dim=1).argmin())
    torch.testing.assert_close(read.pos[node].double(), place[0])
    here = dataset.rename({"lat": "latitude", "lon": "longitude"} if "lat" in dataset else {})
    here = here.sel(latitude=-30, longitude=72)
    for name, x in {**read.fields, **read.forcing}.items():
        values = here[name].values
        expected = torch.tensor(values.reshape(-1, x.shape[2])).expand(x.shape[::2])
        torch.testing.assert_close(x[:, node], expected, atol=1e-4, rtol=0, check_dtype=False)
    again = tmp_path / f"b.{ending}"
    save_trajectory(read.steps(1), again)
    back = xarray.open_dataset(again, decode_timedelta=True, engine={"zarr": "zarr"}.get(ending))
    time = "valid_time" if "valid_time" in dataset.dims else "time"
    expected = dataset.isel({time: slice(1, None)})
    for name in (*read.fields, *read.forcing):
        kept = expected[name].drop_vars(["expver", "datetime"], errors="ignore")
        xarray.testing.assert_allclose(back[name], kept, atol=1e-4)
        assert back[name].attrs == dataset[name].attrs
    assert torch.equal(load_trajectory(again).pos, read.pos)


def write(dataset, path):
    if path.suffix == ".zarr":
        dataset.to_zarr(path, consolidated=False)
    else:
        dataset.to_netcdf(path, engine="h5netcdf")


def test_land_in_a_field_of_the_sea_is_fixed(tmp_path):
    write(weatherbench(), tmp_path / "a.nc")
    with pytest.warns(UserWarning, match="temperature is NaN at 1 of 15 nodes at every step"):
        read = load_trajectory(tmp_path / "a.nc")
    fixed = read.fixed["sea_surface_temperature"]
    assert fixed.nonzero().tolist() == [[1 * 5 + 2]]
    assert not read.fixed["2m_temperature"].any()
    sea = read.fields["sea_surface_temperature"]
    torch.testing.assert_close(sea[:, fixed].mean(), sea[:, ~fixed].mean())
    assert list(read.forcing) == ["land_sea_mask"]
    save_trajectory(read, tmp_path / "b.nc")
    xarray.testing.assert_allclose(xarray.open_dataset(tmp_path / "b.nc"), weatherbench())


def test_cells_of_neural_lam_have_names_of_features_as_components(tmp_path):
    dataset = xarray.Dataset(
        {
            "state": (("time", "grid_index", "state_feature"), draw(T, 7, 2)),
            "static": (("grid_index", "static_feature"), draw(7, 3)),
            "state__train__mean": (("state_feature",), draw(2)),
        },
        {
            "time": HOURS,
            "state_feature": ["u100m", "t2m"],
            "x": ("grid_index", draw(7), {"units": "m"}),
            "y": ("grid_index", draw(7) + 9),
        },
    )
    write(dataset, tmp_path / "danra.zarr")
    with pytest.warns(UserWarning, match="left out.*: state__train__mean"):
        read = load_trajectory(tmp_path / "danra.zarr")
    assert read.pos.tolist() == np.stack((draw(7), draw(7) + 9), 1).tolist()
    assert read.units == {"time": "h", "pos": "m"}
    assert torch.equal(read.fields["state"], torch.from_numpy(draw(T, 7, 2)))
    assert torch.equal(read.forcing["static"][2], torch.from_numpy(draw(7, 3)))
    save_trajectory(read, tmp_path / "b.nc")
    back = xarray.open_dataset(tmp_path / "b.nc")
    assert back.state_feature.values.tolist() == ["u100m", "t2m"]


def test_places_and_dates_that_are_no_coordinates_are_none_of_the_data(tmp_path):
    dataset = xarray.Dataset(  # as anemoi has it
        {
            "data": (("time", "variable", "ensemble", "cell"), draw(T, 3, 1, 7)),
            "dates": ("time", HOURS),
            "latitudes": ("cell", draw(7) * 90),
            "longitudes": ("cell", draw(7) * 360),
            "mean": ("variable", draw(3)),
        }
    )
    write(dataset, tmp_path / "a.zarr")
    with pytest.warns(UserWarning, match="left out.*: mean"):
        read = load_trajectory(tmp_path / "a.zarr")
    assert (list(read.fields), list(read.forcing)) == (["data"], [])
    save_trajectory(read, tmp_path / "b.nc")
    back = xarray.open_dataset(tmp_path / "b.nc")
    xarray.testing.assert_allclose(
        back.data, dataset.set_coords(["dates", "latitudes", "longitudes"]).data
    )
    assert back.dates.values.tolist() == HOURS.tolist()


def test_a_classic_file_with_numbers_for_times(tmp_path):
    dataset = weatherbench()[["2m_temperature", "land_sea_mask"]]
    dataset["time"] = ("time", [0.0, 0.5, 1.0, 1.5], {"units": "turns"})
    dataset.to_netcdf(tmp_path / "a.nc", engine="scipy")  # of big-endian numbers
    read = load_trajectory(tmp_path / "a.nc")
    assert (read.time.tolist(), read.units["time"]) == ([0, 0.5, 1, 1.5], "turns")
    save_trajectory(read, tmp_path / "b.nc")
    xarray.testing.assert_allclose(xarray.open_dataset(tmp_path / "b.nc"), dataset)
    save_trajectory(read, tmp_path / "c.npz")  # and what stays is known to stay
    assert load_trajectory(tmp_path / "c.npz").constant == read.constant == ["land_sea_mask"]


@pytest.mark.parametrize("calendar", ["noleap", "standard"])
def test_places_in_radians_on_a_curved_grid_and_calendars_of_models(calendar, tmp_path):
    lat, lon = np.radians(draw(2, 3) * 90), np.radians(draw(3, 2).T * 360)
    time = xarray.date_range("2020-02-28", periods=T, calendar=calendar, use_cftime=True)
    dataset = xarray.Dataset(
        {"u": (("time", "j", "i"), draw(T, 2, 3))},
        {
            "time": time,
            "clat": (("j", "i"), lat, {"standard_name": "latitude", "units": "radian"}),
            "clon": (("j", "i"), lon, {"standard_name": "longitude", "units": "radian"}),
        },
    )
    write(dataset, tmp_path / "a.nc")
    read = load_trajectory(tmp_path / "a.nc")
    z = torch.from_numpy(np.sin(lat)).flatten()
    torch.testing.assert_close(read.pos[:, 2], z.float())
    assert read.time.tolist() == [0, 24, 48, 72]
    save_trajectory(read, tmp_path / "b.nc")
    back = xarray.open_dataset(tmp_path / "b.nc").time
    assert str(back.values[2])[:10] == {"noleap": "2020-03-02", "standard": "2020-03-01"}[calendar]


def forecast():
    """One field of days, of a start that is a dimension, or none."""
    dims = ("time", "step", "latitude", "longitude")
    dry = (dims, draw(1, T, 3, 5), {"units": "days"})  # which xarray reads as a span of time
    steps = np.arange(T) * np.timedelta64(250, "ms").astype("timedelta64[ns]")
    return xarray.Dataset({"dry": dry}, {"time": HOURS[:1], "step": steps, **PLACES})


def bounded():
    """Coordinates with bounds, whose units are theirs, and a projection."""
    dataset = forecast().isel(time=0)
    dataset["north"] = (("latitude", "two"), np.stack((LAT - 1, LAT + 1), 1))
    dataset["north"].attrs["units"] = dataset.latitude.attrs["units"] = "degrees_north"
    dataset["latitude"].attrs["bounds"] = "north"
    dataset["crs"] = ((), 0)
    dataset["dry"].attrs["grid_mapping"] = "crs"
    return dataset[["north", "dry", "crs"]].rename(latitude="rows")


def without_coordinate():
    """Times that are data, in numbers, and places, beside numbers of rows and columns."""
    dataset = forecast().isel(time=0).drop_vars(["time", "step", *PLACES])
    dataset = dataset.rename(latitude="y", longitude="x").assign_coords(x=range(5), y=range(3))
    north, east = np.meshgrid(LAT, LON, indexing="ij")
    dataset["XLAT"] = (("y", "x"), north, {"units": "degree_north"})
    dataset["XLONG"] = (("y", "x"), east, {"units": "degree_east"})
    return dataset.assign(now=("step", np.arange(4.0), {"standard_name": "time", "units": "turns"}))


@pytest.mark.parametrize("made", [forecast, bounded, without_coordinate])
@pytest.mark.parametrize("ending", ["nc", "zarr"])
@pytest.mark.filterwarnings("ignore:.*Zarr V3")
def test_files_of_others_are_written_as_they_were(made, ending, tmp_path):
    dataset = made()
    format_of_store = {"zarr_format": 2} if ending == "zarr" else {}
    getattr(dataset, {"nc": "to_netcdf"}.get(ending, "to_zarr"))(
        tmp_path / f"a.{ending}", **format_of_store
    )
    read = load_trajectory(tmp_path / f"a.{ending}")
    assert (list(read.fields), list(read.forcing)) == (["dry"], [])
    assert read.units["pos"] == "radii"
    assert torch.equal(read.fields["dry"].flatten(), torch.from_numpy(dataset.dry.values).flatten())
    save_trajectory(read, tmp_path / f"b.{ending}")
    back = xarray.open_dataset(
        tmp_path / f"b.{ending}", engine={"zarr": "zarr"}.get(ending), decode_timedelta=False
    )
    assert back.dry.dims == dataset.dry.dims
    assert back.dry.attrs == dataset.dry.attrs
    assert torch.equal(load_trajectory(tmp_path / f"b.{ending}").time, read.time)


def changed(**values):
    return weatherbench().assign_coords(values)


def with_nan():
    dataset = weatherbench()
    dataset["2m_temperature"].values[2, 1, 0] = np.nan
    return dataset


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (with_nan(), r"a.nc: 2m_temperature: .*NaN at step 2 \(2020-02-28T12.*node 1"),
        (changed(time=HOURS[[0, 2, 1, 3]]), "a.nc: time must go forwards, got 12 at step 1"),
        (weatherbench().drop_vars("latitude"), r"coordinates latitude.*got .*\['.*longitude"),
        (weatherbench().drop_vars("time"), r"a coordinate of time, got .*time \(4\)"),
        (changed(latitude=LAT * 2), "a.nc: lat must be degrees from -90 to 90, got 120"),
        (weatherbench() * np.nan, "NaN alone"),
        (weatherbench().isel(time=slice(0)), r"a coordinate of time, got time \(0\)"),
        (weatherbench().isel(longitude=slice(0)), r"latitude and longitude.*longitude \(0,\)"),
        (weatherbench().isel(latitude=0), r"latitude and longitude.*latitude \(\)"),
        (weatherbench()[["land_sea_mask"]].assign_coords(time=HOURS), "variables of time and"),
        (
            weatherbench().expand_dims(step=np.arange(3) * np.timedelta64(6, "h")),
            r"one dimension .*got .*Try: a file for each start of a forecast",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:sea_surface_temperature is NaN")
def test_what_is_wrong_is_refused_by_file_step_and_field(dataset, message, tmp_path):
    write(dataset, tmp_path / "a.nc")
    with pytest.raises((LoaderError, ShapeError), match=message):
        load_trajectory(tmp_path / "a.nc")


def test_a_longitude_that_is_there_twice_is_warned_of(tmp_path):
    dataset = weatherbench()[["2m_temperature"]].assign_coords(longitude=np.linspace(0, 360, 5))
    write(dataset, tmp_path / "a.nc")
    with pytest.warns(UserWarning, match="one place twice"):
        load_trajectory(tmp_path / "a.nc")


def test_what_is_no_file_of_weather_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.nc").write_text("no file of weather")
    with pytest.raises(LoaderError, match=r"a.nc: expected a file that xarray reads"):
        load_trajectory(tmp_path / "a.nc")
    write(era5(), tmp_path / "b.nc")
    with pytest.raises(LoaderError, match="expected at most 100 bytes"):
        load_trajectory(tmp_path / "b.nc", max_bytes=100)
    read = load_trajectory(tmp_path / "b.nc")
    read = replace(read, fields={"mine": read.fields["t"]}, fixed=None)
    with pytest.raises(LoaderError, match=r"the names of its file, .*got \['mine'\]"):
        save_trajectory(read, tmp_path / "c.nc")
    plain = Trajectory(torch.rand(5, 3), {"u": torch.rand(3, 5)})
    with pytest.raises(LoaderError, match=r"read from .nc or .zarr, got another. Try: a .npz"):
        save_trajectory(plain, tmp_path / "c.nc")
    for module in ("h5py", "xarray"):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=r"pip install 'graphattn\[weather\]'"):
            load_trajectory(tmp_path / "b.nc")


def test_only_a_store_is_replaced(tmp_path):
    write(era5(), tmp_path / "a.nc")
    read = load_trajectory(tmp_path / "a.nc")
    for _ in range(2):
        save_trajectory(read, tmp_path / "b.zarr")
    assert torch.equal(load_trajectory(tmp_path / "b.zarr").pos, read.pos)
    (tmp_path / "c.zarr").mkdir()
    (tmp_path / "c.zarr" / "letters.txt").write_text("of somebody")
    with pytest.raises(LoaderError, match=r"c.zarr: expected a store of zarr"):
        save_trajectory(read, tmp_path / "c.zarr")
    assert (tmp_path / "c.zarr" / "letters.txt").is_file()


def test_a_folder_has_stores_beside_files_and_load_reads_both(tmp_path):
    write(era5(), tmp_path / "1979.nc")
    write(era5(), tmp_path / "1980.zarr")
    assert [one.name for one in load_trajectories(tmp_path)] == ["1979.nc", "1980.zarr"]
    read = ga.load(f"{tmp_path}/1980.zarr/")  # as a shell completes it
    assert read.fields["t"].shape == (T, 15, 2)
    assert list(read.with_forcing(["t2m"]).forcing) == ["t2m"]
    ga.save(read, tmp_path / "1981.nc")
    assert torch.equal(ga.load(tmp_path / "1981.nc").fields["t"], read.fields["t"])
    with pytest.raises(LoaderError, match="--task simulate"):
        ga.shapes.ShapeFolder(tmp_path)
    with pytest.raises(ShapeError, match=r'1980.zarr: forcing must be "t" or "t2m", got'):
        read.with_forcing(["t2"])
