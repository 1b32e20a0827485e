"""Budgets of equal cost are settled before training, and rates are chosen without a look at the
test.
"""

import pytest
from tiny_study import N, tiny_comparison, tiny_data, tiny_run

import graphattn as ga
from graphattn import analysis, study
from graphattn.errors import OptionError
from graphattn.study import figure as picture
from graphattn.study import train as trial
from graphattn.study.comparison import Comparison
from graphattn.study.trials import operations, trials_of

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


def test_an_arm_that_chooses_costs_all_edges_that_it_may_choose():
    arms = {"chosen": ga.graphs.top_k(..., 2, within=WINDOW), "window": WINDOW, "full": FULL}
    about = compared(arms)
    chosen, window, full = (operations(about, graphs) for graphs in about.graphs.values())
    assert chosen == window < full


def test_graphs_of_samples_are_counted_each():
    arms = {"shared": WINDOW, "each": lambda sample: FULL if sample.index % 2 else WINDOW}
    about = compared(arms)
    shared, each = (operations(about, about.graphs[name]) for name in arms)
    full = analysis.flops([FULL] * 2, 8, 2, hidden=5).total
    assert each - shared == pytest.approx((full - shared) / 2, rel=0.05)


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
    'equal must be "steps" or "operations"': lambda: study.Budget(equal="epochs"),
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
