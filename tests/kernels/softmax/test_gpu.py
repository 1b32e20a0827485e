"""What edge features and a bias cost on a GPU, counted without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
TESTS = Path(__file__).parents[2]


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
    additive = told["additive"]  # they were 51 passes, 36 of them conversions to float32
    assert additive["kernels"] + additive["operations"] < 5.5, additive
    assert "aten::_to_copy" not in additive, additive


def test_sums_over_a_batch_of_small_graphs_have_few_shares(monkeypatch):
    from graphattn.kernels.softmax import gpu as attention_triton

    launches = []
    monkeypatch.setattr(attention_triton, "_launch", lambda *launch: launches.append(launch))
    x = torch.zeros(5000, 5, 2, 8)
    for nodes in (x, x.transpose(0, 1)):
        shares = attention_triton.Shares(torch.zeros(2, 8, 3))
        z = torch.zeros(*nodes.shape[:3], 3)
        attention_triton.project(nodes, None, None, z, shares)
        assert sum(len(part) for part in shares.parts) <= attention_triton.PROGRAMS + 5
    assert len(launches) == 2
