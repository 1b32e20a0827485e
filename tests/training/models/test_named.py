"""Models by name: each learns the generated parts with what it reads by default, and goes on where
it was left.
"""

import json

import pytest
import torch

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.graphs import Hierarchy
from graphattn.shapes import RandomRotation
from graphattn.training.chosen import task_of
from graphattn.training.models.named import MODELS, build
from graphattn.training.reading.default_inputs import inputs_of
from graphattn.training.reading.inputs import ShapeInputs

SMALL = {
    "point-transformer-v2": {"widths": [8, 8, 8]},
    "point-transformer-v3": {"widths": [8, 8, 8], "back_widths": [8, 8], "head_dim": 4},
    "litept": {"widths": [6, 6, 12], "back_widths": [6, 6], "head_dim": 6},
    "stratified-transformer": {"widths": [8, 8, 8], "depths": 1, "num_heads": 2},
    "swin3d": {"widths": [8, 8, 8], "depths": 1, "num_heads": 2},
    "encode-process-decode": {"embed_dim": 8, "num_heads": 2, "num_layers": 1},
}


class Killed(Exception):
    """In the middle of training."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_model_learns_and_goes_on_where_it_was_left(name, parts, tmp_path):
    def tell(progress):
        if progress.phase == "training" and progress.epoch is not None:
            raise Killed

    how = {"model": name, "model_options": SMALL[name], "epochs": 3, "lr": 0.003, "control": False}
    with pytest.raises(Killed):
        ga.training.train(parts, tmp_path / "run", tell=tell, **how)
    ga.training.resume(tmp_path / "run")
    lines = [
        json.loads(line)
        for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_points_of_a_cell_share_an_answer_and_other_clouds_change_nothing():
    inputs = ShapeInputs(("position",), cell=(0.5, 1.0), patch=8)
    torch.manual_seed(0)
    options = {"widths": [8, 8], "depths": 1, "back_widths": [8], "head_dim": 4}
    model = build("point-transformer-v3", options, 3, 2, "node").eval()
    one, other = (inputs(ga.shapes.Shape(pos=torch.randn(many, 3)), "") for many in (40, 30))
    answers = model(torch.cat((one.x, other.x)), Hierarchy.join([one.levels, other.levels]))
    torch.testing.assert_close(answers[:40], model(one.x, one.levels), atol=1e-5, rtol=0)
    cells = ((one.levels.levels[0].pos - one.levels.levels[0].pos.amin(0)) / 0.5).floor()
    assert len(answers[:40].unique(dim=0)) == len(cells.unique(dim=0)) < 40


def test_a_swin3d_has_the_colours_and_normals_of_files_as_signals(tmp_path):
    for number in range(4):
        pos, normal, color = torch.rand(3, 20, 3)
        shape = ga.shapes.Shape(pos=pos, normal=normal, color=color, label=(pos[:, 2] > 0.5).int())
        ga.save(shape, tmp_path / f"{number}.ply")
    shapes = ga.shapes.ShapeFolder(tmp_path)
    task = task_of("segment", shapes, [0, 1])
    inputs = inputs_of("swin3d", task, shapes, [0, 1], ga.training.Options())
    assert inputs.signals == ("color", "normals")
    made, shape = inputs(shapes[0], ""), shapes[0]
    signals = made.levels.levels[0].signals
    torch.testing.assert_close(signals[:, :3], 2 * shape.color - 1)
    torch.testing.assert_close(signals[:, 3:], torch.nn.functional.normalize(shape.normal))
    turn = RandomRotation().matrix().float()
    torch.testing.assert_close(
        inputs.turned(made, turn).levels.levels[1].signals,
        torch.cat(
            (made.levels.levels[1].signals[:, :3], made.levels.levels[1].signals[:, 3:] @ turn.T), 1
        ),
    )
    assert (
        inputs_of("stratified-transformer", task, shapes, [0, 1], ga.training.Options()).signals
        == ()
    )


def test_recipes_with_commas_are_for_layers_in_turn():
    inputs = ShapeInputs(("position",), graph=("knn(..., 3), radius(..., 0.2)",))
    (level,) = inputs(ga.shapes.Shape(pos=torch.rand(9, 3)), "").levels.levels
    assert [graph.name.partition("(")[0] for graph in level.graphs] == ["knn", "radius"]


def test_what_a_model_does_not_do_is_refused(parts, classes, tmp_path):
    for folder, how, words in (
        (classes, {"model": "encode-process-decode"}, "answers for points"),
        (parts, {"model": "perceptron", "graph": "full(...)"}, "graph is for a model"),
    ):
        with pytest.raises(OptionError, match=words):
            ga.training.train(folder, tmp_path / "run", **how)
    assert not (tmp_path / "run").exists()
    assert {
        *SMALL,
        "unet",
        "best",
        "best-curve",
        "curve",
        "mesh",
        "mesh-unet",
        "pct",
        "forest",
        "perceptron",
        "point-transformer",
    } == set(MODELS)
