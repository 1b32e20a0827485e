"""The table of scans: generated tiles, tiles that are cut, and what a line says."""

import tarfile

import generated_shapes
import laspy
import numpy as np
import pytest
import scans


def test_generated_tiles_have_two_rare_classes(tmp_path):
    generated_shapes.tiles(tmp_path, each=6, seed=11)
    counts = np.zeros(7)
    for path in sorted(tmp_path.glob("*.las")):
        label = np.array(laspy.read(path).classification)
        assert 1500 < len(label) < 7500
        counts += np.bincount(label, minlength=7)
    share = counts / counts.sum()
    assert set(counts.nonzero()[0]) == {2, 3, 4, 5, 6}
    assert (share[3:5] < 0.02).all()
    assert (share[[2, 5, 6]] > 0.02).all()


def test_every_point_of_a_scan_is_in_one_of_eight_tiles(tmp_path):
    generated_shapes.tiles(tmp_path / "one", each=1, seed=3)
    scan = laspy.read(tmp_path / "one" / "000.las")
    (tmp_path / "one" / "000.las").rename(tmp_path / "scan.las")
    scans.cut(tmp_path, "scan.las", tmp_path / "tiles", 0)
    tiles = [laspy.read(path) for path in sorted((tmp_path / "tiles").glob("*.las"))]
    assert len(tiles) == 8
    places = np.concatenate([tile.xyz for tile in tiles])
    assert sorted(map(tuple, places)) == sorted(map(tuple, scan.xyz))
    assert all(np.ptp(tile.x) <= np.ptp(scan.x) / 4 for tile in tiles)


def test_a_release_that_is_there_is_not_fetched_again(tmp_path):
    inside = tmp_path / scans.RELEASE / "tests" / "data"
    inside.mkdir(parents=True)
    (inside / "scan.las").write_bytes(b"points")
    with tarfile.open(tmp_path / f"{scans.RELEASE}.tar.gz", "w:gz") as release:
        release.add(tmp_path / scans.RELEASE, scans.RELEASE)
    assert scans.fetched(tmp_path, "scan.las").read_bytes() == b"points"


@pytest.mark.parametrize(("forest", "holds"), [(0.7, "no"), (0.4, "yes")])
def test_a_line_says_if_the_forest_is_better_by_more_than_the_interval(forest, holds):
    records = [
        {
            "best": 0.5 + 0.01 * seed,
            "forest": forest + 0.012 * seed,
            "differences": [0.1, -0.1],
            "choice": {"name": "the forest"},
            "test": {"the network": 0.3, "the mean of both": 0.4},
            "cpu_s": 7.0,
        }
        for seed in range(3)
    ]
    cells = scans.row("tile", records).strip("| ").split(" | ")
    assert (cells[0], cells[1], cells[3], cells[4]) == ("tile", "0.510", "0.300", "0.400")
    assert cells[7:] == [holds, "forest, forest, forest", "21"]
