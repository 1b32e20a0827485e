"""Plain methods on a study's data: the same splits, on by default of vectors and tables."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error, r2_score
from sklearn.preprocessing import StandardScaler
from tiny_study import HELD, SAMPLES, N, tiny_comparison, tiny_data, tiny_run

import graphattn as ga
from graphattn import study
from graphattn.errors import OptionError
from graphattn.study import laws as baseline
from graphattn.study.laws import check_baseline, features_of, has_baseline, methods, scores
from graphattn.study.run import execute

WINDOW = {"window": ga.graphs.sliding_window(N, 3, causal=False)}


def table():
    """Features of which the first of each node counts, and classes that a line parts."""
    random = torch.Generator().manual_seed(0)
    features = torch.randn(SAMPLES, N, 2, generator=random)
    return tiny_data(inputs=features, targets=(features[..., 0].sum(1) > 0).long())


@pytest.mark.slow
def test_methods_are_trained_and_tested_on_the_splits_of_the_trials():
    about = tiny_comparison(WINDOW, table(), budgets=study.Budget(31, 3))
    found = scores(about, range(3, 5))
    assert tuple(found) == methods(about.data) == ("logistic regression", "forest")
    x = about.data.inputs.flatten(1).numpy()
    y = about.data.targets.numpy()
    for seed in (3, 4):
        train, test = (part.numpy() for part in about.data.split(seed, 31))
        forest = RandomForestClassifier(200, random_state=seed).fit(x[train], y[train])
        assert found["forest"][str(seed)] == forest.score(x[test], y[test])
        scaler = StandardScaler().fit(x[train])
        line = LogisticRegression(max_iter=1000).fit(scaler.transform(x[train]), y[train])
        score = line.score(scaler.transform(x[test]), y[test])
        assert found["logistic regression"][str(seed)] == score


@pytest.mark.slow
def test_numbers_have_ridge_regression_and_a_forest_in_the_study_s_score():
    random = torch.Generator().manual_seed(1)
    weights = torch.randn(2 * N, 2, generator=random)
    x = table().inputs
    noise = torch.randn(SAMPLES, 2, generator=random)
    targets = 7 + 100 * (x.flatten(1) @ weights + noise)
    for metric in ("r2", "mae"):
        about = tiny_comparison(WINDOW, tiny_data(inputs=x, targets=targets), metric=metric)
        assert has_baseline(about, None)
        found = scores(about, range(2))
        assert tuple(found) == methods(about.data) == ("ridge regression", "forest")
        train, test = (part.numpy() for part in about.data.split(1, None))
        x_train, x_test, y_train, y_test = (
            part
            for all_ in (x.flatten(1).numpy(), targets.numpy())
            for part in (all_[train], all_[test])
        )
        scaler = StandardScaler().fit(x_train)
        line = RidgeCV(np.logspace(-3, 4, 15), alpha_per_target=True)
        guesses = line.fit(scaler.transform(x_train), y_train).predict(scaler.transform(x_test))
        forests = [RandomForestRegressor(200, random_state=1) for _ in range(2)]
        of_forests = np.stack(
            [
                forest.fit(x_train, y_train[:, k]).predict(x_test)
                for k, forest in enumerate(forests)
            ],
            axis=1,
        )
        of = {"r2": r2_score, "mae": mean_absolute_error}[metric]
        assert found["ridge regression"]["1"] == pytest.approx(of(y_test, guesses))
        assert found["forest"]["1"] == pytest.approx(of(y_test, of_forests), rel=1e-3)
    assert found["ridge regression"]["1"] < 150 < found["forest"]["1"]


def test_labels_have_a_regression_each_and_one_that_never_held_is_never_guessed(monkeypatch):
    monkeypatch.setattr(baseline, "_TREES", 20)
    x = table().inputs
    labels = torch.stack((x[:, 0, 0] > 0, x[:, 1, 0] > 0.7, torch.zeros(SAMPLES) > 0), 1)
    data = tiny_data(inputs=x, targets=labels)
    found = {
        metric: scores(tiny_comparison(WINDOW, data, metric=metric), range(1))
        for metric in ("ap", "macro_f1", "accuracy")
    }
    train, test = (part.numpy() for part in data.split(0, None))
    y = labels.numpy()
    features = x.flatten(1).numpy()
    scaler = StandardScaler().fit(features[train])
    guesses = np.zeros((len(test), 3))
    for k in range(2):
        line = LogisticRegression(max_iter=1000).fit(scaler.transform(features[train]), y[train, k])
        guesses[:, k] = line.predict_proba(scaler.transform(features[test]))[:, 1]
    ap = average_precision_score(y[test, :2], guesses[:, :2], average="macro")
    f1 = f1_score(y[test], guesses > 0.5, average="macro", zero_division=0)
    right = np.mean(y[test] == (guesses > 0.5))
    for metric, score in (("ap", ap), ("macro_f1", f1), ("accuracy", right)):
        assert found[metric]["logistic regression"]["0"] == pytest.approx(score)
        assert found[metric]["forest"]["0"] > 0.5


def test_a_training_set_of_one_class_has_that_for_a_guess(monkeypatch):
    monkeypatch.setattr(baseline, "_TREES", 20)
    data = table()
    data.targets[:] = 0
    data.targets[-1] = 1
    found = scores(tiny_comparison(WINDOW, data, budgets=study.Budget(11, 3)), range(2))
    assert min(found["forest"].values()) >= 1 - 1 / HELD


def test_small_tables_have_baselines_by_default_and_others_on_demand():
    tokens = tiny_comparison(WINDOW, tiny_data())
    assert has_baseline(tiny_comparison(WINDOW, table()), None)
    assert not has_baseline(tiny_comparison(WINDOW, table()), False)
    assert not has_baseline(tokens, None)
    assert has_baseline(tokens, True)
    of_nodes = tiny_data(targets=torch.randint(3, (SAMPLES, N)))
    asked = tiny_comparison(WINDOW, of_nodes, readout="node")
    in_bits = tiny_comparison(WINDOW, table(), metric="bits")
    assert not has_baseline(asked, True)
    assert not has_baseline(in_bits, True)
    check_baseline([asked, tokens], True)
    check_baseline([asked, in_bits], None)
    words = r"target of each sample .* 'node' and accuracy in c, 'mean' and bits in c.*baselines="
    with pytest.raises(OptionError, match=words):
        check_baseline([asked, in_bits], True)


def test_baselines_of_a_user_are_checked_and_listed_and_a_comparison_without_is_named(tmp_path):
    about_samples = tiny_comparison(WINDOW, controls=(), budgets=study.Budget(None, 1))
    data = tiny_data(targets=torch.randint(3, (SAMPLES, N)))
    options = {"readout": "node", "controls": (), "budgets": study.Budget(None, 1)}
    about_nodes = study.Comparison("nodes", WINDOW, data, model=about_samples.model, **options)
    both = [about_samples, about_nodes]
    for wrong, words in (({"d": {"table": 0.5}}, "got 'd'; comparisons are 'c', 'nodes'"),):
        with pytest.raises(OptionError, match=words):
            study.Study("both", both, baselines=wrong)
    own = study.Study("both", both, baselines={"c": {"table": 0.25}})
    found = execute(own, seeds=1, out=tmp_path, processes=0)
    assert "* c, table, the study's own: accuracy 0.250" in found.brief()


def test_tokens_are_counted_and_told_by_place_without_their_padding():
    tokens = torch.tensor([[2, 0, 1], [1, 1, 0]])
    data = study.Data(tokens, torch.tensor([0, 1]), test=1, sizes=torch.tensor([3, 2]))
    found = features_of(data)
    assert found[:, :3].tolist() == [[1, 1, 1], [0, 2, 0]]
    assert np.array_equal(found[1, 3:].reshape(3, 3), [[0, 1, 0], [0, 1, 0], [0, 0, 0]])
    numbers = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [torch.nan]]])
    data = study.Data(numbers, torch.tensor([0, 1]), test=1, sizes=torch.tensor([3, 2]))
    assert features_of(data).tolist() == [[1, 2, 3], [4, 5, 0]]


@pytest.mark.slow
def test_a_page_has_the_baselines_with_intervals(tmp_path):
    found = tiny_run(tmp_path, WINDOW, table(), seeds=3, controls=(), budgets=study.Budget(None, 1))
    (about,) = found.plan["comparisons"].values()
    assert list(about["plain"]["forest"]) == ["0", "1", "2"]
    assert "* study, logistic regression, same splits: accuracy 0." in str(found)
    assert any("study, forest, same splits: accuracy 0." in line for line in found.brief())
    without = tiny_run(tmp_path / "without", WINDOW, table(), seeds=1, baseline=False, controls=())
    assert without.plan["comparisons"]["study"]["plain"] == {}
    assert about["held"] == HELD
