"""Scenes: heights above the ground, thinned and cut scans that are stitched, and what a run will
take.
"""

import json
import re

import pytest
import torch

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.shapes import Shape
from graphattn.training import Run
from graphattn.training.controls import control_of
from graphattn.training.options import Options
from graphattn.training.reading.data import Prepared
from graphattn.training.reading.inputs import ShapeInputs
from graphattn.training.reading.scenes import Scenes, _blocks, above_ground, block_of, grid_of
from graphattn.training.resolve import resolve
from graphattn.training.running import budget

PLAIN = {"epochs": 2, "control": False, "model_options": {"widths": [8] * 4, "num_heads": 2}}


class Listed(list):
    """Shapes in the place of a folder."""

    def name(self, number):
        return f"scan {number}"


def slope(size, side, seed=0, lift=0.0):
    """Points of a slope of 10 %, and above some of them a roof at 5."""
    draw = torch.Generator().manual_seed(seed)
    xy = torch.rand(size, 2, generator=draw, dtype=torch.float64) * side
    ground = 0.1 * xy[:, 0]
    roof = (xy - side / 2).abs().amax(1) < side / 10
    z = ground + 5 * roof
    return torch.cat((xy, z[:, None] + lift), 1), roof.long()


def scans(folder, many=6, size=400, side=20.0):
    folder.mkdir()
    for number in range(many):
        pos, roof = slope(size, side, number)
        ga.save(
            Shape(pos=pos.float(), label=roof.int(), intensity=torch.rand(size)),
            folder / f"{number}.ply",
        )
    return folder


@pytest.mark.parametrize("up", ["x", "y", "z"])
def test_heights_are_above_the_local_ground_whatever_is_up(up):
    pos, roof = slope(20_000, 60.0, lift=6e6)
    pos = pos.roll(-2 + "xyz".index(up), 1)
    height = above_ground(pos, up, 1.0)
    # a cell's slope, and the roof of 12 m is no ground
    assert float((height - 5 * roof).abs().max()) < 0.5
    assert float((height - 5 * roof).abs().median()) < 0.15


@pytest.mark.parametrize(("block", "up"), [(0.0, "z"), (8.0, "z"), (8.0, "")])
def test_every_point_gets_the_answer_of_its_cell_over_all_blocks(block, up):
    shapes = Listed(
        Shape(pos=slope(700, 30.0, seed)[0], y=slope(700, 30.0, seed)[1]) for seed in range(2)
    )
    cut = Scenes(shapes, [0, 1], ShapeInputs(("constant",), upward=up, grid=2.0, block=block))
    assert (len(cut) > 12) is bool(block)
    assert cut.name(0) == ("scan 0, block 1" if block else "scan 0")
    for index in range(len(cut)):
        assert len(cut[index].pos) == len(cut.labels[index]) == cut.sizes[index] >= min(32, 700)
        assert torch.equal(cut[index].y, cut.labels[index])
        assert ("above_ground" in cut[index]) is bool(up)
    for shape, answer in zip(
        shapes, cut.stitched([cut[index].pos for index in range(len(cut))]), strict=True
    ):
        # a point of the same cell, at each point
        assert torch.equal((answer / 2).floor(), (shape.pos / 2).floor())
    other = Scenes(
        shapes, [0], ShapeInputs(("constant",), upward=up, grid=2.0, block=block), vote=1
    )
    assert not torch.equal(other[0].pos[:20], cut[0].pos[:20])


@pytest.mark.parametrize("up", ["z", ""])
def test_a_block_has_all_points_up_to_its_margin(up):
    pos = torch.rand(
        5000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ) * torch.tensor([9, 5, 3])
    axes, shift = (
        [0, 1] if up else [0, 1, 2],
        torch.tensor([0.755, 0.570, 0.430], dtype=torch.float64),
    )
    place = (pos[:, axes] - pos[:, axes].amin(0)) / 2.0 + shift[axes]
    cells = place.floor().unique(dim=0)
    for rows, cell in zip(_blocks(pos, up, 2.0, shift), cells, strict=True):
        inside = ((place >= cell - 0.125) & (place < cell + 1.125)).all(1).nonzero().flatten()
        if len(inside) >= 32:
            assert torch.equal(rows, inside)
        else:
            assert len(rows) >= 32
            assert torch.isin(inside, rows).all()


