"""Plain methods on a study's data: the same splits, on by default of vectors and tables."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from tiny_study import HELD, SAMPLES, N, tiny_comparison, tiny_data, tiny_run

import graphattn as ga
from graphattn import study
from graphattn.errors import OptionError
from graphattn.study.baseline import METHODS, features_of, scores, wanted
from graphattn.study.brief import brief

WINDOW = {"window": ga.graphs.sliding_window(N, 3, causal=False)}


def table():
    """Features of which the first of each node counts, and classes that a line parts."""
    random = torch.Generator().manual_seed(0)
    features = torch.randn(SAMPLES, N, 2, generator=random)
    return tiny_data(inputs=features, targets=(features[..., 0].sum(1) > 0).long())


def test_methods_are_trained_and_tested_on_the_splits_of_the_trials():
    about = tiny_comparison(WINDOW, table(), budgets=study.Budget(31, 3))
    found = scores(about, range(3, 5))
    assert list(found) == list(METHODS)
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


def test_small_tables_have_baselines_by_default_and_others_on_demand():
    tokens = tiny_comparison(WINDOW, tiny_data())
    assert wanted(tiny_comparison(WINDOW, table()), None)
    assert not wanted(tiny_comparison(WINDOW, table()), False)
    assert not wanted(tokens, None)
    assert wanted(tokens, True)
    of_nodes = tiny_data(targets=torch.randint(3, (SAMPLES, N)))
    asked = tiny_comparison(WINDOW, of_nodes, readout="node")
    with pytest.raises(OptionError, match=r"baseline of c needs a class of each sample .* 'node'"):
        wanted(asked, True)


def test_tokens_are_counted_and_told_by_place_without_their_padding():
    tokens = torch.tensor([[2, 0, 1], [1, 1, 0]])
    data = study.Data(tokens, torch.tensor([0, 1]), test=1, sizes=torch.tensor([3, 2]))
    found = features_of(data)
    assert found[:, :3].tolist() == [[1, 1, 1], [0, 2, 0]]
    assert np.array_equal(found[1, 3:].reshape(3, 3), [[0, 1, 0], [0, 1, 0], [0, 0, 0]])


def test_a_page_has_the_baselines_with_intervals(tmp_path):
    found = tiny_run(tmp_path, WINDOW, table(), seeds=3, controls=(), budgets=study.Budget(None, 1))
    (about,) = found.plan["comparisons"].values()
    assert list(about["plain"]["forest"]) == ["0", "1", "2"]
    assert "* logistic regression on the same data, splits and seeds: 0." in str(found)
    assert any("study, forest, same splits: accuracy 0." in line for line in brief(found))
    without = tiny_run(tmp_path / "without", WINDOW, table(), seeds=1, baseline=False, controls=())
    assert without.plan["comparisons"]["study"]["plain"] == {}
    assert about["held"] == HELD
