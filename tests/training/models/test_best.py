"""The model "best": a network and a forest, of which the validation part chooses."""

import json
from types import SimpleNamespace

import pytest
import torch

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.graphs import Hierarchy
from graphattn.graphs.points.hierarchy import Level
from graphattn.shapes import Shape
from graphattn.statistics.paired import limits
from graphattn.training import Run
from graphattn.training.models.best import SHARES, Best, advantage, choice_in_words
from graphattn.training.options import Schedule
from graphattn.training.tasks import TASKS

HOW = {"model": "best", "epochs": 1, "model_options": {"widths": [8] * 4, "trees": 5}}


def roofs(folder, many=5, size=300):
    """Scans of which points above 3 are roofs."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(3)
    for number in range(many):
        pos = torch.rand(size, 3, generator=draw) * torch.tensor([17.0, 17, 0.2])
        roof = (pos[:, :2] - 8).abs().amax(1) < 3
        pos[:, 2] += 4 * roof
        ga.save(Shape(pos=pos, label=roof.int()), folder / f"{number}.ply")
    return folder


class Answers(torch.nn.Module):
    """A member of a Best with a fixed output."""

    is_grown = True  # as of a forest with trees

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, x, shape):
        return self.output


class OneBatch:
    """Three points without features, in the place of Prepared."""

    def __len__(self):
        return 1

    def still(self, points, device):
        shape = Hierarchy((Level(torch.zeros(3, 3), None, ()),))
        return [(torch.zeros(3, 3), shape, None, [3])]


def planted(network, forest):
    model = Best(3, 2, widths=(8, 8), trees=1)
    model.network = Answers(network)
    model.forest = Answers(forest)
    return model


def test_answers_are_those_of_the_share():
    network, forest = torch.randn(5, 2), torch.randn(5, 2).log_softmax(-1)
    model = planted(network, forest)
    x, shape = torch.zeros(5, 3), Hierarchy((Level(torch.zeros(5, 3), None, ()),))
    assert torch.equal(model(x, shape), network)
    model.share.fill_(1)
    assert torch.equal(model(x, shape), forest)
    model.share.fill_(0.5)
    mean = (network.softmax(-1) + forest.softmax(-1)) / 2
    torch.testing.assert_close(model(x, shape).softmax(-1), mean)


def atoms(draw):
    """A packed batch of 30 shapes of two elements; their numbers are 2 and 5 of each, and a rest."""
    counts = torch.randint(1, 5, (30, 2), generator=draw).float()
    rest = torch.arange(30.0) % 2
    x = torch.cat((rest[:, None], counts), 1)
    sizes = counts.sum(1).long()
    levels = [
        Hierarchy((Level(torch.rand(size, 3, generator=draw), None, ()),))
        for size in sizes.tolist()
    ]
    y = counts @ torch.tensor([2.0, 5.0]) + 0.2 * rest
    return SimpleNamespace(x=x.repeat_interleave(sizes, 0), y=y, levels=levels)


def test_a_network_and_a_forest_learn_what_a_linear_model_of_elements_leaves():
    batch = atoms(torch.Generator().manual_seed(1))
    y, shape = batch.y, Hierarchy.join(batch.levels)
    task = TASKS["regress"]("shape", mean=float(y.mean()), deviation=float(y.std()))
    model = Best(3, 1, readout="shape", widths=(8, 8), trees=20, linear_features=2)
    assert model.network_features == 1
    model.fit_linear(task, [batch])
    model.network = Answers(torch.zeros(30, 1))
    linear = task.answers(model(batch.x, shape))
    assert 0.05 < float((linear - y).abs().max()) < 0.4
    # an output of 1 is a deviation of what it leaves
    model.network = Answers(torch.ones(30, 1))
    step = (task.answers(model(batch.x, shape)) - linear).mean()
    assert float(step) == pytest.approx(float((linear - y).std(correction=0)), rel=1e-3)
    model.fit_forest(task, [batch], seed=0)
    model.answer_as("forest")
    assert float((task.answers(model(batch.x, shape)) - y).abs().max()) < 0.1


def candidates(y, wrong, folds=0):
    """The choice of a Best among candidates that err on the points that ``wrong`` lists."""
    predictions = {}
    for name in SHARES:
        predictions[name] = y.clone()
        predictions[name][wrong[name]] = 1 - y[wrong[name]]
    model = Best(3, 2, widths=(8, 8))
    model.choose(TASKS["segment"]("node", ("ground", "roof")), predictions, y, folds)
    return model.choice()


def test_predictions_are_those_of_each_candidate_alone():
    """The mean is of probabilities: here the forest, which is sure, outvotes the network."""
    network = torch.tensor([[0.1, 0.0], [0.1, 0.0], [3.0, 0.0]])
    forest = torch.tensor([[0.9, 0.1], [0.05, 0.95], [0.4, 0.6]]).log()
    model = planted(network, forest)
    model.answer_as("mean")
    task = TASKS["segment"]("node", ("ground", "roof"))
    found = model.predictions(task, OneBatch(), Schedule(epochs=1, points=3, patience=0))
    assert {name: one.tolist() for name, one in found.items()} == {
        "forest": [0, 1, 1],
        "mean": [0, 1, 0],
        "network": [0, 0, 0],
    }
    assert float(model.share) == 0.5


@pytest.mark.parametrize("chosen", SHARES)
def test_the_candidate_with_the_best_score_is_chosen_with_its_margin(chosen):
    y = torch.arange(200) % 2
    third = list(range(0, 200, 3))
    wrong = dict.fromkeys(SHARES, third) | {chosen: []}
    choice = candidates(y, wrong)
    assert choice["name"] == chosen
    assert choice["validation"][chosen] == 1
    assert choice["margin"] == pytest.approx(1 - 133 / 267, abs=0.01)
    assert choice_in_words(choice).startswith(f"the {chosen} answers, by a margin of 0.50")


def test_a_candidate_that_is_better_by_chance_leaves_the_answer_to_the_forest():
    """It is better in one corner of the only scan: there neighbours are right together."""
    y = torch.arange(200) % 2
    wrong = {"forest": list(range(10)), "mean": [], "network": [50, 150]}
    choice = candidates(y, wrong)
    assert choice["name"] == "forest"
    assert choice["margin"] < 0
    assert "as no score on the validation part is higher by more than chance" in choice_in_words(
        choice
    )
    spread = wrong | {"forest": list(range(0, 200, 20))}
    assert candidates(y, spread)["name"] == "mean"


def test_across_folds_the_highest_score_answers():
    y = torch.arange(200) % 2
    wrong = {"forest": list(range(10)), "mean": list(range(9)), "network": list(range(11))}
    choice = candidates(y, wrong, folds=4)
    assert choice["name"] == "mean"
    assert choice_in_words(choice).startswith("the mean answers, by a margin of 0.0")
    assert candidates(y, wrong | {"mean": wrong["forest"]}, folds=4)["name"] == "forest"


def test_the_interval_of_an_advantage_is_the_t_interval_where_answers_are_few():
    """Of shares of at most 20 answers a jackknife without one at a time is the paired t interval."""
    task = TASKS["classify"]("shape", ("a", "b"))
    labels = torch.zeros(18, dtype=torch.int64)
    ours = torch.tensor([0] * 15 + [1] * 3)
    others = torch.tensor([1] * 7 + [0] * 11)
    seen = advantage(task, ours, others, labels)
    assert seen == pytest.approx(limits(((others - ours).double()).tolist()))
    assert advantage(task, ours[:1], others[:1], labels[:1]) == (-torch.inf, torch.inf)


def test_shapes_that_stand_class_by_class_are_independent():
    """The others know six classes of ten, which are runs of answers."""
    labels = torch.arange(400) // 40
    draw = torch.Generator().manual_seed(2)
    ours = torch.where(torch.rand(400, generator=draw) < 0.3, (labels + 1) % 10, labels)
    others = torch.where(labels < 4, (labels + 1) % 10, labels)
    classes = tuple("abcdefghij")
    low, high = advantage(TASKS["classify"]("shape", classes), ours, others, labels)
    paired = limits(((ours == labels).double() - (others == labels).double()).tolist())
    assert (low, high) == pytest.approx(paired, abs=0.03)
    assert low > 0


@pytest.mark.parametrize("wrong", [torch.nan, -torch.inf])
def test_a_network_that_diverged_leaves_the_answer_to_the_forest(wrong):
    model = Best(3, 2, widths=(8, 8))
    model.scores.copy_(torch.tensor([0.25, wrong, wrong]))
    model.share.fill_(1)
    choice = model.choice()
    assert choice == {"name": "forest", "validation": {"forest": 0.25}, "margin": None, "folds": 0}
    assert choice_in_words(choice) == "the forest answers, the only one with a score (0.250)"


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([torch.nan, 0.5, 0.75], "mean 0.500, network 0.750"),
        ([torch.nan, torch.nan, 0.75], "network 0.750"),
    ],
)
def test_a_forest_without_a_score_is_said_to_have_none(scores, words):
    model = Best(3, 2, widths=(8, 8))
    model.scores.copy_(torch.tensor(scores))
    model.answer_as("forest")
    said = "the forest answers, which has no score on the validation part"
    assert choice_in_words(model.choice()) == f"{said} ({words})"


def test_a_network_of_no_features_is_refused():
    with pytest.raises(OptionError, match="got 0"):
        Best(3, 2, widths=(8, 8), network_features=0)


def test_a_network_without_finite_answers_is_never_chosen():
    y = torch.tensor([0.0, 1.0, 3.0])
    model = Best(3, 1, widths=(8, 8))
    predictions = {"forest": 0.5 * y, "mean": torch.nan * y, "network": torch.nan * y}
    model.choose(TASKS["regress"]("node"), predictions, y)
    assert model.choice()["name"] == "forest"


def test_without_a_validation_part_the_forest_answers():
    model = Best(3, 2, widths=(8, 8))
    model.answer_as("forest")
    assert choice_in_words(model.choice()) == "the forest answers, as no validation part chooses"


def test_an_answer_that_is_asked_for_is_no_choice():
    y = torch.tensor([0, 0, 1, 1])
    choice = candidates(y, {"forest": [], "mean": [], "network": [1]})
    choice |= {"name": "network", "is_asked_for": True}
    assert choice_in_words(choice).startswith("the network answers, as --model asks; on the val")
    unvalidated = Best(3, 2, widths=(8, 8)).choice() | {"is_asked_for": True}
    assert choice_in_words(unvalidated) == "the network answers, as --model asks"


def test_elements_are_counted_in_float32_under_autocast():
    model = Best(3, 1, readout="shape", widths=(8, 8), linear_features=2)
    model.linear.copy_(torch.tensor([1.001, -3.003]))
    x = torch.tensor([[0.0, 7.0, 9.0]])
    shape = Hierarchy((Level(torch.zeros(1, 3), None, ()),))
    with torch.autocast("cpu", torch.bfloat16):
        found = model._linear(x, shape)
    assert float(found) == pytest.approx(7 * 1.001 - 9 * 3.003)


def test_before_the_trees_are_grown_the_network_alone_has_answers(tmp_path, no_page):
    class Ended(Exception):
        """The network is trained."""

    def end(progress):
        if progress.epoch is not None:
            raise Ended

    scans = roofs(tmp_path / "scans")
    with pytest.raises(Ended):
        ga.training.train(scans, tmp_path / "run", grid=1.0, control=False, tell=end, **HOW)
    assert Run.load(tmp_path / "run").unfinished == "1 of 1 epochs"
    result = ga.training.evaluate(tmp_path / "run")
    assert "the network answers, as nothing is chosen yet" in str(result)
    assert any(note.startswith("unfinished") for note in result.notes)
    for name in ("forest", "mean"):
        with pytest.raises(OptionError, match="whose trees are grown"):
            ga.training.evaluate(tmp_path / "run", model=name)


def test_of_candidates_with_one_score_the_forest_is_chosen():
    y = torch.tensor([0, 0, 1, 1])
    assert candidates(y, {name: [] for name in SHARES})["name"] == "forest"


@pytest.mark.slow
def test_a_run_says_what_answers_and_is_read_again(tmp_path):
    texts = []
    folder = roofs(tmp_path / "scans")
    result = ga.training.train(
        folder,
        tmp_path / "run",
        grid=1.0,
        control=("forest",),
        tell=lambda progress: texts.append(progress.words),
        model="best",
        epochs=1,
        model_options={"widths": [8] * 4},
    )
    line = choice_in_words(result.choice)
    assert line in "\n".join(texts)
    assert line in str(result)
    assert line in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert (
        json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["choice"] == result.choice
    )
    run = Run.load(tmp_path / "run")
    model = run.trained_model()
    assert model.choice() == result.choice
    # both read what the control reads, and its trees are as many
    control = Run.load(tmp_path / "run" / "forest")
    assert control.inputs.features == run.inputs.features
    trees = control.trained_model()
    assert torch.equal(model.forest.threshold, trees.threshold)
    assert torch.equal(model.forest.value, trees.value)
    again = ga.training.evaluate(tmp_path / "run")
    assert (again.scores, again.choice) == (result.scores, result.choice)
    (line,) = ga.training.predict(tmp_path / "run", [folder / "1.ply"], tmp_path / "out")
    assert line["points"] == 300


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "regress"])
def test_shapes_have_a_best_model_too(task, tmp_path, no_page):
    draw = torch.Generator().manual_seed(5)
    names = []
    for number in range(12):
        high = 0.1 + 2 * (number % 2)
        pos = torch.rand(40, 3, generator=draw) * torch.tensor([1.0, 1.0, high])
        name = f"{'flat' if high < 1 else 'tall'}/{number}.ply"
        (tmp_path / "shapes" / name).parent.mkdir(parents=True, exist_ok=True)
        ga.save(Shape(pos=pos), tmp_path / "shapes" / name)
        names.append(f"{name},{high}")
    if task == "regress":
        (tmp_path / "shapes" / "labels.csv").write_text(
            "file,label\n" + "\n".join(names), encoding="utf-8"
        )
    how = {**HOW, "model_options": {"widths": [8, 8], "trees": 9}, "control": False}
    result = ga.training.train(tmp_path / "shapes", tmp_path / "run", task=task, val=0.3, **how)
    assert result.choice["name"] in SHARES
    assert choice_in_words(result.choice) in str(result)
    assert result.choice["validation"]["forest"] > 0.7
    again = ga.training.resume(tmp_path / "run")
    assert (again.scores, again.choice) == (result.scores, result.choice)


@pytest.mark.slow
def test_energies_are_those_of_the_elements_and_a_rest(tmp_path, no_page):
    draw = torch.Generator().manual_seed(0)
    (tmp_path / "molecules").mkdir()
    for number in range(50):
        carbon, hydrogen = torch.randint(1, 6, (2,), generator=draw).tolist()
        lines = [
            f"{symbol} {' '.join(map(str, (3 * torch.rand(3, generator=draw)).tolist()))}"
            for symbol in ["C"] * carbon + ["H"] * hydrogen
        ]
        head = (
            f"{len(lines)}\nProperties=species:S:1:pos:R:3 energy={-38 * carbon - 0.5 * hydrogen}"
        )
        (tmp_path / "molecules" / f"{number}.extxyz").write_text("\n".join([head, *lines]) + "\n")
    how = {**HOW, "model_options": {"widths": [8, 8], "trees": 9}, "control": False}
    result = ga.training.train(
        tmp_path / "molecules", tmp_path / "run", task="regress", label="energy", **how
    )
    assert result.scores["r2"] > 0.9997