def test_scenes_turn_about_the_axis_up_alone():
    inputs = ShapeInputs(("position",), upward="z", grid=1.0, scale=1.0)
    shapes = Scenes(Listed([Shape(pos=slope(300, 9.0)[0])]), [0], inputs)
    data = Prepared(shapes, [0], inputs, ("rotation", "mirror"))
    still = data.static(0).x
    turned = data[0].x
    assert torch.equal(turned[:, 2], still[:, 2])
    assert not torch.allclose(turned[:, :2], still[:, :2], atol=0.1)


def test_cells_and_blocks_are_chosen_by_the_scans():
    shapes = Listed(
        Shape(pos=torch.rand(20_000, 3, dtype=torch.float64) * torch.tensor([40.0, 40, 1]))
        for _ in range(2)
    )
    side = grid_of(shapes, [0, 1])
    assert side in (0.5, 1.0)
    assert block_of(shapes[0].pos, ShapeInputs(("constant",), upward="z", grid=side)) == 0.0
    large = torch.rand(90_000, 3, dtype=torch.float64) * torch.tensor([300.0, 300, 0.1])
    inputs = ShapeInputs(("constant",), upward="z", grid=0.5)
    assert block_of(large, inputs) == 100.0
    cut = Scenes(Listed([Shape(pos=large)]), [0], inputs)
    assert 9 <= len(cut) <= 16
    assert int(cut.sizes.max()) < 15_000  # the activations of one block at a time
    with pytest.raises(LoaderError, match="got all at one"):
        grid_of(Listed([Shape(pos=torch.ones(9, 3))]), [0])


@pytest.mark.slow
def test_a_run_on_scenes_predicts_every_point_in_its_place(tmp_path, no_page):
    folder, said = scans(tmp_path / "scans"), []
    tell = lambda progress: said.append(progress.words)  # noqa: E731
    result = ga.training.train(
        folder, tmp_path / "run", up="z", grid=1.0, block=10.0, tell=tell, **PLAIN
    )
    assert "reads local, above_ground, intensity" in "\n".join(said)
    assert re.search(
        r"a batch: up to [\d,]+ points, [\d,]+ edges, about \d+ MB; all epochs: about ",
        "\n".join(said),
    )
    assert result.scores["points"] == 400 * len(result.names)
    run = Run.load(tmp_path / "run")
    assert (run.inputs.upward, run.inputs.grid, run.inputs.block, run.inputs.scale) == (
        "z",
        1.0,
        10.0,
        1.0,
    )
    assert ga.training.evaluate(tmp_path / "run").scores == result.scores
    assert (
        ga.training.evaluate(tmp_path / "run", votes=3).scores["points"] == result.scores["points"]
    )
    one, three = (
        ga.training.predict(
            tmp_path / "run", [folder / "1.ply"], tmp_path / str(votes), votes=votes
        )
        for votes in (1, 3)
    )
    assert one[0]["points"] == three[0]["points"] == 400
    assert (tmp_path / "1" / "1.csv").read_text("utf-8") != (tmp_path / "3" / "1.csv").read_text(
        "utf-8"
    )
    again = ga.training.resume(tmp_path / "run")
    assert again.scores == result.scores
    shape = ga.load(folder / "1.ply")
    shape.pos = shape.pos / 1e4
    ga.save(shape, tmp_path / "small.ply")
    ga.save(Shape(pos=torch.tensor([[0.0, 0, 0], [1, 1, 0], [1e30, 0, 0]])), tmp_path / "far.ply")
    with pytest.raises(
        LoaderError, match=r"far.ply: expected at most 1,073,741,824 cells in a row, got 1e.30 long"
    ):
        ga.training.predict(tmp_path / "run", [tmp_path / "far.ply"], tmp_path / "none")
    with pytest.raises(
        LoaderError, match=r"small.ply: expected a scan larger than a cell, got grid=1.0, and 0.00"
    ):
        ga.training.predict(tmp_path / "run", [tmp_path / "small.ply"], tmp_path / "out")


