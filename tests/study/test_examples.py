"""Right answers by test example, and intervals that include the test set."""

import json

import numpy as np
import pytest
import torch
from tiny_study import HELD, SAMPLES, N, tiny_data, tiny_run

import graphattn as ga
from graphattn import study
from graphattn.statistics.intervals import interval
from graphattn.study.table import interval_with_test_set, read_examples, with_test_set

WINDOW = {"window": ga.graphs.sliding_window(N, 3, causal=False)}


def fixed(**changes):
    test = torch.arange(SAMPLES) >= SAMPLES - HELD
    return tiny_data(test=test, **changes)


@pytest.mark.slow
def test_trials_record_what_is_right_where_seeds_share_a_test_set(tmp_path):
    options = {"controls": ("full",), "budgets": study.Budget(None, 3), "seeds": 3}
    claims = [study.Claim("window", "full")]
    found = tiny_run(tmp_path / "a", WINDOW, fixed(), claims=claims, **options)
    for record in found.records.of_key.values():
        right, asked = read_examples(record["examples_right"])
        assert asked.tolist() == [1] * HELD
        assert right.mean() == record["accuracy"]
    row = found.row("window")
    wider = interval_with_test_set(row)
    assert wider.low < row.interval.low <= row.interval.high < wider.high
    assert found.arms["with_test_set_low"][0] == wider.low
    assert "intervals are over seeds" in str(found)
    drawn = tiny_run(tmp_path / "b", WINDOW, **options)
    assert "examples_right" not in (tmp_path / "b" / "trials.jsonl").read_text("utf-8")
    assert interval_with_test_set(drawn.row("window")) is None
    assert "intervals are over seeds" not in str(drawn)


def test_answers_of_nodes_are_counted_by_sample(tmp_path):
    targets = torch.randint(3, (SAMPLES, N), generator=torch.Generator().manual_seed(1))
    targets[:, ::2] = -100
    options = {"readout": "node", "controls": (), "budgets": study.Budget(None, 2), "seeds": 1}
    tiny_run(tmp_path, WINDOW, fixed(targets=targets), **options)
    (line,) = (tmp_path / "trials.jsonl").read_text("utf-8").splitlines()
    record = json.loads(line)
    right, asked = read_examples(record["examples_right"])
    assert asked.tolist() == [3] * HELD
    assert right.sum() / asked.sum() == record["accuracy"]


def test_an_interval_with_the_test_set_covers_what_one_over_seeds_does_not():
    """Crossed effects of 10 seeds and 150 examples, of which some are hard for every seed."""
    random = np.random.default_rng(0)
    plain = 0
    both = 0
    for _ in range(200):
        hard = random.beta(1, 1, size=150)
        skill = 0.05 * random.normal(size=(10, 1))
        right = (random.random((10, 150)) < np.clip(hard + skill, 0, 1)).astype(float)
        over_seeds = interval(right.mean(1).tolist(), (0, 1))
        wider = with_test_set(over_seeds, right.mean(0), np.ones(150))
        plain += over_seeds.low <= 0.5 <= over_seeds.high
        both += wider.low <= 0.5 <= wider.high
    assert plain < 180
    assert both >= 186
