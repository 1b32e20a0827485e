"""Budgets of equal cost are settled before training, and rates are chosen without a look at the
test.
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tiny_study import N, tiny_comparison, tiny_data, tiny_run
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GraphConv

import graphattn as ga
from graphattn import analysis, study
from graphattn.errors import OptionError
from graphattn.study import figure as picture
from graphattn.study import records
from graphattn.study import train as trial
from graphattn.study import trials as costs
from graphattn.study.comparison import Comparison
from graphattn.study.laws import predicted
from graphattn.study.trials import trials_of

WINDOW, FULL = ga.graphs.sliding_window(N, 3, causal=False), ga.graphs.full(N)


def compared(arms, **changes):
    return tiny_comparison(arms, **{"controls": (), **changes})


def test_equal_operations_give_cheaper_arms_more_steps():
    about = compared(
        {"window": WINDOW, "full": FULL}, budgets=[study.Budget(None, 1000, "operations")]
    )
    steps = {one.arm: one.steps for one in trials_of(about, 1)}
    spent = {
        name: analysis.flops([g] * 2, 8, 2, hidden=5).total * steps[name]
        for name, g in (("window", WINDOW), ("full", FULL))
    }
    assert steps["full"] == 1000 < steps["window"]
    assert spent["window"] == pytest.approx(spent["full"], rel=1e-3)


@pytest.mark.parametrize("model", ["ours", "own"])
def test_an_arm_that_chooses_costs_all_edges_that_it_may_choose(model):
    arms = {"chosen": ga.graphs.top_k(..., 2, within=WINDOW), "window": WINDOW, "full": FULL}
    given = (
        {}
        if model == "ours"
        else {"model": study.CustomModel(partial(Own, part="encoder"), layers=2)}
    )
    about = compared(arms, **given)
    chosen, window, full = (costs.operations(about, graphs) for graphs in about.graphs.values())
    assert chosen == window < full


class Own(torch.nn.Module):
    """An encoder of this library, a convolution of PyG, a sparse product and attention along all
    pairs, as asked.
    """

    def __init__(self, data, part):
        super().__init__()
        self.part, self.table, self.head = (
            part,
            torch.nn.Embedding(5, 8),
            torch.nn.Linear(8, data.classes),
        )
        parts = {"encoder": lambda: ga.models.Encoder(2, 8, 2, 5), "pyg": lambda: GraphConv(8, 3)}
        self.body = parts.get(part, torch.nn.Identity)()

    def forward(self, inputs, graphs, places, pos):
        x, graph = self.table(inputs), graphs[0]
        if self.part == "encoder":
            x = self.body(x, list(graphs))
        elif self.part == "pyg":
            return self.body(x, graph.edge_index)
        elif self.part == "sparse":
            ones = torch.ones(graph.num_edges)
            adjacency = torch.sparse_coo_tensor(
                torch.stack((graph.target, graph.source)), ones, (N, N)
            )
            x = torch.stack([torch.sparse.mm(adjacency, one) for one in x])
        elif self.part == "all pairs":
            x = torch.nn.functional.scaled_dot_product_attention(*[x.unsqueeze(1)] * 3).squeeze(1)
        else:
            x = torch.ops.tests.mine(x)
        return self.head(x)


HEAD = 2 * N * 8 * 3
COUNTED = {
    # by edges, dense as it runs
    "encoder": lambda graph: analysis.flops([graph] * 2, 8, 2, hidden=5).total + HEAD,
    "pyg": lambda graph: 2 * HEAD + 2 * graph.num_edges * 8,  # gathered, and added up
    "sparse": lambda graph: 2 * graph.num_edges * 8 + HEAD,
    "all pairs": lambda graph: 4 * N * N * 8 + HEAD,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", COUNTED)
def test_operations_of_a_module_of_ones_own_are_counted(part):
    """By formulas; in an encoder of this library they are those of the same study.Model."""
    model = study.CustomModel(partial(Own, part=part), 2)
    about = compared(
        {"window": WINDOW, "full": FULL},
        model=model,
        budgets=[study.Budget(None, 1000, "operations")],
    )
    for name, graph in (("window", WINDOW), ("full", FULL)):
        assert costs.operations(about, about.graphs[name]) == COUNTED[part](graph)
    steps = {one.arm: one.steps for one in trials_of(about, 1)}
    assert steps["window"] == round(1000 * COUNTED[part](FULL) / COUNTED[part](WINDOW))
    assert (steps["window"] > steps["full"]) == (part != "all pairs")
    assert predicted(about, "window")["operations"] == COUNTED[part](WINDOW)


def test_graphs_of_samples_are_counted_each():
    model = study.CustomModel(partial(Own, part="encoder"), 2)
    arms = {"shared": WINDOW, "each": lambda sample: FULL if sample.index % 2 else WINDOW}
    about = compared(arms, model=model)
    shared, each = (costs.operations(about, about.graphs[name]) for name in arms)
    assert each - shared == pytest.approx(
        (COUNTED["encoder"](FULL) - COUNTED["encoder"](WINDOW)) / 2, rel=0.05
    )


def test_operators_of_others_are_refused():
    with torch.library._scoped_library("tests", "DEF") as library:
        library.define("mine(Tensor x) -> Tensor")
        library.impl("mine", lambda x: x + 1, "CPU")
        about = compared({"full": FULL}, model=study.CustomModel(partial(Own, part="mine")))
        with pytest.raises(OptionError, match=r"got tests\.mine.* or give equal='time'"):
            costs.operations(about, about.graphs["full"])
        assert predicted(about, "full")["operations"] is None


def test_equal_time_is_measured_once_written_down_and_kept(tmp_path, monkeypatch):
    """Half the seconds a step: twice the steps; the same when the study goes on, whatever is
    measured then.
    """
    told = {"window": 1e-3, "full": 2e-3}
    monkeypatch.setattr(
        costs, "seconds", lambda comparison, arms, positions: {name: told[name] for name in arms}
    )
    given = {"budgets": study.Budget(None, 2, "time"), "controls": ("full",), "seeds": 1}
    first = tiny_run(tmp_path, **given)
    assert {one["arm"]: one["steps_taken"] for one in first.records.of_key.values()} == {
        "window": 4,
        "full": 2,
    }
    assert records.read_plan(tmp_path)["comparisons"]["study"]["costs"] == {"time": {"none": told}}
    told |= {"window": 5e-3}
    assert (
        tiny_run(tmp_path, **given).counts["planned"]
        == len((tmp_path / records.TRIALS).read_text("utf-8").splitlines())
        == 2
    )
    assert "(equal time)" in str(first)


@pytest.mark.slow
def test_the_time_of_a_step_is_its_own(monkeypatch):
    """By a clock that counts what torch runs: as much for each layer, whatever it takes to build
    the model, and the steps are as many although training would stop at this loss."""

    class Clock(TorchDispatchMode):
        now = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.now += 1
            return function(*args, **(kwargs or {}))

    def cost(layers, stop=None):
        about = compared(
            {"all": FULL}, model=study.Model(layers, 8, 2, 5), training=study.Training(stop=stop)
        )
        with Clock() as clock:
            monkeypatch.setattr(costs, "time", SimpleNamespace(process_time=lambda: clock.now))
            return costs.measured(about, "time")["none"]["all"]

    one, two, three = (cost(layers) for layers in (1, 2, 3))
    assert three - two == two - one > 20
    assert one > 60
    assert cost(1, stop=9.0) == one


def test_two_budgets_of_as_many_examples_are_told_apart(tmp_path):
    budgets = [study.Budget(11, 1), study.Budget(11, 3)]
    found = tiny_run(tmp_path, budgets=budgets, controls=("full",), seeds=1)
    assert [(row.arm, row.steps) for row in found.rows] == [
        ("window", 1),
        ("window", 3),
        ("full", 1),
        ("full", 3),
    ]
    first, last = (found.row("window", budget=number) for number in (0, 1))
    ran = {
        one["steps_taken"]: one["accuracy"]
        for one in found.records.of_key.values()
        if one["arm"] == "window"
    }
    assert (first.scores, last.scores) == ({0: ran[1]}, {0: ran[3]})
    assert picture._among(found.rows, first) == "window, 1 steps"


@pytest.mark.slow
def test_every_rate_is_tried_and_the_test_is_not_looked_at(monkeypatch):
    """Targets of what is held out are changed: the same rate, the same model; those of the
    validation choose it.
    """
    about = compared(
        {"full": FULL},
        training=study.Training((1e-9, 3e-2), batch=3),
        budgets=[study.Budget(None, 30)],
    )
    one = next(trials_of(about, 1))
    seen, held = about.data.split(0, None)
    asked = []
    real = trial.scored
    monkeypatch.setattr(
        trial, "scored", lambda *given: asked.append(set(given[3].tolist())) or real(*given)
    )
    found = trial.train(about, about.graphs[one.arm], one)
    fifth = round(0.2 * len(seen))
    assert asked[:2] == [set(seen[-fifth:].tolist())] * 2
    assert asked[2:4] == [set(seen[:-fifth].tolist()), set(held.tolist())]
    assert (found["rate"], set(found["validation"])) == (3e-2, {"1e-09", "0.03"})
    targets = about.data.targets.clone()
    targets[held] = (targets[held] + 1) % 3
    other = Comparison(
        "c", {"full": FULL}, tiny_data(targets=targets), model=about.model, training=about.training
    )
    again = trial.train(other, about.graphs[one.arm], one)
    assert (again["rate"], again["loss"], again["validation"]) == (
        3e-2,
        found["loss"],
        found["validation"],
    )


WRONG = {
    "budgets must differ": {"budgets": [study.Budget(None, 3), study.Budget(None, 3)]},
    'equal must be "steps", "operations" or "time"': lambda: study.Budget(equal="epochs"),
    "several that differ": lambda: study.Training([1e-2, 1e-2]),
    "rate and clip must be a finite number > 0": lambda: study.Training([1e-2, -1.0]),
    "2 examples or more": {
        "budgets": [study.Budget(1, 3)],
        "training": study.Training([1e-2, 1e-3]),
    },
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_budgets_are_refused(words):
    given = WRONG[words]
    with pytest.raises(OptionError) as error:
        given() if callable(given) else compared({"window": WINDOW}, **given)
    assert words in str(error.value)