def test_feet_for_metres_are_seen_though_points_are_thinned(tmp_path, no_page):
    folder = scans(tmp_path / "scans", 4)
    how = {"model": "perceptron", "features": ("position",), "epochs": 1, "control": False}
    ga.training.train(folder, tmp_path / "run", grid=2.0, **how)
    shape = ga.load(folder / "1.ply")
    shape.pos = shape.pos / 0.3048
    ga.save(shape, tmp_path / "feet.ply")
    with pytest.warns(
        UserWarning,
        match=r"^.+feet.ply is unlike .* perhaps: spacing before thinning \S+ \(in training",
    ):
        (feet,) = ga.training.predict(tmp_path / "run", [tmp_path / "feet.ply"], tmp_path / "out")
    (same,) = ga.training.predict(tmp_path / "run", [folder / "1.ply"], tmp_path / "same")
    assert feet["unlike"]
    assert not same["unlike"]


@pytest.mark.slow
def test_the_control_reads_the_same_blocks(tmp_path, no_page):
    how = {**PLAIN, "control": ("perceptron", "random"), "epochs": 1}
    result = ga.training.train(scans(tmp_path / "scans"), tmp_path / "run", grid=1.0, **how)
    assert {one.scores["points"] for one in result.controls.values()} == {result.scores["points"]}
    told = json.loads((tmp_path / "run" / "perceptron" / "run.json").read_text("utf-8"))
    assert told["inputs"]["grid"] == 1.0
    assert told["inputs"]["features"] == ["position", "distance", "intensity"]


@pytest.mark.slow
def test_what_will_not_fit_says_what_would(tmp_path, no_page, monkeypatch):
    folder = scans(tmp_path / "scans")
    monkeypatch.setattr(budget, "_free", lambda device: 3_000_000)
    wanted = r"points: a batch: .* edges, about (\d+) MB, and 3 MB are free; (--points \d+|a larger --grid).*--amp"
    step, sizes, found = budget._step, [], []
    monkeypatch.setattr(
        budget,
        "_step",
        lambda training, shape, *how, **rest: (
            sizes.append(len(shape.x)),
            step(training, shape, *how, **rest),
        )[1],
    )
    for many in (1 << 14, 100):  # of a part of a scan
        monkeypatch.setattr(budget, "_MANY", many)
        with pytest.raises(OptionError, match=wanted) as raised:
            ga.training.train(folder, tmp_path / "run", grid=1.0, **PLAIN)
        found.append(re.search(wanted, str(raised.value))[1])
        assert not (tmp_path / "run").exists()  # which the next try names again
    assert float(found[1]) == pytest.approx(float(found[0]), rel=0.4)
    assert sizes[0] > sizes[-1] == 100


def test_a_large_cloud_without_edges_is_measured_on_a_part(tmp_path, no_page, monkeypatch):
    folder, words = scans(tmp_path / "scans", 3, 60), []
    monkeypatch.setattr(budget, "_MANY", 47)
    how = {"model": "perceptron", "grid": 0, "val": 0, "epochs": 1, "control": False}
    tell = lambda progress: words.append(progress.words)  # noqa: E731
    ga.training.train(folder, tmp_path / "run", tell=tell, **how)
    assert any(", 0 edges, about " in text for text in words)


def test_what_a_step_takes_whatever_its_size_counts_once_a_batch():
    step = lambda shapes: 0.05 + 0.001 * shapes  # noqa: E731
    for copies in (2, 8):
        assert budget.of_epoch(step(1), step(copies), copies, 10, 200) == pytest.approx(
            10 * 0.05 + 200 * 0.001
        )
    # nothing but one shape was timed
    assert budget.of_epoch(0.3, 0.3, 1, 10, 10) == pytest.approx(3.0)


