"""Controls: what they read, that they begin as the model does, and the paired difference from
them.
"""

import json

import pytest
import torch
from scipy.stats import binomtest, t
from shape_folders import QUICK

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.statistics.paired import difference
from graphattn.training.evaluation import Evaluation
from graphattn.training.reading.inputs import ShapeInputs
from graphattn.training.run import Run
from graphattn.training.tasks import Classify, Regress, Segment

CLOUD = ga.shapes.Shape(pos=torch.rand(40, 3, generator=torch.Generator().manual_seed(0)))
BOTH = {**QUICK, "control": ("perceptron", "random")}


def test_both_controls_are_runs_beside_the_model(classes, tmp_path):
    result = ga.training.train(classes, tmp_path / "run", **BOTH)
    runs = {name: Run.load(tmp_path / "run" / name) for name in ("", *BOTH["control"])}
    assert runs["perceptron"].inputs == ShapeInputs(("position", "distance"), sample=512)
    assert runs["random"].inputs.redrawn == runs[""].schedule.seed
    assert len({run.schedule for run in runs.values()}) == 1
    assert [run.split for run in runs.values()] == [runs[""].split] * 3
    start = [run.new_model().state_dict() for run in (runs[""], runs["random"])]
    assert all(torch.equal(start[0][name], start[1][name]) for name in start[0])
    again = ga.training.evaluate(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert again.to_dict() == result.to_dict() == told
    right = {name: one["scores"]["right"] for name, one in told["controls"].items()}
    for name, one in told["controls"].items():
        assert one["difference"]["mean"] == pytest.approx(
            (told["scores"]["right"] - right[name]) / 4
        )
    assert "degree-matched random graphs, on the same split" in str(result)


def test_random_graphs_have_the_degrees_of_the_model_s_and_other_edges():
    plain = ShapeInputs(("distance",), ratio=(0.5,), graph=("knn(..., 4)",) * 2)
    one, other, same = (
        ShapeInputs(**{**vars(plain), "redrawn": seed})(CLOUD, name).levels
        for seed, name in ((1, "a"), (1, "b"), (1, "a"))
    )
    for drawn, second, again, made in zip(
        *(x.graphs() for x in (one, other, same, plain(CLOUD, "").levels)), strict=True
    ):
        assert torch.equal(drawn.in_degree, made.in_degree)
        assert drawn.equals(again)
        assert (drawn & made).num_edges < made.num_edges / 2
        assert (drawn & second).num_edges < made.num_edges


def test_a_convolution_reads_drawn_cells_at_its_offsets():
    plain = ShapeInputs(("position",), cell=(0.3, 0.6), patch=8)
    made, drawn = (
        ShapeInputs(**{**vars(plain), "redrawn": seed})(CLOUD, "a").levels for seed in (None, 1)
    )
    for old, new in zip(made.levels, drawn.levels, strict=True):
        for one, two in zip(old.near, new.near, strict=True):
            assert torch.equal(
                two.graph.source == two.graph.target, two.offset == two.num_offsets // 2
            )
            pairs = [torch.stack((near.graph.target, near.offset), 1) for near in (one, two)]
            assert torch.equal(*(torch.unique(each, dim=0) for each in pairs))
            assert len(torch.unique(pairs[1], dim=0)) == len(pairs[1])
    around = made.levels[1].near[1], drawn.levels[1].near[1]
    assert (around[0].graph & around[1].graph).num_edges < 0.7 * around[0].graph.num_edges
    assert drawn.levels[1].down.equals(made.levels[1].down)  # a cell keeps its points
    assert not drawn.levels[2].down.equals(made.levels[2].down)


def test_an_interval_is_students():
    x = torch.tensor([0.0, 1, 1, 0.5, -1])
    half = t.ppf(0.975, 4) * float(x.std()) / 5**0.5
    assert difference(x) == pytest.approx((0.3, 0.3 - half, 0.3 + half, 5))
    assert difference(torch.ones(3))[1:] == (None, None, 3)
    assert difference(torch.tensor([0.1, 0.2, 0.3])).in_words == "+0.200 [-0.048, +0.448] more"
    assert difference(torch.tensor([-0.1, -0.2, -0.3])).in_words == "+0.200 [-0.048, +0.448] less"


def test_a_difference_without_an_interval_says_why():
    same = difference(torch.zeros(7))
    assert same.than("a forest") == "the same as a forest"
    assert same.unit == "mean over 7 shapes; all answered alike, so no interval"
    assert difference(torch.full((3,), -0.5)).than("it") == "+0.500 less than it"
    assert "all differ by as much" in difference(torch.ones(3)).unit
    assert difference(torch.tensor([0.3])).unit == "1 shape, so no interval"
    assert difference(torch.tensor([-1.0, 1.0])).in_words.startswith("+0.000 [")


@pytest.mark.parametrize(("part", "same"), [("all", "shapes"), ("test", "split")])
def test_a_control_that_answers_alike_scores_the_same(part, same):
    labels = [torch.tensor([n % 2]) for n in range(6)]
    answers = [torch.eye(2)[:1]] * 6
    task = Classify("shape", ("a", "b"))
    scores = task.scores(task.predictions(torch.cat(answers)), torch.cat(labels))
    result, other = (Evaluation(task, part, scores, [], None, answers, labels) for _ in range(2))
    result.controls["perceptron"] = other
    first, second = result.controls_in_words.splitlines()
    assert f"a perceptron without edges, on the same {same}: " in first
    assert second.startswith("  the model scores the same, ")
    assert second.endswith("(mean over 6 shapes; all answered alike, so no interval)")


def test_an_interval_of_shares_stays_within_them():
    values = torch.tensor([1.0] * 9 + [0.0])
    assert difference(values).high > 1
    low, high = difference(values, (-1, 1))[1:3]
    assert 0.3 < low < 0.9 < high < 1
    task, labels = Classify("shape", ("a", "b")), [torch.tensor([int(n == 0)]) for n in range(10)]
    result, none = (
        Evaluation(task, "test", {}, [], None, [answer] * 10, labels)
        for answer in torch.eye(2)[:, None]
    )
    result.controls["perceptron"] = none
    assert result.over("perceptron")[:3] == pytest.approx((0.8, 0.047, 0.974), abs=1e-3)
    scores = task.scores(torch.cat(result.predictions), torch.cat(result.labels))
    assert scores["interval"] == pytest.approx(binomtest(9, 10).proportion_ci(method="wilson"))
    assert "9 of 10; 95 % interval 59.6% to 98.2%" in task.in_words(scores)


def test_scores_of_shapes_average_to_the_score():
    y = [torch.tensor([0.0, 2, 4]), torch.tensor([1.0, 1, 3])]
    guess = [torch.tensor([0.5, 2, 3]), torch.tensor([1.0, 2, 2])]
    task = Regress("node")
    assert task.each(guess, y).mean() == pytest.approx(
        task.scores(torch.cat(guess), torch.cat(y))["r2"]
    )
    assert Classify("shape", ("a", "b")).each(
        [torch.tensor([1])] * 2, [torch.tensor([1]), torch.tensor([0])]
    ).tolist() == [1, 0]
    parts = Segment("node", ("a", "b", "c")).each(
        [torch.tensor([1, 1, 0])], [torch.tensor([1, 0, -1])]
    )
    assert parts.tolist() == [0.25]  # 1 of 2 of b, none of a; c is nowhere


def test_controls_that_cannot_be_are_refused(classes, tmp_path):
    for control, model, words in (
        ("spin", None, 'control must be "perceptron"'),
        ("random", "perceptron", "with edges"),
    ):
        with pytest.raises(OptionError, match=words):
            ga.training.train(
                classes, tmp_path / "run", **{**QUICK, "model": model, "control": (control,)}
            )
    assert not (tmp_path / "run").exists()
