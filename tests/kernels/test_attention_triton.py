"""What edge features and a bias cost on a GPU, counted without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_edge_features_cost_eight_passes_over_the_nodes_and_a_bias_and_scores_hardly_any(tmp_path):
    """Features were 39 passes of torch's operations alone, in float32 and around the kernels."""
    env = {**os.environ, "NO_DEVICE": str(tmp_path), "PYTHONPATH": str(TESTS.parent)}
    words = [sys.executable, str(TESTS / "kernels" / "passes.py")]
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    if "g++" in done.stderr:
        pytest.skip("no compiler for the device that is not there")
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    features = told["features"]
    assert 6 < features["kernels"] + features["operations"] <= 8, features
    assert features["operations"] < 0.1, features
    bias = told["bias"]
    assert bias["operations"] < 0.001, bias
    assert 0 < bias["kernels"] < 0.6, bias
    scores = told["scores"]  # they were 36.5 passes: nodes became float32 first
    assert scores["kernels"] + scores["operations"] < 1, scores