def test_grids_that_cannot_be_are_refused(tmp_path):
    folder = scans(tmp_path / "scans", 4, 60)
    for how, words in (
        ({"grid": -1.0}, "grid must be"),
        ({"grid": 1.0, "block": 2.0}, "block must be 4 cells of the grid or more"),
        ({"up": "w"}, 'up must be "x", "y", "z" or "none"'),
    ):
        with pytest.raises(OptionError, match=words):
            ga.training.train(folder, tmp_path / "run", **how, **PLAIN)
    wide = max(
        float((shape.pos.amax(0) - shape.pos.amin(0)).max())
        for shape in ga.shapes.ShapeFolder(folder)
    )
    for grid in (1.01 * wide, 1e4):  # where cells begin does not matter
        with pytest.raises(
            LoaderError, match=f"expected a scan larger than a cell, got grid={grid}, and "
        ):
            ga.training.train(folder, tmp_path / "run", grid=grid, **PLAIN)


@pytest.mark.slow
def test_tiles_of_las_are_scenes_whatever_their_size(tmp_path, no_page):
    """Height above the ground tells the roofs; the same points without a classification are
    objects.
    """
    words = {}
    for name, label in (("tiles", "classification"), ("objects", "label")):
        (tmp_path / name).mkdir()
        for number in range(6):
            pos, roof = slope(300, 20.0, number)
            kind = {label: (2 + 4 * roof).to(torch.uint8)}
            ga.save(
                Shape(pos=pos, **kind),
                tmp_path / name / f"{number}.{'las' if name == 'tiles' else 'ply'}",
            )
        texts = []
        tell = lambda progress, texts=texts: texts.append(progress.words)  # noqa: E731
        ga.training.train(
            tmp_path / name, tmp_path / f"{name} run", tell=tell, epochs=1, control=False
        )
        words[name] = "\n".join(texts)
    tiles, objects = (Run.load(tmp_path / f"{name} run").inputs for name in ("tiles", "objects"))
    assert "above_ground" in tiles.features
    assert (tiles.upward, tiles.grid > 0) == ("z", True)
    assert "z is up (--up)" in words["tiles"]
    assert (objects.upward, objects.grid) == ("", 0)


def test_blocks_with_rare_classes_are_drawn_more_often():
    labels = [torch.zeros(60), torch.cat((torch.zeros(50), torch.ones(10))), torch.ones(40) - 2]
    shapes = Listed(
        Shape(pos=slope(len(y), 17.0, seed)[0], y=y.long()) for seed, y in enumerate(labels)
    )
    inputs = ShapeInputs(("constant",), upward="z", grid=0.01)
    data = Prepared(Scenes(shapes, [0, 1, 2], inputs), [0, 1, 2], inputs)
    chances = data.chances((0.9, 5.0))
    assert chances.tolist() == pytest.approx([0.9, (50 * 0.9 + 10 * 5) / 60, 0.5])
    assert data.chances(()) is None
    whole = Prepared(Scenes(shapes, [0], inputs), [0], ShapeInputs(("constant",)))
    assert whole.chances((0.9, 5.0)) is None


def test_a_network_of_scenes_reads_what_the_forest_reads(tmp_path):
    (tmp_path / "tiles").mkdir()
    for number in range(4):
        pos, roof = slope(300, 20.0, number)
        more = {
            "classification": (2 + 4 * roof).to(torch.uint8),
            "intensity": (500 * roof).to(torch.uint16),
            "return_number": torch.ones(300, dtype=torch.uint8),
            "number_of_returns": torch.ones(300, dtype=torch.uint8),
        }
        ga.save(Shape(pos=pos, **more), tmp_path / "tiles" / f"{number}.las")
    folder = ga.shapes.ShapeFolder(tmp_path / "tiles")
    run = resolve(Options(), folder, tmp_path / "run")
    forest = control_of(run, "forest", folder)
    assert {"above_ground", "local", "intensity", "return_number"} <= set(run.inputs.features)
    assert run.inputs.features == forest.inputs.features
    assert run.features == forest.features
