"""The forest beside a model: scikit-learn's trees as tensors, on descriptors that a rotation leaves
as they are.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from shape_folders import QUICK, measured_meshes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.statistics.paired import Difference
from graphattn.training.evaluation import Evaluation
from graphattn.training.models.forest import Forest
from graphattn.training.pages.notes import notes
from graphattn.training.run import Run
from graphattn.training.tasks import Classify, Regress, Segment

LEVELS = ga.graphs.hierarchy(torch.rand(90, 3, generator=torch.Generator().manual_seed(1)))


def grown(task, y, x):
    batch = SimpleNamespace(x=x, y=y, levels=[LEVELS])
    return Forest(x.shape[1], task.out_dim, trees=7).fit(task, [batch], seed=3)


def test_trees_answer_as_those_of_scikit_learn(monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(90, 5)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0.5)  # of five classes, one has no label
    y[:9] = -1
    known = y >= 0
    theirs = RandomForestClassifier(7, min_samples_leaf=3, random_state=3, max_features="sqrt")
    theirs.fit(x[known].numpy(), y[known].numpy())
    task = Segment("node", tuple("abcde"))
    answers = task.answers(grown(task, y, x)(x, LEVELS))
    np.testing.assert_allclose(answers[:, :4], theirs.predict_proba(x.numpy()), atol=1e-6)
    assert answers[:, 4].max() < 1e-6
    number = Regress("node", (), 2.0, 3.0)
    theirs = RandomForestRegressor(7, min_samples_leaf=3, random_state=3, max_features=1 / 3)
    theirs.fit(x.numpy(), x[:, 0].double().numpy())
    found = number.answers(grown(number, x[:, 0], x)(x, LEVELS))
    np.testing.assert_allclose(found, theirs.predict(x.numpy()), atol=1e-5)


@pytest.mark.slow
def test_a_forest_is_a_control_that_is_evaluated_again(classes, tmp_path):
    how = {**QUICK, "control": ("forest",)}
    result = ga.training.train(classes, tmp_path / "run", **how)
    assert Run.load(tmp_path / "run" / "forest").inputs.normals == "pca"
    assert ga.training.evaluate(tmp_path / "run").to_dict() == result.to_dict()
    assert result.controls["forest"].scores["accuracy"] == 1.0
    assert "a random forest, on the same split: 100.0%" in str(result)
    with pytest.raises(OptionError, match="with edges, got model='forest'"):
        ga.training.train(classes, tmp_path / "other", model="forest", control=("random",))


def test_a_forest_reads_meshes_and_is_a_model_of_its_own(tmp_path, no_page):
    result = ga.training.train(
        measured_meshes(tmp_path / "shapes"), tmp_path / "run", model="forest", control=False
    )
    (line,) = ga.training.predict(
        tmp_path / "run", [tmp_path / "shapes" / "0.ply"], tmp_path / "out"
    )
    assert line["points"] == 6
    assert torch.isfinite(torch.cat(result.answers)).all()


def test_a_model_that_loses_by_more_than_its_interval_says_so():
    task, labels, right = (
        Classify("shape", ("a", "b")),
        [torch.tensor([0])] * 30,
        torch.tensor([[1.0, 0.0]]),
    )
    for many, least in ((29, 1), (1, 0)):  # that the forest has right, and the model none
        answers = [[right.flip(1)] * 30, [right] * many + [right.flip(1)] * (30 - many)]
        model, forest = (Evaluation(task, "test", {}, [], None, one, labels) for one in answers)
        model.controls["forest"] = forest
        run = SimpleNamespace(
            model="unet",
            options={},
            unlike_start=list,
            note_of_unfinished=lambda: "",
            unfinished_control=lambda name: "",
        )
        told = notes(run, model)
        assert len([line for line in told if "a random forest scores more" in line]) == least
    assert Difference(-0.5, -0.6, -0.4, 9).in_words == "+0.500 [+0.400, +0.600] less"
